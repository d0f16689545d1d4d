"""Numba kernels for CPUs: loops over pixels, compiled for this machine's processor, that hold no lock while they run.

Tensor code and OpenCV go over a batch once per step and come back from memory each time; a kernel changes one image
after the other, while it is in the core's cache. Kernels are compiled when they are first called, which takes a second or
so each, and kept on disk. They need the extra `numba`.

Whole numbers: Numba widens sums and products to 64 bits, so that numbers of 32 bits that wrap are cast after every step.
Floats: products and sums are rounded one by one, as in tensor code.
"""
