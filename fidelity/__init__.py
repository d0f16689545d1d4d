"""How faithful the package is to the papers it builds on, measured."""
