"""What perfsim knows: rows for ``list`` and descriptions for ``show``, with sources."""

from __future__ import annotations

from perfsim.inventory.described import DESCRIPTIONS, describe
from perfsim.inventory.listed import ROWS, in_short, rows
from perfsim.inventory.network import network_picture

__all__ = ["DESCRIPTIONS", "ROWS", "describe", "in_short", "network_picture", "rows"]
