r"""Record how far measured iterations of one GPU are off where they were left out, for intervals.

    python profiles/build/one_gpu_errors.py --data ../shared/data --date DATE \
        --out profiles/measurements/one_gpu_errors.csv

- ``between``, ``beyond``: batches left out of series. A series is what one source measured of a
  model on one GPU with one software, at two batches or more: the shipped anchors, and MLPerf's
  public logs of one node (derived, not verified by MLCommons). Each batch is predicted from all the
  others, and from each of them alone; ``beyond`` are those outside the known ones.
- ``carried``: sources left out. Each shipped anchor of a whole iteration is predicted without all
  that its source measured, where that leaves nothing of its model on its GPU and it is no
  transformer as its kernels were measured (grade ``one_gpu`` of perfsim.interval).

A size holds 95 % on its side, so that both hold 90 %, of ln of measured over predicted time. That
of ``beyond`` is a unit of ln(1 + ln of how many times the batch is larger, or smaller), in
quadrature with ``between``; ``carried`` has it in quadrature too. A source weighs as the square
root of its rows. Each is judged by the others: ``coverage`` is the share of its times that they
hold.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import expm1, hypot, log, log1p, sqrt
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import NamedTuple

import compute_record
from compute_record import Row
from growth_errors import value_that_holds
from perfsim.compute.anchors import Anchor, load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.transfer import kernel_profile, transfer
from perfsim.data.catalog import Catalog, owner_of
from perfsim.data.files import write_text
from perfsim.data.tables import read_table
from perfsim.prediction import predict_iteration
from perfsim.scenario import Scenario
from perfsim.session import Session

__all__ = [
    "ONE_GPU_ERRORS_COLUMNS",
    "ONE_GPU_ERRORS_SCHEMA",
    "OneGpuError",
    "batch_errors",
    "carried_errors",
    "errors_table",
    "main",
    "read_sizes",
    "sizes_of",
]

ONE_GPU_ERRORS_SCHEMA = "perfsim/one-gpu-errors/1"
ONE_GPU_ERRORS_COLUMNS = (
    *("question", "count", "sources", "median", "p90"),
    *("slower_ln", "faster_ln", "coverage"),
)
_QUESTIONS = ("between", "beyond", "carried")
_SIDE = 0.95
"""Share of the weighted errors that a size holds on its side."""

Series = Mapping[Row, Mapping[int, float]]
"""Measured times by batch [s], of a row whose own batch and time are 0."""


class OneGpuError(NamedTuple):
    """A time that was left out.

    ``reach`` is ln of how many times the batch is larger, or smaller, than all that were known; 0
    between them. ``log`` is ln of measured over predicted time.
    """

    question: str
    source: str
    reach: float
    log: float


def measured_series(data: Path, catalog: Catalog) -> Series:
    """Return measured iterations in series with two batches or more."""
    found: dict[Row, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in compute_record.rows(data, catalog):
        found[row._replace(batch=0, seconds=0.0)][row.batch].append(row.seconds)
    return {
        series: {batch: geometric_mean(times) for batch, times in sorted(by_batch.items())}
        for series, by_batch in found.items()
        if len(by_batch) > 1
    }


def _predicted_s(series: Row, known: Mapping[int, float], batch: int, catalog: Catalog) -> float:
    """Return a series' iteration at a batch [s] as predicted from those at known ones."""
    device = load_device(series.gpu, catalog)
    covers = "iteration" if series.update else "forward_backward"
    anchors = [
        Anchor(
            *(series.model, series.precision, one, series.tokens, seconds, None, ""),
            *(series.era, covers, "level", "measured", series.source),
        )
        for one, seconds in known.items()
    ]
    model, tokens = series.model, series.tokens
    profile = kernel_profile(model, device, batch, series.precision, series.era, tokens, tokens)
    found = transfer(
        *(profile, device, batch, series.precision, {series.gpu: anchors}, series.era, tokens),
        catalog=catalog,
    )
    return found.quantity.value - (0.0 if series.update else found.profile.optimizer_s)


def batch_errors(measured: Series, catalog: Catalog) -> Iterator[OneGpuError]:
    """Yield the error of each batch of each series, from all its others and from each alone."""
    for series, times in measured.items():
        source = owner_of(series.source).partition("-v")[0]  # rounds of MLPerf are one source
        for batch, seconds in times.items():
            others = {one: time for one, time in times.items() if one != batch}
            alone = [{one: time} for one, time in others.items()] if len(others) > 1 else []
            for known in [others, *alone]:
                reach = max(log(min(known) / batch), log(batch / max(known)), 0.0)
                off = log(seconds / _predicted_s(series, known, batch, catalog))
                yield OneGpuError("beyond" if reach else "between", source, reach, off)


def carried_errors(catalog: Catalog) -> Iterator[OneGpuError]:
    """Yield the errors of anchors without their source, where only other GPUs or software tell."""
    sessions: dict[str, Session] = {}
    for gpu in catalog.files("devices"):
        for anchor in load_anchors(gpu, catalog):
            if anchor.use == "ratio" or anchor.covers != "iteration":
                continue
            owner = owner_of(anchor.source)
            session = sessions.setdefault(owner, Session(without={owner}))
            scenario = Scenario(
                model=anchor.model,
                gpus=1,
                gpu=gpu,
                batch=anchor.batch,
                precision=anchor.precision,
                software=anchor.software,
                seq=anchor.sequence,
            )
            predicted = predict_iteration(scenario, session)
            moves = predicted.moves
            if "compute_one_gpu" not in moves:
                continue
            reach = expm1(moves.get("batch", (0.0, 0.0))[1])
            off = log(anchor.iteration_s / predicted.iteration_s)
            yield OneGpuError("carried", owner, reach, off)


def sizes_of(errors: Sequence[OneGpuError]) -> dict[str, tuple[float, float]]:
    """Return the sizes by question, on the slower and on the faster side."""
    found: dict[str, tuple[float, float]] = {}
    for question in _QUESTIONS:
        rows = [one for one in errors if one.question == question]
        sides = []
        for side, sign in enumerate((1.0, -1.0)):
            known = {asked: sizes[side] for asked, sizes in found.items()}
            left = [(_left(one, sign * one.log, known), one.source) for one in rows]
            sides.append(max(0.0, value_that_holds(_SIDE, left)))
        found[question] = sides[0], sides[1]
    return found


def _left(one: OneGpuError, off: float, known: Mapping[str, float]) -> float:
    """Return what is left of an error beyond what is known already, in its question's unit."""
    if one.question == "between":
        return off
    beyond = one.question == "beyond"
    before = known["between"] if beyond else known["beyond"] * log1p(one.reach)
    left = sqrt(max(0.0, max(0.0, off) ** 2 - before**2))
    return left / log1p(one.reach) if beyond else left


def _held(errors: Sequence[OneGpuError]) -> Iterator[tuple[OneGpuError, bool]]:
    """Yield whether the sizes of the other sources hold each error."""
    for source in sorted({one.source for one in errors}):
        sizes = sizes_of([one for one in errors if one.source != source])
        for one in errors:
            if one.source == source:
                own = "carried" if one.question == "carried" else "between"
                slower, faster = (
                    hypot(sizes[own][side], sizes["beyond"][side] * log1p(one.reach))
                    for side in range(2)
                )
                yield one, -faster <= one.log <= slower


def errors_table(errors: Sequence[OneGpuError], date: str) -> str:
    """Return the errors by question as the text of the table."""
    sizes, held = sizes_of(errors), list(_held(errors))
    lines = [
        f"# schema: {ONE_GPU_ERRORS_SCHEMA}",
        "# title: Errors of iterations on one GPU that were left out: batches of measured series,"
        " and all of a source",
        f"# date: {date}",
        "# kind: measured (|predicted / measured - 1|; slower_ln, faster_ln: what holds 95 % on"
        " that side, ln of measured / predicted; of beyond a unit of ln(1 + ln of the ratio of"
        " batches), in quadrature)",
        "# coverage: the share that the sizes of the other sources hold",
        "# source: python profiles/build/one_gpu_errors.py; shipped anchors, and MLPerf's public"
        " logs of one node (derived, not verified by MLCommons)",
        ",".join(ONE_GPU_ERRORS_COLUMNS),
    ]
    for question in _QUESTIONS:
        rows = [one for one in held if one[0].question == question]
        off = sorted(abs(expm1(-one.log)) for one, _ in rows)
        ninth = off[min(int(0.9 * len(off)), len(off) - 1)]
        sources = len({one.source for one, _ in rows})
        shares = median(off), ninth, *sizes[question], fmean(inside for _, inside in rows)
        cells = ",".join(f"{share:.4f}" for share in shares)
        lines.append(f"{question},{len(rows)},{sources},{cells}")
    return "\n".join(lines) + "\n"


def read_sizes(path: Path) -> dict[str, tuple[float, float]]:
    """Return the sizes of a table by question, on the slower and on the faster side.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    return {
        cells["question"]: (float(cells["slower_ln"]), float(cells["faster_ln"]))
        for _, cells in read_table(path, ONE_GPU_ERRORS_SCHEMA, ONE_GPU_ERRORS_COLUMNS)
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict measured iterations that are left out, and write the table of their errors."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of collected data")
    parser.add_argument("--out", type=Path, required=True, help="table to write")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-12-01")
    given = parser.parse_args(arguments)
    catalog = Catalog()
    errors = list(batch_errors(measured_series(given.data, catalog), catalog))
    errors += carried_errors(catalog)
    write_text(given.out, errors_table(errors, given.date))
    by_source: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for one, inside in _held(errors):
        by_source[one.question, one.source].append(inside)
    for (question, source), inside in sorted(by_source.items()):
        share = fmean(inside)
        print(f"{question:9}{source:42}{len(inside):4} rows, {share:6.1%} held by the others'")


if __name__ == "__main__":
    main()
