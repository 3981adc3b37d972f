"""Validation: predictions beside what others measured or claimed.

``cases`` reads published results, ``mapping`` makes their scenarios, ``metrics`` reads the metric
off a prediction, and ``measurements`` reports the errors; ``accuracy`` puts errors in a few
numbers. ``claims`` compares with what papers claim, ``nccl`` with measured collectives.
"""
