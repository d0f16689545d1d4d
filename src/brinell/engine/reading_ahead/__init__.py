"""The images of a run on an accelerator are read by processes while its models are opened, which takes about as long."""
