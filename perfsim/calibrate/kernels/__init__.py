"""Measuring the kernels that methods use, on the GPU or CPU at hand: ``perfsim calibrate kernels``.

One file holds what belongs together (selecting, signs, products, ...); each of its benches makes
inputs of a size and returns what runs the kernel once, in PyTorch.
"""
