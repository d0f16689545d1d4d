"""A model behind HTTP, so that what is deployed can be tested."""
