"""A single-GPU iteration time as known from measurements, and how it goes with the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfsim.compute.profile import PRECISIONS
from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_kind, check_word, read_table, repeat_spread
from perfsim.errors import DataError
from perfsim.quantity import COUNT_LIMIT, SPREAD_LIMIT, TIME_LIMIT, Kind, weakest

__all__ = [
    "SIMILAR_BATCHES",
    "Anchor",
    "Anchors",
    "Estimate",
    "GpuPrecision",
    "Ratio",
    "at_batch",
    "fixed_share",
    "load_anchors",
    "combined",
    "read_anchors",
    "rising",
]

ANCHORS_SCHEMA = "perfsim/anchors/1"
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
    "covers",
    "use",
    "kind",
    "source",
    "note",
)


class Anchor(NamedTuple):
    """One measured training iteration on one GPU.

    ``covers`` is ``iteration`` or ``forward_backward`` (no optimizer). ``use`` is ``level``, or
    ``ratio`` where something beside the GPU slowed it (input): then it serves only to compare
    GPUs that the same source measured; or ``local`` where the machine or its software did: then
    it holds for this GPU and is never compared with another source.
    """

    model: str
    precision: str
    batch: int
    sequence: int | None
    iteration_s: float
    spread: float | None
    framework: str
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
        """Go through the names of all GPUs."""
        return iter(sorted(self._catalog.files("devices")))

    def __len__(self) -> int:
        """Return how many GPUs there are."""
        return len(self._catalog.files("devices"))


def load_anchors(gpu: str, catalog: Catalog) -> tuple[Anchor, ...]:
    """Return the anchors of a GPU by its file name; none where no folder has any.

    Examples
    --------
    >>> [anchor] = [a for a in load_anchors("v100-pcie", Catalog()) if a.model == "resnet50"]
    >>> f"{anchor.batch} images in {anchor.iteration_s * 1e3:.2f} ms"
    '64 images in 252.86 ms'
    """
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
    for column, allowed in (("precision", PRECISIONS), ("covers", _COVERS), ("use", _USES)):
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
        cells["covers"],
        cells["use"],
        check_kind(cells["kind"], path, row),
        cells["source"],
        cells["note"],
    )


SIMILAR_BATCHES = 2.0
"""Batches this factor apart differ by their size; closer ones are compared per sample."""


class GpuPrecision(NamedTuple):
    """Where an iteration runs: a GPU and a precision."""

    gpu: str
    precision: str

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.gpu} in {self.precision}"


class Ratio(NamedTuple):
    """How much longer the second place takes than the first, and the ground for it.

    ``measured`` is false where data-sheet rates alone compare the two.
    """

    value: float
    spread: float | None
    note: str
    measured: bool = True


class Estimate(NamedTuple):
    """A single-GPU iteration time: what it is, what it rests on, and the batches behind it."""

    seconds: float
    kind: Kind
    source: str
    spread: float | None = None
    extrapolated: bool = False
    notes: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def times(self, ratio: Ratio) -> Estimate:
        """Return the time at another place, its spread that of both factors together."""
        spreads = [spread for spread in (self.spread, ratio.spread) if spread is not None]
        return self._replace(
            seconds=self.seconds * ratio.value,
            kind="derived",
            extrapolated=self.extrapolated or not ratio.measured,
            spread=math.hypot(*spreads) if spreads else None,
            notes=(*self.notes, ratio.note),
        )


def combined(same: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of several measurements, their disagreement as spread.

    Examples
    --------
    >>> both = combined([Estimate(0.1, "measured", "A"), Estimate(0.4, "measured", "B")])
    >>> round(both.seconds, 3), both.source, both.spread > 1
    (0.2, 'A; B', True)
    """
    if len(same) == 1:
        return same[0]
    mean = math.exp(sum(math.log(one.seconds) for one in same) / len(same))
    apart = repeat_spread([one.seconds for one in same])
    spreads = [spread for spread in (apart, *(one.spread for one in same)) if spread is not None]
    sources = "; ".join(dict.fromkeys(one.source for one in same))
    return Estimate(mean, weakest([one.kind for one in same]), sources, max(spreads))


def rising(series: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """Return times that never fall with the batch: neighbours that do are pooled (isotonic).

    Sources on different boards or software make a larger batch look faster. Such neighbours all
    take their geometric mean, each batch counting once.

    Examples
    --------
    >>> known = {4: Estimate(0.4, "measured", "A"), 8: Estimate(0.1, "measured", "B")}
    >>> [round(rising(known)[batch].seconds, 3) for batch in (4, 8)], rising(known)[4].kind
    ([0.2, 0.2], 'derived')
    """
    blocks: list[list[int]] = []
    level: list[float] = []
    for batch in sorted(series):
        blocks.append([batch])
        level.append(math.log(series[batch].seconds))
        while len(level) > 1 and level[-2] > level[-1]:
            last = blocks.pop()
            blocks[-1] += last
            level[-2:] = [sum(math.log(series[at].seconds) for at in blocks[-1]) / len(blocks[-1])]
    found: dict[int, Estimate] = {}
    for block in blocks:
        pooled = series[block[0]]
        if len(block) > 1:
            pooled = combined([series[at] for at in block])
            over = ", ".join(map(str, block))
            pooled = pooled._replace(
                kind=weakest([pooled.kind, "derived"]),
                source=f"{pooled.source}; mean of batches {over}, where larger ones took less",
            )
        found |= dict.fromkeys(block, pooled)
    return found


def at_batch(
    what: str, series: Mapping[int, Estimate], batch: int, share: float, shown: str
) -> Estimate:
    """Return the time at a batch from those known; ``share`` is the fixed part of a lone one.

    Examples
    --------
    >>> known = {32: Estimate(0.1, "measured", "A"), 64: Estimate(0.16, "measured", "A")}
    >>> [round(at_batch("x", known, batch, 0.0, "").seconds, 3) for batch in (16, 48, 128)]
    [0.07, 0.13, 0.28]
    """
    batches = sorted(series)
    if batch in series:
        exact = series[batch]
        note = f"{what}: batch {batch} {exact.kind} ({exact.source})"
        if exact.spread is not None:
            note += f", +-{exact.spread:.0%}"
        return exact._replace(notes=(f"{note}.",), low=batch, high=batch)
    if len(batches) == 1:
        only = batches[0]
        seconds = series[only].seconds * (share + (1 - share) * batch / only)
        why = shown or "no batch series of this model tells its fixed share, taken as 0"
        note = f"{what}: only batch {only} is known; {why}."
        used, extrapolated = [only], True
    else:
        above = next((place for place, at in enumerate(batches) if at > batch), len(batches))
        extrapolated = above in (0, len(batches))
        used = _pair(batches, batch) if extrapolated else batches[above - 1 : above + 1]
        ends = [series[at].seconds for at in used]
        slope = max(0.0, (ends[1] - ends[0]) / (used[1] - used[0]))
        anchor = 0 if above == 0 else 1
        if extrapolated:
            slope = min(slope, ends[anchor] / used[anchor])
        seconds = ends[anchor] + slope * (batch - used[anchor])
        if not extrapolated:
            weight = (batch - used[0]) / (used[1] - used[0])
            seconds = ends[0] + weight * (ends[1] - ends[0])
        way = "extended" if extrapolated else "interpolated"
        note = f"{what}: batch {batch} {way} on the line through batches {used[0]} and {used[1]}."
    spreads = [spread for at in used if (spread := series[at].spread) is not None]
    return Estimate(
        seconds,
        weakest([*(series[at].kind for at in used), "derived"]),
        "; ".join(dict.fromkeys(series[at].source for at in used)),
        max(spreads) if spreads else None,
        extrapolated,
        (note,),
        batches[0],
        batches[-1],
    )


def _pair(batches: Sequence[int], batch: int) -> list[int]:
    """Return the batch nearest to ``batch`` and the next one that is no neighbour, rising.

    Two batches close together may differ by their source more than by their size.
    """
    near = min(batches, key=lambda at: abs(math.log(at / batch)))
    others = sorted((at for at in batches if at != near), key=lambda at: abs(math.log(at / near)))
    apart = [at for at in others if max(at / near, near / at) >= SIMILAR_BATCHES]
    return sorted((near, apart[0] if apart else others[-1]))


def fixed_share(
    batch: int, others: Mapping[GpuPrecision, Mapping[int, Estimate]], place: GpuPrecision
) -> tuple[float, str]:
    """Return the part of an iteration at ``batch`` that does not grow, as other places show it.

    The line through two batches near ``batch`` of the place that comes nearest, at the same
    precision if any; 0 and no words where no place has two.
    """
    series = {at: known for at, known in others.items() if at != place and len(known) > 1}
    if not series:
        return 0.0, ""

    def distance(at: GpuPrecision) -> tuple[bool, float, GpuPrecision]:
        nearest = sorted(abs(math.log(known / batch)) for known in series[at])
        return at.precision != place.precision, nearest[1], at

    best = min(series, key=distance)
    known = series[best]
    low, high = _pair(sorted(known), batch)
    slope = (known[high].seconds - known[low].seconds) / (high - low)
    fixed_s = known[low].seconds - slope * low
    share = min(1.0, max(0.0, fixed_s / (fixed_s + slope * batch)))
    return share, f"{share:.0%} of it taken as fixed, as on {best} between batches {low} and {high}"
