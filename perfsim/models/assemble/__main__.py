"""``python -m perfsim.models.assemble --data DIR --out profiles/models``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from perfsim.errors import PerfsimError
from perfsim.models.assemble.anchors import Anchor, read_anchors, read_bandwidths
from perfsim.models.assemble.files import profile_text
from perfsim.models.assemble.times import Times, times

__all__ = ["assemble", "main"]


def assemble(data: Path, anchors: Sequence[Anchor] | None = None) -> dict[str, str]:
    """Return file name -> text of every profile of the table, built from ``data``."""
    bandwidths = read_bandwidths()
    done: dict[str, Times] = {}
    texts: dict[str, str] = {}
    for anchor in read_anchors() if anchors is None else anchors:
        done[anchor.name] = times(anchor, data, bandwidths, done)
        texts[f"{anchor.name}.csv"] = profile_text(anchor, done[anchor.name])
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every profile; return the exit code."""
    parser = argparse.ArgumentParser(prog="perfsim.models.assemble", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of collected figures")
    parser.add_argument("--out", type=Path, required=True, help="folder to write profiles to")
    options = parser.parse_args(arguments)
    try:
        texts = assemble(options.data)
    except PerfsimError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (options.out / name).write_text(text, encoding="utf-8")
    print(f"{len(texts)} profiles in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
