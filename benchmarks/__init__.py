"""How fast the package is, beside the bare model and beside its peers. `make bench` writes docs/performance.md."""
