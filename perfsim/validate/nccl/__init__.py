"""Collectives as predicted beside collectives as measured: one question a file.

A question is a file of this folder; nothing else lists it. It holds ``QUESTION``, one sentence,
``LIMITS``, what the errors of each name that its rows bear must reach, and
``rows(curves) -> list[Row]`` of (cluster, curve) pairs.
"""

from __future__ import annotations

from perfsim.validate.accuracy import Score
from perfsim.validate.nccl.report import NcclReport, validate_nccl
from perfsim.validate.nccl.row import NcclRow

__all__ = ["NcclReport", "NcclRow", "Score", "validate_nccl"]
