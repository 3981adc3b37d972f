"""Damage files of every kind and read them: ``python tests/fuzz --mutations 100000``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from fuzz.campaign import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
