"""Record how far extrapolated collectives are off, which the intervals of predictions use.

    python profiles/build/growth_errors.py --data ../shared/data/nccl \
        --data ../shared/data/nccl_modern --date DATE --out profiles/networks/growth_errors.csv
    python profiles/build/growth_errors.py --data DIR [--data DIR ...] --sensitivity
    python profiles/build/growth_errors.py --data DIR [--data DIR ...] --twins

It asks the questions of `perfsim validate nccl` of the measured curves in folders. By how many
times the ranks of the measurement grow, and by band of sizes, it writes the median and 90th
percentile of the errors, and the half-width of an interval. A half-width is the 90th percentile of
|ln of predicted / measured|; a family of clusters with many rows has less weight a row (`_WEIGHT`).
It is judged on each family of clusters by the errors of the others: `coverage` says of how many
times measured the interval made so holds.

With ``--sensitivity`` it prints what the errors become where a constant of the laws is half or
twice what it is. With ``--twins`` it prints how far a reduce_scatter is from the all_gather of the
same ranks, which predictions take for one another.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from perfsim.collectives import HALVES
from perfsim.data.files import write_text
from perfsim.network import node_extrapolation, scaling_laws, tuner_fit
from perfsim.network.known import GROWTH_ERRORS_COLUMNS, GROWTH_ERRORS_SCHEMA
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import ALL, band_of
from perfsim.validate.accuracy import score
from perfsim.validate.nccl import NcclRow, scale
from perfsim.validate.nccl.report import (
    MORE_NODES,
    NcclReport,
    curves_in_folder,
    validate_nccl,
)
from perfsim.validate.node_clusters import family_of

__all__ = ["growth_table", "main", "sensitivity", "twins", "value_that_holds"]

_RATIOS = (
    ("in_range", 0),
    ("other_collective", 1),
    ("scale_2x", 2),
    ("scale_4x", 4),
    ("scale_beyond", 1024),
)
"""Question, and the largest ratio of ranks to which its errors apply; 0: between sizes."""
_SERVED = {"in_range": "as served", "other_collective": "all_reduce alone"}
"""What a prediction is made of where a question knows less, or more: points are left in, and no
small message of the other collective was measured."""
_BANDS = (ALL, "small", "middle", "large")
_NOMINAL = 0.90
"""Share of the weighted errors that a half-width holds."""
_WEIGHT = -0.5
"""Power of a family's rows that each of them weighs: a family as large as all others together does
not decide alone. Families left out, 88.9 % of the rows extrapolated to more nodes are held; with
equal rows 84.7 %, with equal families 89.5 % (0, -0.5 and -1)."""
_FEW = 20
"""Errors of a question and band below which those of the question stand in."""


class _Error(NamedTuple):
    question: str
    band: str
    family: str
    ln: float
    relative: float
    plain: float | None


def _errors(report: NcclReport) -> list[_Error]:
    series = {cluster: curve.series for cluster, curve in report.curves}
    asked = [question for question, _ in _RATIOS]
    return [_error(row, series) for row in report.rows if row.question in asked]


def _error(row: NcclRow, series: dict[str, str]) -> _Error:
    served = _SERVED.get(row.question)
    seconds = row.predicted_s if served is None else row.others[served]
    return _Error(
        row.question,
        band_of(row.size_bytes),
        family_of(series.get(row.cluster, ""), row.cluster),
        abs(log(seconds / row.measured_s)),
        abs(seconds / row.measured_s - 1.0),
        None if row.plain_s is None else abs(row.plain_s / row.measured_s - 1.0),
    )


def _half_width(errors: Sequence[_Error]) -> float:
    """Return the weighted 90th percentile of the errors in ln."""
    return value_that_holds(_NOMINAL, [(error.ln, error.family) for error in errors])


def value_that_holds(share: float, values: Sequence[tuple[float, str]]) -> float:
    """Return the value that a share of all do not exceed, each given with its group.

    A group weighs as the square root of its values.

    Examples
    --------
    >>> value_that_holds(0.9, [(0.1, "a")] * 9 + [(0.5, "b")])
    0.5
    """
    rows = Counter(group for _, group in values)
    ordered = sorted(values, key=lambda value: value[0])
    weights = np.cumsum([rows[group] ** _WEIGHT for _, group in ordered])
    index = int(np.searchsorted(weights, share * weights[-1]))
    return ordered[min(index, len(ordered) - 1)][0]


def _half_widths(errors: Sequence[_Error]) -> dict[tuple[str, str], float]:
    """Return the half-width of each question and band."""
    groups: dict[tuple[str, str], list[_Error]] = {}
    for error in errors:
        for band in (ALL, error.band):
            groups.setdefault((error.question, band), []).append(error)
    return {
        (question, band): _half_width(found if len(found) >= _FEW else groups[question, ALL])
        for (question, band), found in groups.items()
    }


def _held(errors: Sequence[_Error]) -> Iterator[tuple[_Error, bool]]:
    """Yield whether the half-width by the errors of the other families holds each error."""
    for family in sorted({error.family for error in errors}):
        others = _half_widths([error for error in errors if error.family != family])
        for error in errors:
            if error.family == family:
                wide = others.get((error.question, error.band))
                yield error, error.ln <= (others[error.question, ALL] if wide is None else wide)


def growth_table(report: NcclReport, date: str) -> str:
    """Return the errors by ratio of ranks and band of sizes as the text of the table."""
    clusters = len({cluster for cluster, _ in report.curves})
    errors = _errors(report)
    widths, held = _half_widths(errors), list(_held(errors))
    alike = [
        np.mean([inside for error, inside in held if error.family == family])
        for family in sorted({error.family for error in errors})
    ]
    carried = [inside for error, inside in held if error.question in MORE_NODES]
    families = report.families(MORE_NODES)
    largest = next(iter(families))
    lines = [
        f"# schema: {GROWTH_ERRORS_SCHEMA}",
        "# title: Errors of collectives carried to other ranks than were measured",
        f"# date: {date}",
        "# kind: measured (|predicted / measured - 1| on measured curves; half_width_ln:"
        " 90th percentile of |ln of predicted / measured|, larger families weighing less a row)",
        f"# coverage: by the other families' errors {np.mean([one for _, one in held]):.1%} of"
        f" times, {np.mean(alike):.1%} of families alike; of times carried to more nodes"
        f" {np.mean(carried):.1%}",
        f"# source: perfsim validate nccl, {len(report.curves)} curves of {clusters} clusters;"
        " in_range as served; plain a two-parameter alpha-beta ring fit on these rows",
        f"# notes: {families[largest]:,} of {sum(families.values()):,} rows extrapolated to more"
        f" nodes are of one family of clusters, {largest}",
        ",".join(GROWTH_ERRORS_COLUMNS),
    ]
    for question, ratio in _RATIOS:
        for band in _BANDS:
            found = [one for one in held if one[0].question == question]
            found = [one for one in found if band in (ALL, one[0].band)]
            if not found:
                continue
            own = score(error.relative for error, _ in found)
            plain = score(error.plain for error, _ in found if error.plain is not None)
            shares = (own.median, own.p90, widths[question, band])
            inside = np.mean([inside for _, inside in found])
            cells = [f"{share:.4f}" for share in (*shares, inside, plain.median, plain.p90)]
            lines.append(f"{question},{ratio},{band},{len(found)},{','.join(cells)}")
    return "\n".join(lines) + "\n"


_CONSTANTS: tuple[tuple[ModuleType, str], ...] = (
    (tuner_fit, "_SWITCH_PENALTY"),
    (scaling_laws, "TREE_RATE_SHARE"),
    (scaling_laws, "_FADE_LOG_SIZE"),
    (scaling_laws, "_ROUNDED_LOG_SIZE"),
    (scaling_laws, "_PIPELINED_SLOPE"),
    (scaling_laws, "_FULL_BUFFERS_BYTES"),
    (scaling_laws, "CALL_ROUNDS"),
    (scaling_laws, "SMALL_BYTES"),
    (scaling_laws, "FLOOR_BYTES"),
    (node_extrapolation, "_BUMP"),
    (node_extrapolation, "_SMALL_BYTES"),
    (node_extrapolation, "_LARGE_BYTES"),
)
"""Numbers of the laws that were chosen, or whose source leaves room."""
_FACTORS = (0.5, 2.0)
_WITHOUT = ("_SWITCH_PENALTY", "_FADE_LOG_SIZE")
"""Constants whose rule is gone with 0."""
_QUESTIONS = (*MORE_NODES, "two_nodes")
_NEAR = 4.0
"""Ratio of nodes up to which those extrapolated to fewer are separate."""


def sensitivity(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[str]:
    """Return the errors of extrapolated times with each constant times 0, 0.5, 1 and 2.

    One line a value: name, factor, and median and 90th percentile by question; the 90th percentile
    above 4 MiB at twice the nodes; and median and 90th percentile of |ln of predicted / measured|
    extrapolated to fewer nodes, down to a fourth and beyond.
    """
    lines = [f"{'constant':32} {'times':>5}  " + "  ".join(f"{one:>13}" for one in _QUESTIONS)]
    lines[0] += f"  2x above 4 MiB  {'fewer nodes':>13}  {'beyond 1/4':>13}"
    lines.append(_line("as they are", 1.0, curves))
    for module, name in _CONSTANTS:
        value = getattr(module, name)
        for factor in (0.0, *_FACTORS):
            if factor == 0.0 and name not in _WITHOUT:
                continue
            # A billionth, as a fade of no length would divide by zero.
            setattr(module, name, _times(value, factor or 1e-9))
            lines.append(
                _line(f"{module.__name__.rpartition('.')[2]} {name.strip('_')}", factor, curves)
            )
        setattr(module, name, value)
    return lines


def _times(value: Any, factor: float) -> Any:
    return tuple(factor * one for one in value) if isinstance(value, tuple) else factor * value


def _line(name: str, factor: float, curves: Sequence[tuple[str, CollectiveCurve]]) -> str:
    report = NcclReport(tuple(curves), tuple(scale.predict_rows(curves)))
    scores = [report.score(question) for question in _QUESTIONS]
    cells = [f"{one.median:>6.1%} {one.p90:>6.1%}" for one in scores]
    above = report.score("scale_2x", "above")
    fewer = _fewer_nodes(curves)
    cells.append(f"{above.p90:>14.1%}")
    for near in (True, False):
        one = score(error for ratio, error in fewer if (ratio <= _NEAR) == near)
        cells.append(f"{one.median:>6.1%} {one.p90:>6.1%}")
    return f"{name:32} {factor:>5g}  " + "  ".join(cells)


def _fewer_nodes(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[tuple[float, float]]:
    """Return (ratio of nodes, |ln error|) of times extrapolated from larger counts to smaller ones.

    The scaling law alone extrapolates them, as the scaling questions with the counts turned round.
    """
    groups: dict[tuple[object, ...], list[CollectiveCurve]] = {}
    for cluster, curve in curves:
        if curve.nodes > 1:
            shape = (cluster, curve.collective, curve.gpus_per_node)
            held = (curve.library, curve.algorithm, curve.protocol)
            groups.setdefault((*shape, *held), []).append(curve)
    found = []
    for alike in groups.values():
        for least in sorted({curve.nodes for curve in alike}):
            fitted = [curve for curve in alike if curve.nodes >= least]
            growth = scaling_laws.ScalingLaw(fitted)
            low = min(curve.size_bytes[0] for curve in fitted)
            high = max(curve.size_bytes[-1] for curve in fitted)
            found += [
                (
                    least / target.nodes,
                    abs(log(growth.seconds(target.ranks, target.nodes, size) / seconds)),
                )
                for target in alike
                if target.nodes < least
                for size, seconds in zip(target.size_bytes, target.seconds, strict=True)
                if low <= size <= high
            ]
    return found


def twins(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[str]:
    """Return how far reduce_scatters are from the all_gathers of the same ranks, a line a band.

    A line holds the band, the sizes at which both were measured, the families of clusters, and the
    half-width of an interval of one taken for the other, |ln of their times|.
    """
    groups: dict[tuple[object, ...], dict[str, CollectiveCurve]] = {}
    for cluster, curve in curves:
        if curve.collective in HALVES:
            shape = (cluster, curve.ranks, curve.nodes, curve.gpus_per_node)
            held = (curve.algorithm, curve.protocol, curve.version)
            groups.setdefault((*shape, *held), {})[curve.collective] = curve
    errors = []
    for (cluster, *_), both in groups.items():
        if both.keys() == set(HALVES):
            gather, scatter = (both[name] for name in HALVES)
            family = family_of(gather.series, str(cluster))
            errors += [
                _Error(
                    "twin", band_of(size), family, abs(log(seconds / gather.at(size))), 0.0, None
                )
                for size, seconds in zip(scatter.size_bytes, scatter.seconds, strict=True)
                if gather.inside(size)
            ]
    lines = []
    for band in _BANDS:
        found = [error for error in errors if band in (ALL, error.band)]
        if found:
            families = len({error.family for error in found})
            width = _half_width(found)
            lines.append(f"{band:7}{len(found):5} sizes {families:3} families  {width:.3f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict measured collectives and write the table of their errors."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--data", type=Path, action="append", required=True, help="folder of measured curves"
    )
    parser.add_argument("--out", type=Path, help="table to write")
    parser.add_argument("--date", help="date of the record, such as 2026-11-21")
    parser.add_argument(
        "--sensitivity", action="store_true", help="print what halves and doubles of constants do"
    )
    parser.add_argument(
        "--twins", action="store_true", help="print how far a reduce_scatter is from an all_gather"
    )
    given = parser.parse_args(arguments)
    curves = [pair for folder in given.data for pair in curves_in_folder(folder)[0]]
    if given.sensitivity:
        print("\n".join(sensitivity(curves)))
        return
    if given.twins:
        print("\n".join(twins(curves)))
        return
    if given.out is None or given.date is None:
        parser.error("give --out and --date, or --sensitivity, or --twins")
    write_text(given.out, growth_table(validate_nccl(curves), given.date))


if __name__ == "__main__":
    main()
