"""Collectives as predicted beside collectives as measured: one question a file.

A question is a file of this folder with ``QUESTION``, a sentence, and
``rows(curves) -> list[Row]``; nothing else lists it. ``LIMITS`` says what it must reach.
"""

from __future__ import annotations

from perfsim.validate.nccl.report import Report, validate_nccl
from perfsim.validate.nccl.row import Row, Score

__all__ = ["Report", "Row", "Score", "validate_nccl"]
