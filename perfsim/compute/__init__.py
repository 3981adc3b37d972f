"""Computation: profiles of models, GPUs and their kernels, and moving a profile to another GPU."""
