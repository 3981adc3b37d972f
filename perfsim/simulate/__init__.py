"""Tasks, streams and durations: a periodic task graph and the two engines that run it."""
