"""Networks: links, clusters, measured collectives, and how a collective's cost follows from them."""
