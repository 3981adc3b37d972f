"""``python -m perfsim`` is the command ``perfsim``."""

from __future__ import annotations

if __name__ == "__main__":
    from perfsim.cli.main import run

    run()
