"""Measured single-GPU iterations (anchors), and how the iteration time goes with the batch.

``profiles/devices/<gpu>.anchors.csv`` holds whole training iterations measured on one GPU.
``transfer`` moves profiles by them. Here they are read, those of one batch combined, and a line in
batch drawn through them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from perfsim.compute.profile import PRECISIONS
from perfsim.data.catalog import Catalog, owner_of
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
    "combined",
    "fixed_share",
    "load_anchors",
    "read_anchors",
    "rising",
]

SIMILAR_BATCHES = 2.0
"""Batches this factor apart differ by their size; closer ones are compared per sample."""

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

    ``covers`` is ``iteration`` or ``forward_backward`` (no optimizer). ``use`` says for what it
    counts: ``level`` for everything; ``ratio``, where something beside the GPU slowed it (input),
    only to compare GPUs that the same source measured; ``local``, where the machine or its
    software slowed it, for this GPU only, never against another source.
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
    path = catalog.beside("devices", gpu, ".anchors.csv")
    anchors = read_anchors(path) if path else ()
    return tuple(one for one in anchors if owner_of(one.source) not in catalog.without)


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


class GpuPrecision(NamedTuple):
    """A GPU and the precision that it computes in."""

    gpu: str
    precision: str

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.gpu} in {self.precision}"


class Ratio(NamedTuple):
    """How much longer a second GPU or precision takes than a first, and how that is known.

    ``measured`` is false where data-sheet rates alone compare the two.
    """

    value: float
    spread: float | None
    note: str
    measured: bool = True


class Estimate(NamedTuple):
    """A single-GPU iteration time [s] with its origin, and the range of batches it comes from."""

    seconds: float
    kind: Kind
    source: str
    spread: float | None = None
    extrapolated: bool = False
    notes: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def times(self, ratio: Ratio) -> Estimate:
        """Return the time at another GPU or precision; the spreads of both factors add up."""
        spreads = [spread for spread in (self.spread, ratio.spread) if spread is not None]
        return self._replace(
            seconds=self.seconds * ratio.value,
            kind="derived",
            extrapolated=self.extrapolated or not ratio.measured,
            spread=math.hypot(*spreads) if spreads else None,
            notes=(*self.notes, ratio.note),
        )


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
    )


def rising(series: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """Return times that never fall with the batch: neighbours that do are pooled (isotonic).

    Different boards or software can make a larger batch look faster. Such neighbours all take
    their geometric mean, each batch counting once.

    Examples
    --------
    >>> known = {4: Estimate(0.4, "measured", "A"), 8: Estimate(0.1, "measured", "B")}
    >>> [round(rising(known)[batch].seconds, 3) for batch in (4, 8)], rising(known)[4].kind
    ([0.2, 0.2], 'derived')
    """
    blocks: list[list[int]] = []
    levels: list[float] = []
    for batch in sorted(series):
        blocks.append([batch])
        levels.append(math.log(series[batch].seconds))
        while len(levels) > 1 and levels[-2] > levels[-1]:
            last = blocks.pop()
            blocks[-1] += last
            logs = [math.log(series[pooled].seconds) for pooled in blocks[-1]]
            levels[-2:] = [sum(logs) / len(logs)]
    result: dict[int, Estimate] = {}
    for block in blocks:
        estimate = series[block[0]]
        if len(block) > 1:
            estimate = combined([series[batch] for batch in block])
            batches = ", ".join(map(str, block))
            estimate = estimate._replace(
                kind=weakest([estimate.kind, "derived"]),
                source=f"{estimate.source}; mean of batches {batches}, where larger ones took less",
            )
        result |= dict.fromkeys(block, estimate)
    return result


def at_batch(
    what: str, series: Mapping[int, Estimate], batch: int, share: float, share_note: str
) -> Estimate:
    """Return the time at a batch: as known, or on the line through two known batches.

    Parameters
    ----------
    what : model, GPU and precision, for the note
    series : known times by batch
    share : the fixed part of the time where only one batch is known
    share_note : how ``share`` is known; "" where nothing shows it

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
        why = share_note or "no batch series of this model shows its fixed share, taken as 0"
        note = f"{what}: only batch {only} is known; {why}."
        used, extrapolated = [only], True
    else:
        above = next((i for i, known in enumerate(batches) if known > batch), len(batches))
        extrapolated = above in (0, len(batches))
        used = _pair(batches, batch) if extrapolated else batches[above - 1 : above + 1]
        low_s, high_s = (series[known].seconds for known in used)
        if extrapolated:
            end_s, end = (low_s, used[0]) if above == 0 else (high_s, used[1])
            slope = max(0.0, (high_s - low_s) / (used[1] - used[0]))
            slope = min(slope, end_s / end)  # the fixed part is not below zero
            seconds = end_s + slope * (batch - end)
        else:
            weight = (batch - used[0]) / (used[1] - used[0])
            seconds = low_s + weight * (high_s - low_s)
        how = "extended" if extrapolated else "interpolated"
        note = f"{what}: batch {batch} {how} on the line through batches {used[0]} and {used[1]}."
    spreads = [spread for known in used if (spread := series[known].spread) is not None]
    return Estimate(
        seconds,
        weakest([*(series[known].kind for known in used), "derived"]),
        "; ".join(dict.fromkeys(series[known].source for known in used)),
        max(spreads) if spreads else None,
        extrapolated,
        (note,),
        batches[0],
        batches[-1],
    )


def _pair(batches: Sequence[int], batch: int) -> list[int]:
    """Return the known batch nearest to ``batch`` and the next one that lies apart, rising.

    Two batches close together may differ by their source more than by their size.
    """
    near = min(batches, key=lambda known: abs(math.log(known / batch)))
    others = sorted(
        (known for known in batches if known != near), key=lambda known: abs(math.log(known / near))
    )
    apart = [known for known in others if max(known / near, near / known) >= SIMILAR_BATCHES]
    return sorted((near, apart[0] if apart else others[-1]))


def fixed_share(
    batch: int, known_at: Mapping[GpuPrecision, Mapping[int, Estimate]], own: GpuPrecision
) -> tuple[float, str]:
    """Return the part of an iteration at ``batch`` that does not grow with it, and how it is known.

    It comes from the line through two batches near ``batch`` on another GPU: the one with the
    nearest batches, at the same precision if any. 0 and "" where none has two batches.
    """
    series = {at: known for at, known in known_at.items() if at != own and len(known) > 1}
    if not series:
        return 0.0, ""

    def distance(at: GpuPrecision) -> tuple[bool, float, GpuPrecision]:
        distances = sorted(abs(math.log(known / batch)) for known in series[at])
        return at.precision != own.precision, distances[1], at

    best = min(series, key=distance)
    known = series[best]
    low, high = _pair(sorted(known), batch)
    slope = (known[high].seconds - known[low].seconds) / (high - low)
    fixed_s = known[low].seconds - slope * low
    share = min(1.0, max(0.0, fixed_s / (fixed_s + slope * batch)))
    return share, f"{share:.0%} of it taken as fixed, as on {best} between batches {low} and {high}"
