"""Fit what PyTorch's memory-efficient attention takes with a mask; judge it on sources left out.

    python profiles/build/masked_attention.py [--check]

``masked_attention.csv`` beside this file holds what people measured. With a mask or a bias in 16
bits the kernel is bound by the instructions of its multiprocessors, not by tensor cores or memory:
a score takes about as many cycles of a multiprocessor on each GPU. The fit is the geometric mean of
the sources, each with the geometric mean of its rows, at heads of 128 (`cycles`). ``--check`` fails
where `perfsim.compute.attention.MASKED` says another.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from perfsim.compute.attention import MASKED, multiprocessor_cycles
from perfsim.compute.device import load_device
from perfsim.data.catalog import Catalog
from perfsim.data.tables import read_table

TABLE = Path(__file__).with_name("masked_attention.csv")
COLUMNS = (
    *("gpu", "passes", "batch", "heads", "tokens", "width", "ms", "cast_values"),
    *("bias_gradient", "software", "source", "license", "kind", "note"),
)
PRODUCTS = {"forward": 4.0, "backward": 10.0}
"""Operations of a score for each value of a head: two products forward, five backward."""
_FULL_WIDTH = 128
_CAST_BYTES, _HALF_BYTES = 6.0, 2.0
"""Bytes that a cast from fp32 to 16 bits moves of a value, and those of one in 16 bits."""


class Row(NamedTuple):
    """A time of the kernel [s] without what else it holds, its scores, and whose it is."""

    gpu: str
    passes: str
    scores: float
    width: int
    time_s: float
    source: str


def rows() -> list[Row]:
    """Return the table's rows; what moves bytes beside the kernel is taken off as memory takes it.

    Casts of queries and keys, and the gradient of a bias, a value a score, which a mask has not.
    """
    catalog, found = Catalog(), []
    for _, cells in read_table(TABLE, "perfsim/masked-attention/1", COLUMNS):
        device = load_device(cells["gpu"], catalog)
        scores = float(cells["batch"]) * float(cells["heads"]) * float(cells["tokens"]) ** 2
        moved = float(cells["cast_values"]) * _CAST_BYTES
        moved += float(cells["bias_gradient"]) * scores * _HALF_BYTES
        time_s = float(cells["ms"]) / 1e3 - moved / device.memory_bandwidth.value
        key = cells["gpu"], cells["passes"], scores, int(cells["width"])
        found.append(Row(*key, time_s, cells["source"].partition(" ")[0]))
    return found


def cycles(found: Iterable[Row], passes: str) -> dict[str, float]:
    """Return the cycles of a multiprocessor that a score takes at heads of 128, by source.

    A backward pass is what both take less the forward pass of the same source and sizes.
    """
    known = {(row.source, row.scores): row.time_s for row in found if row.passes == "forward"}
    wanted, catalog = "forward" if passes == "forward" else "both", Catalog()
    by_source: defaultdict[str, list[float]] = defaultdict(list)
    for row in found:
        if row.passes == wanted:
            time_s = row.time_s - (known[row.source, row.scores] if wanted == "both" else 0.0)
            rate = multiprocessor_cycles(load_device(row.gpu, catalog))
            narrow = MASKED.narrow if passes == "forward" else MASKED.narrow_backward
            wider = (_FULL_WIDTH / row.width) ** (1.0 - narrow)
            by_source[row.source].append(time_s * rate / row.scores * wider)
    return {source: geometric_mean(values) for source, values in by_source.items()}


def fitted(by_source: Mapping[str, float], passes: str) -> float:
    """Return the operations of a cycle at heads of 128, of sources weighed alike."""
    return PRODUCTS[passes] * _FULL_WIDTH / geometric_mean(by_source.values())


def main() -> int:
    """Print the fit, and how far each source is off by the others."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="fail where MASKED says another")
    check = parser.parse_args().check
    found, wrong = rows(), False
    for passes, stated in (("forward", MASKED.forward), ("backward", MASKED.backward)):
        by_source = cycles(found, passes)
        rate = fitted(by_source, passes)
        wrong |= abs(rate / stated - 1.0) > 0.005
        print(f"{passes}: {rate:.0f} operations a cycle at heads of 128, {stated:.0f} stated")
        for source, mine in by_source.items():
            others = {one: value for one, value in by_source.items() if one != source}
            off = f"{geometric_mean(others.values()) / mine - 1.0:+.0%} left out" if others else ""
            print(f"  {mine:6.2f} cycles a score  {off:14}  {source}")
    return int(check and wrong)


if __name__ == "__main__":
    sys.exit(main())
