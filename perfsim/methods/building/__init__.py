"""What families of methods share: sparsifying, quantising, low rank, K-FAC, averaging."""
