"""Fabrics: how the nodes of a cluster are joined, and how the GPUs of a node are.

`base` tells how to add one.
"""
