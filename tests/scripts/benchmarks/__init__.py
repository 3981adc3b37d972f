"""Every figure of speed beside its limit: ``python tests/scripts/benchmarks``."""
