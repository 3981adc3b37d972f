"""Measured single-GPU iterations (anchors), and how the iteration time goes with the batch.

``profiles/devices/<gpu>.anchors.csv`` holds whole training iterations measured on one GPU.
``transfer`` moves profiles by them. Here they are read, those of one batch combined, and a line in
batch drawn between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from perfsim.compute.profile import PRECISIONS
from perfsim.compute.software import ERAS
from perfsim.data.catalog import Catalog, owner_of
from perfsim.data.tables import cell_number, check_kind, check_word, read_table, repeat_spread
from perfsim.errors import DataError
from perfsim.quantity import COUNT_LIMIT, SPREAD_LIMIT, TIME_LIMIT, Kind, weakest
from perfsim.sums import sum_in_order

__all__ = [
    "Anchor",
    "Anchors",
    "Estimate",
    "GpuPrecision",
    "at_batch",
    "combined",
    "lawful",
    "load_anchors",
    "read_anchors",
]

_SAME_LOG = 1e-12
"""Difference of logarithms that is none."""

ANCHORS_SCHEMA = "perfsim/anchors/2"
_COVERS = ("iteration", "forward_backward")
_USES = ("level", "ratio", "local")
ANCHORS_COLUMNS = (
    "model",
    "precision",
    "batch",
    "sequence",
    "iteration_ms",
    "spread_percent",
    "framework",
    "software",
    "covers",
    "use",
    "kind",
    "source",
    "note",
)


class Anchor(NamedTuple):
    """One measured training iteration on one GPU.

    ``framework`` is the software in its source's words, ``software`` its era. ``covers`` is
    ``iteration`` or ``forward_backward`` (no optimizer). ``use`` says for what it counts: ``level``
    for everything; ``ratio``, where something beside the GPU slowed it (input), for nothing but the
    record; ``local``, where the machine or its software slowed it, for this GPU only.
    """

    model: str
    precision: str
    batch: int
    sequence: int | None
    iteration_s: float
    spread: float | None
    framework: str
    software: str
    covers: str
    use: str
    kind: Kind
    source: str
    note: str = ""


class Anchors(Mapping[str, Sequence[Anchor]]):
    """Anchors by GPU name, each file read when first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._read: dict[str, tuple[Anchor, ...]] = {}

    def __getitem__(self, gpu: str) -> tuple[Anchor, ...]:
        """Return a GPU's anchors, none where it has no file."""
        if gpu not in self._read:
            catalog = self._catalog
            self._read[gpu] = catalog.once(("anchors", gpu), lambda: load_anchors(gpu, catalog))
        return self._read[gpu]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all GPUs."""
        return iter(sorted(self._catalog.files("devices")))

    def __len__(self) -> int:
        """Return how many GPUs there are."""
        return len(self._catalog.files("devices"))


def load_anchors(gpu: str, catalog: Catalog) -> tuple[Anchor, ...]:
    """Return the anchors of a GPU by its file name, but those that the catalog leaves out.

    Examples
    --------
    >>> [anchor] = [a for a in load_anchors("v100-pcie", Catalog()) if a.model == "resnet50"]
    >>> f"{anchor.batch} images in {anchor.iteration_s * 1e3:.2f} ms"
    '64 images in 252.86 ms'
    """
    anchors = catalog.once(("all anchors", gpu), lambda: _all_anchors(gpu, catalog))
    return tuple(one for one in anchors if owner_of(one.source) not in catalog.without)


def _all_anchors(gpu: str, catalog: Catalog) -> tuple[Anchor, ...]:
    """Return the anchors of a GPU, whoever published them."""
    path = catalog.beside("devices", gpu, ".anchors.csv")
    return read_anchors(path) if path else ()


def read_anchors(path: Path) -> tuple[Anchor, ...]:
    """Read and check one file of anchors.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    gpu = path.name.removesuffix(".anchors.csv")
    table = read_table(path, ANCHORS_SCHEMA, ANCHORS_COLUMNS, (gpu,))
    return tuple(_anchor(cells, path, row) for row, cells in table)


def _anchor(cells: Mapping[str, str], path: Path, row: int) -> Anchor:
    for column, allowed in (
        ("precision", PRECISIONS),
        ("software", tuple(ERAS)),
        ("covers", _COVERS),
        ("use", _USES),
    ):
        check_word(cells[column], allowed, column, path, row)
    for column in ("model", "source"):
        if not cells[column]:
            raise DataError("is empty", path=path, row=row, column=column)
    whole: dict[str, int | None] = {"sequence": None}
    for column in ("batch", "sequence"):
        if cells[column] or column == "batch":
            text = cells[column]
            whole[column] = int(
                cell_number(text, column, path, row, positive=True, whole=True, within=COUNT_LIMIT)
            )
    time = cells["iteration_ms"]
    spread = cells["spread_percent"]
    return Anchor(
        cells["model"],
        cells["precision"],
        whole["batch"] or 0,
        whole["sequence"],
        cell_number(time, "iteration_ms", path, row, positive=True, within=TIME_LIMIT, unit=1e-3)
        / 1e3,
        cell_number(spread, "spread_percent", path, row, within=SPREAD_LIMIT, unit=0.01) / 100
        if spread
        else None,
        cells["framework"],
        cells["software"],
        cells["covers"],
        cells["use"],
        check_kind(cells["kind"], path, row),
        cells["source"],
        cells["note"],
    )


class GpuPrecision(NamedTuple):
    """A GPU and the precision that it computes in."""

    gpu: str
    precision: str

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.gpu} in {self.precision}"


class Estimate(NamedTuple):
    """A single-GPU iteration time [s] with its origin, and the range of batches it comes from.

    ``same_gpu`` says whether it is of measurements on that GPU, at that precision and with that
    software, at that batch or at others.
    """

    seconds: float
    kind: Kind
    source: str
    spread: float | None = None
    extrapolated: bool = False
    notes: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    same_gpu: bool = False


def combined(estimates: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of several measurements; their disagreement is the spread.

    Examples
    --------
    >>> both = combined([Estimate(0.1, "measured", "A"), Estimate(0.4, "measured", "B")])
    >>> round(both.seconds, 3), both.source, both.spread > 1
    (0.2, 'A; B', True)
    """
    if len(estimates) == 1:
        return estimates[0]
    seconds = [estimate.seconds for estimate in estimates]
    spreads = [repeat_spread(seconds), *(estimate.spread for estimate in estimates)]
    return Estimate(
        geometric_mean(seconds),
        weakest([estimate.kind for estimate in estimates]),
        "; ".join(dict.fromkeys(estimate.source for estimate in estimates)),
        max(spread for spread in spreads if spread is not None),
        same_gpu=all(estimate.same_gpu for estimate in estimates),
    )


def lawful(known: Sequence[tuple[int, Estimate]]) -> dict[int, Estimate]:
    """Return times by batch that never fall with it, nor rise for a sample.

    Several of one batch become their geometric mean. Different boards or software can make a larger
    batch look faster, or slower for a sample; such neighbours take the mean of their times, or of
    their times a sample (isotonic regression of the logarithms, each batch counting once).

    Examples
    --------
    >>> known = [(4, Estimate(0.4, "measured", "A")), (8, Estimate(0.1, "measured", "B"))]
    >>> [round(lawful(known)[batch].seconds, 3) for batch in (4, 8)], lawful(known)[4].kind
    ([0.2, 0.2], 'derived')
    """
    by_batch: dict[int, list[Estimate]] = {}
    for batch, estimate in known:
        by_batch.setdefault(batch, []).append(estimate)
    series = {batch: combined(by_batch[batch]) for batch in sorted(by_batch)}
    series = _pooled(series, lambda batch: 1.0, rising=True, what="took less")
    return _pooled(series, float, rising=False, what="took longer for a sample")


def _pooled(
    series: Mapping[int, Estimate], per: Callable[[int], float], *, rising: bool, what: str
) -> dict[int, Estimate]:
    """Return times whose ratio to ``per(batch)`` rises, or falls, with the batch."""
    sign = 1 if rising else -1
    blocks: list[list[int]] = []
    levels: list[float] = []
    for batch in sorted(series):
        blocks.append([batch])
        levels.append(math.log(series[batch].seconds / per(batch)))
        while len(levels) > 1 and sign * (levels[-2] - levels[-1]) > _SAME_LOG:
            last = blocks.pop()
            blocks[-1] += last
            logs = [math.log(series[pooled].seconds / per(pooled)) for pooled in blocks[-1]]
            levels[-2:] = [sum_in_order(logs) / len(logs)]
    result: dict[int, Estimate] = {}
    for block, level in zip(blocks, levels, strict=True):
        if len(block) == 1:
            result[block[0]] = series[block[0]]
            continue
        mean = combined([series[batch] for batch in block])
        batches = ", ".join(map(str, block))
        source = f"{mean.source}; mean of batches {batches}, where larger ones {what}"
        for batch in block:
            result[batch] = mean._replace(
                seconds=math.exp(level) * per(batch),
                kind=weakest([mean.kind, "derived"]),
                source=source,
            )
    return result


def at_batch(what: str, series: Mapping[int, Estimate], batch: int) -> Estimate:
    """Return the time at a batch among known ones: as known, or on the line through its neighbours.

    Parameters
    ----------
    what : model, GPU and precision, for the note
    series : known times by batch, from below ``batch`` to above it

    Examples
    --------
    >>> known = {32: Estimate(0.1, "measured", "A"), 64: Estimate(0.16, "measured", "A")}
    >>> [round(at_batch("x", known, batch).seconds, 3) for batch in (32, 48)]
    [0.1, 0.13]
    """
    batches = sorted(series)
    if batch in series:
        exact = series[batch]
        note = f"{what}: batch {batch} {exact.kind} ({exact.source})"
        if exact.spread is not None:
            note += f", +-{exact.spread:.0%}"
        return exact._replace(notes=(*exact.notes, f"{note}."), low=batch, high=batch)
    above = next(index for index, known in enumerate(batches) if known > batch)
    used = batches[above - 1 : above + 1]
    low_s, high_s = (series[known].seconds for known in used)
    weight = (batch - used[0]) / (used[1] - used[0])
    spreads = [spread for known in used if (spread := series[known].spread) is not None]
    note = f"{what}: batch {batch} on the line through batches {used[0]} and {used[1]}."
    return Estimate(
        low_s + weight * (high_s - low_s),
        weakest([*(series[known].kind for known in used), "derived"]),
        "; ".join(dict.fromkeys(series[known].source for known in used)),
        max(spreads) if spreads else None,
        notes=(*(text for known in used for text in series[known].notes), note),
        low=batches[0],
        high=batches[-1],
        same_gpu=all(series[known].same_gpu for known in used),
    )
