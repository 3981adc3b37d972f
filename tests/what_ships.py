"""What ships, read once for all tests."""

from __future__ import annotations

from perfsim.session import Session

__all__ = ["SHIPPED"]

SHIPPED = Session()
