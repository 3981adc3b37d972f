"""Print what `validate` found, in a terminal or as a page: claims, measurements, collectives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from perfsim.errors import spelled
from perfsim.report.html.figure import PALETTE
from perfsim.report.html.render import render
from perfsim.report.terminal import (
    ALL_COLUMNS,
    PAGE_COLUMNS,
    labelled,
    page_columns,
    print_lines,
    print_next,
    print_table,
)
from perfsim.units import format_bytes
from perfsim.validate.accuracy import Score
from perfsim.validate.claims import ClaimNotAsked, ClaimResult
from perfsim.validate.groups import GroupErrors, PredictedCase, RankedPairs, WayErrors
from perfsim.validate.measurements import LEFT_OUT, MeasurementsReport
from perfsim.validate.nccl.report import (
    ERRORS_OVER,
    MORE_NODES,
    ClusterErrors,
    NcclReport,
    question_names,
    questions,
)
from perfsim.validate.nccl.row import SHOWN_BANDS

__all__ = [
    "claim_rows",
    "measurements_page",
    "print_claims",
    "print_measurements",
    "print_nccl",
]


_TARGETS = "goals in limits.csv; a miss is no failure"

_MAX_REASONS = 15
"""Reasons for missing predictions that are printed."""

_MAX_BRIEF_REASONS = 3
"""The same where not everything was asked for."""

_MAX_REASON = 72
"""Columns of a reason."""

_BRIEF_GROUPS = "communication"
"""The groups that are printed where not everything was asked for."""

_MAX_FALLS = 12
"""Falls of measured curves that are printed."""

_MAX_FIGURES = 8
"""Settings of a claim whose figures are all printed."""

_HEAD = ["group", "way", "rows", "median", "p90", "worst", "bias", "in 90 %", "half width"]
"""Columns of a group of cases: its name, how they were asked, how many, then shares."""

_PLOT_SIDE, _PLOT_MARGIN = 520, 80
"""Of the plot of measured against predicted values [px]."""

_SOURCE_COLOURS = tuple(PALETTE.values())


def claim_rows(results: Sequence[ClaimResult | ClaimNotAsked]) -> list[dict[str, str]]:
    """Return a row for each claim: the paper's figure, ours, how they compare, and the setting."""
    return [
        _not_asked_row(result) if isinstance(result, ClaimNotAsked) else _claim_row(result)
        for result in results
    ]


def _claim_row(result: ClaimResult) -> dict[str, str]:
    claim = result.claim
    return {
        "claim": claim.name,
        "paper": claim.figures(),
        "perfsim": _own(result),
        "lands": result.lands(),
        "settings": str(len(result.ours)),
        "setting": result.setting,
        "not in the paper": claim.unstated,
        "software": claim.era,
        "note": claim.note,
        "why": claim.why,
    }


def _not_asked_row(claim: ClaimNotAsked) -> dict[str, str]:
    return {
        "claim": claim.name,
        "paper": claim.paper,
        "perfsim": "-",
        "lands": "not asked",
        "settings": "0",
        "setting": claim.setting,
        "not in the paper": "",
        "software": "",
        "note": claim.note,
        "why": f"missing: {claim.missing}",
    }


def print_claims(results: Sequence[ClaimResult | ClaimNotAsked], *, verbose: bool = False) -> None:
    """Print where each claim lands, our figure and the paper's.

    ``verbose``: also its setting, its software and our figure for every setting; of a claim that is
    asked of many settings, only the figures that miss the paper's.
    """
    print("No kernel, profile, network or interval is fitted to a claim")
    rows = claim_rows(results)
    if not verbose:
        print()
        for row in rows:
            lands, _, more = row["lands"].partition(", ")
            words = f"{row['claim']}: {row['perfsim']} (paper: {row['paper']})"
            for line in labelled(lands, f"{words}; {more}" if more else words, page_columns()):
                print(line)
        print_next("settings, software and reasons of each")
        return
    columns = ("claim", "paper", "perfsim", "lands", "settings")
    print_table([{column: row[column] for column in columns} for row in rows], wide=True)
    for row, result in zip(rows, results, strict=True):
        print(f"\n{row['claim']}: {row['lands']}")
        for column in ("setting", "not in the paper", "software", "note", "why"):
            if row[column]:
                print(f"  {column}: {row[column]}")
        if isinstance(result, ClaimResult) and len(result.ours) > 1:
            print(f"  {_each(result)}")


def _each(result: ClaimResult) -> str:
    """Return our figure for every setting, or, of many, for those below the paper's."""
    ours, said = result.ours, "figures"
    if len(ours) > _MAX_FIGURES:
        ours = {name: value for name, value in ours.items() if value < result.claim.paper[-1]}
        said = "figures below the paper's"
    return f"{said}: " + (", ".join(f"{name} {ours[name]:.2f}" for name in ours) or "none")


def _own(result: ClaimResult) -> str:
    unit = ".0%" if result.claim.part == "hidden" else ".2f"
    low, high, mean = (f"{value:{unit}}" for value in (result.low, result.high, result.mean))
    return mean if len(result.ours) == 1 else f"{low} to {high}, mean {mean}"


def print_measurements(
    report: MeasurementsReport,
    worse: Sequence[str] = (),
    collected: Sequence[WayErrors] = (),
    *,
    verbose: bool = False,
) -> None:
    """Print the errors by way of asking and, where it matters, by group.

    Parameters
    ----------
    worse : which groups are worse than the stored record
    collected : the stored errors of all collected rows, more than ship
    verbose : print all groups and figures, and why cases are not predicted
    """
    if not verbose:
        _print_brief(report, worse, collected)
        return
    cases = len({row.case.id for row in report.rows})
    print(
        f"{cases} measured values predicted; errors are those of the time:"
        " predicted / measured - 1, or for a rate measured / predicted - 1"
    )
    print("  blind       model, GPU, network and method by name")
    print("  rated       besides with the source's own time on one GPU or one node")
    print("  calibrated  besides with the cluster's own microbenchmarks or calibrating rows")
    print("rank corr.: rank correlation of the half width of the intervals and the error")
    print("alike: every source weighs the same; ranked: pairs over 10 % apart in the right order")
    print_table([_way_line(*found) for found in report.ways.values()], wide=True)
    if collected:
        print("\nall collected rows, as last stored (the licences of some do not let them ship)")
        print_table([_way_line(*found) for found in collected], wide=True)
    for by, table in report.group_tables.items():
        if not table:
            continue
        print(f"\nby {by}" + (" (parts of an iteration, counted apart)" if by == "phase" else ""))
        names = [errors.name for errors in table]
        print_table(
            [
                _line("" if index and names[index - 1] == errors.name else errors.name, errors)
                for index, errors in enumerate(table)
            ],
            wide=True,
        )
    if report.missed:
        print(f"\ntargets missed ({_TARGETS})")
        for miss in report.missed:
            print(f"  {miss.group}: {miss.figure} {miss.found:.1%}, target {miss.limit:.0%}")
    if worse:
        print("\nworse than the stored record")
        for sentence in worse:
            print(f"  {sentence}")
    _print_left(report, _MAX_REASONS)
    _print_bad(report)
    _print_notices(report)


def _print_notices(report: MeasurementsReport) -> None:
    """Print what the licences of the rows ask to be said."""
    if report.notices:
        print()
    for notice in report.notices:
        print(notice)


def _print_brief(
    report: MeasurementsReport, worse: Sequence[str], collected: Sequence[WayErrors]
) -> None:
    """Print the errors by way of asking and by what communication matters, and what is counted."""
    cases = len({row.case.id for row in report.rows})
    print_lines(
        [
            f"{cases} measured values predicted; errors are those of the time."
            " blind: by names alone; rated: given the source's time on one GPU or node;"
            " calibrated: given the cluster's own measurements. inside: the share of rows within"
            " their 90 % interval.",
            "",
        ],
        rest="",
        most=PAGE_COLUMNS,
    )
    print_table([_brief_line("all", found[0]) for found in report.ways.values()])
    if collected:
        print("\nall collected rows, as last stored (the licences of some do not let them ship)")
        print_table([_brief_line("all", found[0]) for found in collected])
    tables = report.group_tables
    if tables.get(_BRIEF_GROUPS):
        print()
        print_table([_brief_line(_short_group(one.name), one) for one in tables[_BRIEF_GROUPS]])
    if report.missed:
        print(f"\n{len(report.missed)} targets missed ({_TARGETS})")
    if worse:
        print_lines(["", "worse than the stored record", *worse], most=PAGE_COLUMNS)
    _print_left(report, _MAX_BRIEF_REASONS)
    _print_bad(report)
    _print_notices(report)
    others = [f"by {by}" for by, table in tables.items() if table and by != _BRIEF_GROUPS]
    print_next(", ".join([*others, "reasons"]))


def _brief_line(name: str, errors: GroupErrors) -> dict[str, str]:
    """Return the line of a group in seven columns."""
    return {
        "group": name,
        "way": str(errors.way),
        "rows": str(errors.score.count),
        "median": _percent(errors.score.median),
        "p90": _percent(errors.score.p90),
        "bias": _percent(errors.bias),
        "inside": _percent(errors.coverage),
    }


def _short_group(name: str) -> str:
    return f"communication {name.partition(' (')[0]}"


def _print_left(report: MeasurementsReport, most: int) -> None:
    """Print what is missing to predict cases, and why others are left out, ``most`` lines each."""
    waiting, not_predicted = report.missing(), report.reasons()
    not_asked = Counter(str(way) for _, way in report.not_asked).most_common()
    lists = {
        f"not asked, since {LEFT_OUT}": not_asked,
        f"{sum(rows for _, rows in waiting)} values wait for what perfsim lacks": waiting,
        f"{sum(rows for _, rows in not_predicted)} values not predicted": not_predicted,
    }
    for title, reasons in lists.items():
        if not reasons:
            continue
        print(f"\n{title}")
        for reason, rows in reasons[:most]:
            short = reason if len(reason) <= _MAX_REASON else reason[: _MAX_REASON - 3] + "..."
            print(f"  {rows:4} {short}")
        if len(reasons) > most:
            print(spelled(f"  and {len(reasons) - most} more reasons (`json` lists all)"))


def _print_bad(report: MeasurementsReport) -> None:
    """Print which rows are damaged."""
    if report.bad:
        print(f"\n{len(report.bad)} bad rows are left out")
        for error in report.bad[:_MAX_REASONS]:
            print(f"  {error}")
        if len(report.bad) > _MAX_REASONS:
            print(spelled(f"  and {len(report.bad) - _MAX_REASONS} more (`json` lists all)"))


def _line(name: str, errors: GroupErrors) -> dict[str, str]:
    return dict(zip(_HEAD, _group_cells(name, errors), strict=True))


def _way_line(errors: GroupErrors, pairs: RankedPairs, width_rank: float | None) -> dict[str, str]:
    """Return the line of a way: rows weighing alike, sources weighing alike, ranking."""
    alike = errors.alike
    return {
        "way": str(errors.way),
        "rows": str(errors.score.count),
        "sources": str(errors.sources),
        "median": _percent(errors.score.median),
        "p90": _percent(errors.score.p90),
        "bias": _percent(errors.bias),
        "in 90 %": _percent(errors.coverage),
        "half width": _percent(errors.half_width),
        "rank corr.": "-" if width_rank is None else f"{width_rank:.2f}",
        "alike: median": _percent(alike.median),
        "p90 ": _percent(alike.p90),
        "bias ": _percent(alike.bias),
        "in 90 % ": _percent(alike.coverage),
        "ranked": f"{pairs.right} of {pairs.pairs}",
    }


class _GridLine(NamedTuple):
    """A line up and a line across at one value, ``at`` pixels from the lower left corner."""

    at: float
    text: str


class _Dot(NamedTuple):
    """One case: how far across its measured value is and how far up its predicted one [px]."""

    x: float
    y: float
    colour: str
    text: str


class _Plot(NamedTuple):
    """Measured against predicted values, both logarithmic, a colour a source."""

    grid: list[_GridLine]
    dots: list[_Dot]
    sources: dict[str, str]
    side: int = _PLOT_SIDE
    margin: int = _PLOT_MARGIN
    label: str = (
        "Measured (across) and predicted (up) values in their metric's unit; equal on the line."
    )


class _ScoreTable(NamedTuple):
    """Errors by group."""

    title: str
    rows: list[list[str]]


def measurements_page(report: MeasurementsReport) -> str:
    """Return ``validate measurements`` as one HTML page, as text."""
    pairs, right = report.ranking()
    ways = [_group_cells("whole iterations", way.errors) for way in report.ways.values()]
    tables = [_ScoreTable("By way of asking", ways)]
    tables += [
        _ScoreTable(f"By {by}", [_group_cells(errors.name, errors) for errors in table])
        for by, table in report.group_tables.items()
        if table
    ]
    return render(
        "measurements.html.j2",
        title="Predicted beside measured",
        count=len({row.case.id for row in report.rows}),
        pairs=pairs,
        right=right,
        missed=[
            f"{one.group}: {one.figure} {one.found:.1%}, its target is {one.limit:.0%}"
            for one in report.missed
        ],
        plot=_plot(report.whole),
        head=_HEAD,
        tables=tables,
        missing=report.missing(),
        notices=report.notices,
    )


def _group_cells(name: str, errors: GroupErrors) -> list[str]:
    """Return a group's name, way, how many cases it has, then its figures in per cent."""
    size = errors.score
    shares = (size.median, size.p90, size.worst, errors.bias, errors.coverage, errors.half_width)
    return [name, errors.way or "", str(size.count), *map(_percent, shares)]


def _plot(rows: Sequence[PredictedCase]) -> _Plot | None:
    """Return measured against predicted; None where there is no positive value.

    Rates are drawn as rates; the line of equality is the same for every metric.
    """
    points = [row for row in rows if row.case.value * row.predicted > 0]
    if not points:
        return None
    ends = [math.log10(value) for row in points for value in (row.case.value, row.predicted)]
    low, high = math.floor(min(ends)), math.ceil(max(ends))
    sources = sorted({row.case.group for row in points})
    colours = {
        name: _SOURCE_COLOURS[index % len(_SOURCE_COLOURS)] for index, name in enumerate(sources)
    }

    def pixels(value: float) -> float:
        return (math.log10(value) - low) / max(1, high - low) * _PLOT_SIDE

    return _Plot(
        [_GridLine(pixels(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1)],
        [
            _Dot(
                pixels(row.case.value),
                pixels(row.predicted),
                colours[row.case.group],
                f"{row.case.id}: {row.case.metric} measured {row.case.value:g}, predicted"
                f" {row.predicted:.4g}, error of the time {row.error:+.1%}",
            )
            for row in points
        ],
        colours,
    )


def print_nccl(report: NcclReport, *, verbose: bool = False) -> None:
    """Print the errors by question and missed targets.

    ``verbose``: also what other predictions would have missed, errors by cluster, and curves that
    fall.
    """
    clusters = len({cluster for cluster, _ in report.curves})
    most = ALL_COLUMNS if verbose else PAGE_COLUMNS
    print_lines(
        [
            f"{len(report.curves)} measured curves of {clusters} clusters; errors are"
            " |predicted / measured - 1|"
        ],
        most=most,
    )
    for module in questions().values():
        names = ", ".join(module.LIMITS)
        print_lines([f"{names}: {module.QUESTION}"], "  ", "    ", most)
    print()
    if not verbose:
        columns = ("question", "rows", "median", "p90", "worst", "plain ring")
        rows = [_row(report, one, report.score(one)) for one in question_names() if one != "choice"]
        print_table([{column: row[column] for column in columns} for row in rows])
        _print_targets(report)
        print_next("by size and cluster, against other predictions, curves that fall")
        return
    print_table(_questions(report), wide=True)
    _families(report)
    _choice(report)
    rows = [_cluster(errors) for errors in report.clusters()]
    if rows:
        print("\nby cluster (median / p90; for comparison, a plain alpha-beta fit of a ring)")
        print_table(rows, wide=True)
    _falls(report)
    _print_targets(report)


def _print_targets(report: NcclReport) -> None:
    """Print which targets are missed."""
    misses = report.misses()
    print()
    if misses:
        print("targets missed")
        print_lines(misses, "  - ", "    ", PAGE_COLUMNS)
    else:
        print_lines(["all targets that these curves can test are reached"], most=PAGE_COLUMNS)


def _families(report: NcclReport) -> None:
    families = report.families(MORE_NODES)
    if families:
        largest, rows = next(iter(families.items()))
        print(
            f"\n{rows:,} of {sum(families.values()):,} rows extrapolated to more nodes are of one"
            f" family of clusters, {largest}"
        )


def _questions(report: NcclReport) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for question in question_names():
        if question == "choice":
            continue
        score = report.score(question)
        rows.append(_row(report, question, score))
        for name, other in report.others(question).items():
            row = {"question": f"  {name}", "rows": str(other.count), **_numbers(other)}
            row["target"] = _no_worse(question, name)
            rows.append({column: row.get(column, "") for column in rows[0]})
    return rows


def _row(report: NcclReport, question: str, score: Score) -> dict[str, str]:
    bands = {name: _two(report.score(question, name)) for name, _ in SHOWN_BANDS}
    limits = {}
    for module in questions().values():
        limits.update(module.LIMITS.get(question, {}))
    return {
        "question": question,
        "rows": str(score.count),
        **_numbers(score),
        **bands,
        "plain ring": _two(report.plain(question)),
        "target": ", ".join(
            f"{what} {limit:.0%}" for what, limit in limits.items() if ERRORS_OVER not in what
        ),
    }


def _no_worse(question: str, name: str) -> str:
    """Say which other prediction this one must not be worse than, and by which figures."""
    over: dict[str, list[str]] = {}
    for module in questions().values():
        for what in module.LIMITS.get(question, {}):
            names, _, part = what.partition(", ")
            one, _, other = names.partition(ERRORS_OVER)
            if other and one == name:
                over.setdefault(other, []).append(part)
    return "; ".join(f"{', '.join(parts)} at most of {other}" for other, parts in over.items())


def _numbers(score: Score) -> dict[str, str]:
    return {
        "median": _percent(score.median),
        "p90": _percent(score.p90),
        "worst": _percent(score.worst),
    }


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _two(score: Score) -> str:
    if score.median is None or score.p90 is None:
        return "-"
    return f"{score.median:.1%} / {score.p90:.0%}"


def _choice(report: NcclReport) -> None:
    choice = report.choice()
    count = choice.count
    if choice.regret_median is None:
        print("\nchoice: not tested, as no curves have ring and tree each fixed")
        return
    smallest = min(row.size_bytes for row in report.of("choice"))
    print(
        f"\nchoice: the faster of ring and tree named in {choice.right} of {count} sizes"
        f" ({choice.right / count:.0%}; target 90%), regret median {choice.regret_median:.1%};"
        f" always ring: {choice.always_ring_right} of {count};"
        f" NCCL's own tuner: {choice.tuner_right} of {count}"
    )
    if choice.always_ring_right >= 0.9 * count:
        print(
            f"  these curves start at {format_bytes(smallest)}, where ring nearly always wins, so"
            " they do not test the choice. The tuner itself is tested against worked values of"
            " its published formula."
        )


def _cluster(errors: ClusterErrors) -> dict[str, str]:
    return {
        "cluster": errors.cluster,
        "question": errors.question,
        "rows": str(errors.score.count),
        **_numbers(errors.score),
        **{name: _percent(errors.bands[name].median) for name, _ in SHOWN_BANDS},
        "plain ring": _percent(errors.plain_median),
    }


def _falls(report: NcclReport) -> None:
    falls = sorted(report.falls(), key=lambda fall: -fall.drop)
    if not falls:
        return
    print(
        f"\n{len(falls)} places where a measured time falls by more than 10 % as size grows. They"
        " are kept and interpolated as measured; no model whose time grows with size explains"
        " them."
    )
    for fall in falls[:_MAX_FALLS]:
        print(
            f"  - {fall.cluster}: {fall.curve}: -{fall.drop:.0%} from"
            f" {format_bytes(fall.from_bytes)} to {format_bytes(fall.to_bytes)}"
        )
    if len(falls) > _MAX_FALLS:
        print(spelled(f"  - and {len(falls) - _MAX_FALLS} more (`json` lists all)"))
