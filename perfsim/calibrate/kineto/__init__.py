"""Parts of reading what torch.profiler writes: spans, steps, layers, clocks, collectives."""
