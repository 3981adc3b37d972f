"""Anchors: whole training iterations that others measured on one GPU, one CSV file a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfsim.catalog import Catalog
from perfsim.errors import DataError
from perfsim.limits import COUNT, SPREAD, TIME
from perfsim.profile import PRECISIONS
from perfsim.quantity import Kind
from perfsim.table import check_word, kind_of, number, read_table

__all__ = ["Anchor", "Anchors", "load_anchors", "read_anchors"]

SCHEMA = "perfsim/anchors/1"
COVERS = ("iteration", "forward_backward")
USES = ("level", "ratio", "local")
COLUMNS = (
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
    table = read_table(path, SCHEMA, COLUMNS, (gpu,))
    return tuple(_anchor(cells, path, row) for row, cells in table)


def _anchor(cells: Mapping[str, str], path: Path, row: int) -> Anchor:
    for column, allowed in (("precision", PRECISIONS), ("covers", COVERS), ("use", USES)):
        check_word(cells[column], allowed, column, path, row)
    for column in ("model", "source"):
        if not cells[column]:
            raise DataError("is empty", path=path, row=row, column=column)
    whole: dict[str, int | None] = {"sequence": None}
    for column in ("batch", "sequence"):
        if cells[column] or column == "batch":
            text = cells[column]
            whole[column] = int(
                number(text, column, path, row, positive=True, whole=True, within=COUNT)
            )
    time = cells["iteration_ms"]
    spread = cells["spread_percent"]
    return Anchor(
        cells["model"],
        cells["precision"],
        whole["batch"] or 0,
        whole["sequence"],
        number(time, "iteration_ms", path, row, positive=True, within=TIME, unit=1e-3) / 1e3,
        number(spread, "spread_percent", path, row, within=SPREAD, unit=0.01) / 100
        if spread
        else None,
        cells["framework"],
        cells["covers"],
        cells["use"],
        kind_of(cells["kind"], path, row),
        cells["source"],
        cells["note"],
    )
