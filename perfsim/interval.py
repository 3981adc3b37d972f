"""The 90 % interval of an iteration: what moves it, and how wrong predictions of that have been.

``profiles/measurements/uncertainty.csv`` (made by ``python profiles/build/interval_record.py``)
has a row for each source of published iterations, fitted without that source, and
a row ``none`` that leaves out nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, expm1, fsum, hypot, log1p, log2, sqrt
from pathlib import Path
from typing import NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.quantity import NumberLimit

__all__ = [
    "GRADES",
    "NO_METHOD",
    "UNCERTAINTY_COLUMNS",
    "UNCERTAINTY_FILE",
    "UNCERTAINTY_PARTS",
    "UNCERTAINTY_SCHEMA",
    "UNCERTAINTY_SIDES",
    "Moves",
    "Uncertainty",
    "extra_moves",
    "of_ratio",
    "uncertainties",
]

UNCERTAINTY_SCHEMA = "perfsim/uncertainty/7"
UNCERTAINTY_FILE = "uncertainty.csv"
NO_METHOD = "none"

GRADES = {
    "compute": (
        *("given", "measured", "same_gpu", "transformer"),
        *("one_gpu", "tuned", "carried"),
    ),
    "network": ("measured", "carried", "derived", "modelled"),
    "kernels": ("measured", "modelled"),
    "hidden": ("derived", "carried", "modelled"),
}
"""The evidence for each part of an iteration's time, the strongest first.

- compute, of the single-GPU iteration: given: by the user; measured: on that GPU at that batch;
  same_gpu: on that GPU with that software, at other batches or with another update; the others are
  carried from another GPU or software. transformer: large products and attention in one
  kernel that was measured on that architecture, in half precision. tuned: software whose input and
  host keep up with the GPU, or such kernels with an attention that was not measured there, or is
  several kernels, or with experts or adapters, whose small kernels were measured on no GPU.
  carried: anything else. one_gpu: as tuned and carried, where one GPU trains alone: what slows the
  computation of several is not in it.
- network: measured curves of these ranks; curves extrapolated to them, or rates fitted on the
  cluster's own training; a node type's data sheet and what nodes of other types reach of theirs;
  the links' formulas.
- kernels that a method adds: measured on that GPU, or scaled and built from its data sheet.
- hidden, communication that computation hides and that may show: by a node type's data sheet; on a
  network with curves or rates of its own; or by the links' formulas. The order is that of what
  showed: on the first, mostly GPUs that send without their host, less than on the others."""

UNCERTAINTY_PARTS = (
    *(f"{cause}_{grade}" for cause, grades in GRADES.items() for grade in grades),
    "batch",
    "era",
    "node",
    "other",
)
"""Columns of the file: causes by evidence, then how far a prediction reaches, then what may come on
top on several GPUs.

- batch: a batch beyond those whose time is known.
- era: a method's kernels as the software eras before and after run them, where those of the era
  asked for were not measured.
- node: GPUs of a node that slow each other more, or less, than `perfsim.compute.node_load` says.
- other: what moves every iteration of several GPUs and no cause explains."""

_COUNT_COLUMNS = ("rows", "sources")
UNCERTAINTY_SIDES = ("slower", "faster")
"""Sides of an interval: measured times that are longer or shorter than predicted."""
UNCERTAINTY_COLUMNS = ("left_out", "side", *_COUNT_COLUMNS, *UNCERTAINTY_PARTS)
SIZE = NumberLimit(0.0, 10.0, "0 to 10")

Moves = Mapping[str, tuple[float, float]]
"""By part: how far the iteration's logarithm moves where that of the part moves by one,
on the faster and on the slower side."""


class Uncertainty(NamedTuple):
    """How wrong each part of predicted iterations has been.

    Parameters
    ----------
    left_out : prefix of the ids of the source that was left out of the fit; ``none``
    rows, sources : how many iterations and sources it was fitted on
    sizes : by part, its 90 % interval on the slower side, in natural logarithm
    faster : the same on the faster side; None where both are alike
    """

    left_out: str
    rows: int
    sources: int
    sizes: Mapping[str, float]
    faster: Mapping[str, float] | None = None

    def interval(self, moves: Moves, iteration_s: float) -> tuple[float, float]:
        """Return the 90 % interval of an iteration [s].

        Parts deviate independently: their contributions add in quadrature, each side by itself.

        Examples
        --------
        >>> known = Uncertainty("none", 1, 1, {"compute_given": 0.03, "other": 0.04})
        >>> low, high = known.interval({"compute_given": (1.0, 2.0), "other": (1.0, 1.0)}, 1.0)
        >>> round(low, 4), round(high, 4)
        (0.9512, 1.0748)
        >>> known = known._replace(faster={"compute_given": 0.0, "other": 0.01})
        >>> round(known.interval({"compute_given": (1.0, 2.0), "other": (1.0, 1.0)}, 1.0)[0], 4)
        0.99
        """
        faster, slower = (
            sqrt(fsum((move[side] * sizes.get(part, 0.0)) ** 2 for part, move in moves.items()))
            for side, sizes in enumerate((self._faster, self.sizes))
        )
        return iteration_s * exp(-faster), iteration_s * exp(slower)

    def reach(self, moves: Moves, other: Moves) -> float:
        """Return how much longer another prediction may be and still be as fast, a fraction.

        Both have the same parts, which deviate for both at once. So what counts is how much more
        a part moves one than the other; ``other`` moves both alike.

        Examples
        --------
        >>> known = Uncertainty("none", 1, 1, {"network_modelled": 0.5, "other": 0.1})
        >>> one = {"network_modelled": (0.2, 0.2), "other": (1.0, 1.0)}
        >>> many = {"network_modelled": (0.8, 0.8), "other": (1.0, 1.0)}
        >>> round(known.reach(one, many), 3), known.reach(one, one)
        (0.35, 0.0)
        """
        sums = 0.0
        for part, slower in self.sizes.items():
            own, its = moves.get(part, (0.0, 0.0)), other.get(part, (0.0, 0.0))
            faster = self._faster.get(part, 0.0)
            sums += max(slower * (own[1] - its[1]), faster * (its[0] - own[0]), 0.0) ** 2
        return expm1(sqrt(sums))

    @property
    def _faster(self) -> Mapping[str, float]:
        return self.sizes if self.faster is None else self.faster

    def words(self) -> str:
        """Say what the interval comes from."""
        return (
            f"The interval is made so that it holds 90 % of {self.rows} published iterations of"
            f" {self.sources} sources, by the evidence for each part"
            f" (measurements/{UNCERTAINTY_FILE})."
        )


def extra_moves(
    iteration_s: float,
    hidden_s: Mapping[str, float],
    compute: tuple[float, float],
    batch_reach: float,
    gpus: int,
    gpus_per_node: int,
) -> dict[str, tuple[float, float]]:
    """Return how far an iteration moves with what reaches beyond measurements or comes on top.

    Parameters
    ----------
    iteration_s : the iteration [s]
    hidden_s : communication that computation hides, by the grade of its evidence [s]
    compute : how far it moves with computation, on the faster and on the slower side
    batch_reach : ln of how many times the batch is larger, or smaller, than any that is known
    gpus, gpus_per_node : of the job, and of its fullest node

    Examples
    --------
    >>> extra_moves(0.1, {}, (1.0, 1.0), 0.0, 1, 1)
    {}
    >>> extra_moves(0.1, {}, (1.0, 0.5), 0.0, 8, 4)
    {'node': (2.0, 1.0), 'other': (1.0, 1.0)}
    """
    found: dict[str, tuple[float, float]] = {}
    if batch_reach:
        faster, slower = (move * log1p(batch_reach) for move in compute)
        found["batch"] = faster, slower
    if gpus == 1:
        return found
    total_s = fsum(hidden_s.values())
    for grade, part_s in hidden_s.items():
        if not part_s:
            continue
        part = f"hidden_{grade if grade in GRADES['hidden'] else 'carried'}"
        move = log1p(total_s / iteration_s) * sqrt(part_s / total_s)
        found[part] = 0.0, hypot(found.get(part, (0.0, 0.0))[1], move)
    doublings = log2(gpus_per_node)
    node = compute[0] * doublings, compute[1] * doublings
    return found | {"node": node, "other": (1.0, 1.0)}


def of_ratio(moves: Moves) -> dict[str, tuple[float, float]]:
    """Return the moves of an iteration relative to that of one GPU: computation moves both.

    Examples
    --------
    >>> of_ratio({"compute_given": (0.75, 0.5), "other": (1.0, 1.0)})
    {'compute_given': (0.5, 0.25), 'other': (1.0, 1.0)}
    >>> of_ratio({"compute_carried": (0.75, 0.5), "batch": (1.5, 1.0)})
    {'compute_carried': (0.5, 0.25), 'batch': (1.0, 0.5)}
    """
    found = dict(moves)
    for grade in GRADES["compute"]:
        part = f"compute_{grade}"
        if part in found:
            faster, slower = found[part]
            # Twice as slow: one GPU's iteration grows by all of it, so the ratio falls.
            found[part] = (max(0.0, 1.0 - slower), max(0.0, 1.0 - faster))
            if "batch" in found and slower:
                reach = found["batch"][1] / slower
                found["batch"] = reach * found[part][0], reach * found[part][1]
    return found


def uncertainties(catalog: Catalog) -> Mapping[str, Uncertainty]:
    """Return the rows of the file in the catalog by source left out; none where there is no file.

    Raises
    ------
    DataError
        If the file is damaged.
    """

    def found() -> Mapping[str, Uncertainty]:
        path = catalog.beside("measurements", "", UNCERTAINTY_FILE)
        return {} if path is None else _read(path)

    return catalog.once(("uncertainties", UNCERTAINTY_FILE), found)


def _read(path: Path) -> Mapping[str, Uncertainty]:
    found: dict[str, Uncertainty] = {}
    for row, cells in read_table(path, UNCERTAINTY_SCHEMA, UNCERTAINTY_COLUMNS):
        rows, sources = (
            int(cell_number(cells[name], name, path, row, positive=True, whole=True))
            for name in _COUNT_COLUMNS
        )
        sizes = {
            part: cell_number(cells[part], part, path, row, within=SIZE)
            for part in UNCERTAINTY_PARTS
        }
        check_word(cells["side"], UNCERTAINTY_SIDES, "side", path, row)
        for name in cells["left_out"].split():
            one = found.get(name, Uncertainty(name, rows, sources, {}, {}))
            slower = cells["side"] == "slower"
            found[name] = one._replace(sizes=sizes) if slower else one._replace(faster=sizes)
    return found
