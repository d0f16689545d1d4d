"""A run measured in parts: independent processes or machines that share nothing but its folder."""
