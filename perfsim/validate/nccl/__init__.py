"""Predicted collectives beside measured ones: one question a file.

Each file of this folder with a ``QUESTION`` (one sentence) is a question; nothing else lists it. It
holds ``LIMITS``, the errors allowed by the name that its rows have, and
``predict_rows(curves) -> list[NcclRow]``, of (cluster, curve) pairs.
"""

from __future__ import annotations

from perfsim.validate.accuracy import Score
from perfsim.validate.nccl.report import NcclReport, validate_nccl
from perfsim.validate.nccl.row import NcclRow

__all__ = ["NcclReport", "NcclRow", "Score", "validate_nccl"]
