"""Numba kernels for CPUs: loops over pixels, compiled for this machine's processor, that hold no lock while they run.

Tensor code and OpenCV pass over the whole batch once per step and reload it from memory each time; a kernel finishes one
image before it starts the next, while that image is in the core's cache. Kernels are compiled when they are first called,
and kept on disk. They need the extra `numba`.

Numba checks no bounds: what a kernel indexes with is bounded in the kernel, or by the code that calls it.

Integers: Numba widens sums and products to 64 bits, so arithmetic that must wrap at 32 bits is cast back after every step.
Floats: products and sums are rounded one by one, as in tensor code.
"""
