"""Folders of the checkout that tests read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FILES", "PACKAGE", "ROOT", "TESTS"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "perfsim"
TESTS = ROOT / "tests"
FILES = TESTS / "support" / "files"
