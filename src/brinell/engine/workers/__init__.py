"""Several workers measure one run: processes of this machine, or actors of Ray."""
