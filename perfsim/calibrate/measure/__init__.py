"""Measuring on a live machine or cluster: collectives, kernels and training steps."""
