"""Fit what was measured (collectives, kernels, training steps) and write files for predictions."""
