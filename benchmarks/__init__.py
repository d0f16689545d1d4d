"""Speed of the package compared with the bare model and other packages. `make bench` writes docs/performance.md."""
