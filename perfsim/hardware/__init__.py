"""The hardware that a scenario names: GPUs, nodes, the networks that join them, placement."""
