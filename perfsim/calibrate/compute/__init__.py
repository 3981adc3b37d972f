"""Measuring a model's training step on one device, layer by layer."""
