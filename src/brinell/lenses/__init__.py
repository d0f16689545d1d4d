"""The lenses, one package each."""
