"""From a Setup to task graphs with costs: one graph for each round of a method's period."""
