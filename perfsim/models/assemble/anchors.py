"""The table of measured whole-model times, and memory bandwidths for the optimizer's share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfsim.compute.device import load_device
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError
from perfsim.models.assemble.tables import read_table

__all__ = ["OPTIMIZER_PASSES", "AnchorRow", "read_anchors", "read_bandwidths"]

HERE = Path(__file__).parent
OPTIMIZER_PASSES = {"sgd": 5, "adam": 7, "adamw-by-operation": 18}
"""fp32 passes over the parameters: reads weight, gradient and state, writes weight and state.

"adamw-by-operation" is huggingface/transformers' AdamW of 2020 (src/transformers/optimization.py),
an operation after the other: both moments scaled (2 each) and added to (3 each), root (2), epsilon
(2), weights (4)."""
TEXTS = ("kind", "framework", "date", "licence", "source", "notes")
COLUMNS = (
    "model",
    "gpu",
    "precision",
    "batch",
    "sequence",
    "figure_ms",
    "covers",
    "forward_ms",
    "backward_ms",
    "optimizer",
    "shape",
    "forward_shape",
    "split",
    "even_share",
    *TEXTS,
)


@dataclass(frozen=True, slots=True)
class AnchorRow:
    """One profile to build: what was measured of the whole model, and where its shape is from.

    Times in ms, None where not given. ``covers`` says what ``figure_ms`` is: the iteration, or
    forward_backward. ``shape`` is kind:name (trace, scaled-trace, modules, work);
    ``split`` is a profile's name or ``gemm`` (backward twice the forward); ``even_share`` is the
    part of the time that does not depend on a layer's work (launches, host).
    """

    model: str
    gpu: str
    precision: str
    batch: int
    sequence: str
    figure_ms: float | None
    covers: str
    forward_ms: float | None
    backward_ms: float | None
    optimizer: str
    shape: tuple[str, str]
    forward_shape: tuple[str, str] | None
    split: str
    even_share: float
    kind: str
    framework: str
    date: str
    licence: str
    source: str
    notes: str

    @property
    def name(self) -> str:
        """Stem of the profile's file."""
        return f"{self.model}.{self.gpu}.{self.precision}.b{self.batch}"


def _pair(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return kind, name


def read_anchors(path: Path | None = None) -> list[AnchorRow]:
    """Return the rows of the table; one that another takes its ``split`` from stands before it.

    Raises
    ------
    DataError
        If a row has an unknown word or an unreadable number.
    """
    path = path or HERE / "anchors.csv"
    anchors = []
    for row in read_table(path, COLUMNS):
        if row["covers"] not in ("iteration", "forward_backward"):
            raise DataError(f"{row['covers']!r} is not known", path=path, column="covers")
        if row["optimizer"] not in OPTIMIZER_PASSES:
            raise DataError(f"{row['optimizer']!r} is not known", path=path, column="optimizer")
        figure, forward, backward = (
            float(row[column]) if row[column] else None
            for column in ("figure_ms", "forward_ms", "backward_ms")
        )
        anchors.append(
            AnchorRow(
                row["model"],
                row["gpu"],
                row["precision"],
                int(row["batch"]),
                row["sequence"],
                figure,
                row["covers"],
                forward,
                backward,
                row["optimizer"],
                _pair(row["shape"]),
                _pair(row["forward_shape"]) if row["forward_shape"] else None,
                row["split"],
                float(row["even_share"] or 0.0),
                *(row[column] for column in TEXTS),
            )
        )
    return anchors


def read_bandwidths() -> dict[str, float]:
    """Return bytes a second that element-wise kernels stream, by GPU: those of the device files."""
    catalog = Catalog()
    return {
        gpu: load_device(gpu, catalog).memory_bandwidth.value for gpu in catalog.files("devices")
    }
