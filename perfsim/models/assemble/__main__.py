"""``python -m perfsim.models.assemble --data DIR --out profiles/models``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfsim.compute.profile import POSITIONS_SUFFIX
from perfsim.data.files import write_text
from perfsim.errors import PerfsimError
from perfsim.models.assemble.anchors import AnchorRow, read_anchors, read_bandwidths
from perfsim.models.assemble.files import profile_text
from perfsim.models.assemble.positions import positions_text
from perfsim.models.assemble.times import Times, times

__all__ = ["assemble", "main", "positions"]


def assemble(data: Path, anchors: Sequence[AnchorRow] | None = None) -> dict[str, str]:
    """Return file name -> text of every profile of the table, built from ``data``."""
    bandwidths = read_bandwidths()
    done: dict[str, Times] = {}
    texts: dict[str, str] = {}
    for anchor in read_anchors() if anchors is None else anchors:
        done[anchor.name] = times(anchor, data, bandwidths, done)
        texts[f"{anchor.name}.csv"] = profile_text(anchor, done[anchor.name])
    return texts


def positions(models: Iterable[str]) -> dict[str, str]:
    """Return file name -> text of the positions beside the profiles of some models."""
    texts = {f"{model}{POSITIONS_SUFFIX}": positions_text(model) for model in sorted(set(models))}
    return {name: text for name, text in texts.items() if text}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every profile; return the exit code."""
    parser = argparse.ArgumentParser(prog="perfsim.models.assemble", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of collected figures")
    parser.add_argument("--out", type=Path, required=True, help="folder to write profiles to")
    options = parser.parse_args(arguments)
    try:
        anchors = read_anchors()
        profiles = assemble(options.data, anchors)
        texts = profiles | positions(anchor.model for anchor in anchors)
    except PerfsimError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(options.out / name, text)
    print(f"{len(profiles)} profiles in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
