"""Damage files of every kind and read them: ``python tests/scripts/fuzz --mutations 100000``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.fuzz.campaign import main

if __name__ == "__main__":
    sys.exit(main())
