"""``python -m perfsim`` is the command ``perfsim``, which begins here."""

from __future__ import annotations

import gc
import sys

__all__ = ["run"]

COLLECTS_AFTER = (2_000_000, 20, 20)
"""Objects after which Python looks for garbage (gc.set_threshold): graphs and imports make over a
million that stay, so that a look at them finds none."""
INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ends: 128 and the signal's number."""


def run() -> None:
    """Run the command line; Ctrl-C while it is still being imported is one line too."""
    gc.set_threshold(*COLLECTS_AFTER)
    try:
        from perfsim.cli.main import run as run_line
    except KeyboardInterrupt:
        sys.stderr.write("perfsim: stopped.\n")
        sys.exit(INTERRUPTED)
    run_line()


if __name__ == "__main__":
    run()
