"""Measuring collectives between the ranks of a running job."""
