"""What runs on a live machine or cluster: measuring collectives, kernels and training steps."""
