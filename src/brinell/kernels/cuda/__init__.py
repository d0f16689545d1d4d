"""Triton kernels for CUDA devices, one or a few launches each.

Beside a network at full speed, every pass over memory counts. Kernels are compiled when they are first launched (Triton
keeps them on disk). Tests run them on a CPU, in Triton's interpreter.

Floats: Triton may fuse a product and a sum into one rounding, which tensor code does not. Launches with floats that are not
whole numbers pass `enable_fp_fusion=False`.
"""
