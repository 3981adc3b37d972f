"""What computation costs: profiles, GPUs and their kernels, and a profile moved to another GPU."""
