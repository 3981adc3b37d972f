"""Networks: links, clusters, measured collectives, and what a collective costs on them."""
