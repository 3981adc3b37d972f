"""``python -m perfsim.pipeline FILE``: an iteration with dense and with compressed messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from perfsim.errors import PerfsimError
from perfsim.pipeline.answer import text
from perfsim.pipeline.file import read_pipeline

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one pipeline's iteration; return the exit code."""
    parser = argparse.ArgumentParser(prog="perfsim.pipeline", description=__doc__)
    parser.add_argument("file", type=Path, help="pipeline file (see perfsim.pipeline.file)")
    try:
        print(text(read_pipeline(parser.parse_args(arguments).file)))
    except PerfsimError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
