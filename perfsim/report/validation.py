"""The errors of predicted collectives as a person reads them in a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from perfsim.report.html import page as figure
from perfsim.report.html import page as skin
from perfsim.report.terminal import print_rows
from perfsim.units import format_bytes
from perfsim.validate.accuracy import Score
from perfsim.validate.claims import ClaimResult
from perfsim.validate.measurements import ComparedCase, MeasurementsReport, error_figures
from perfsim.validate.nccl.report import ERRORS_OVER, NcclReport, question_names, questions
from perfsim.validate.nccl.row import BANDS

__all__ = [
    "claim_rows",
    "measurements_page",
    "print_claims",
    "print_measurements",
    "print_validation",
]


def claim_rows(results: Sequence[ClaimResult]) -> list[dict[str, str]]:
    """Return one row a claim: the paper's figure, ours, and where that lands."""
    return [
        {
            "claim": result.claim.name,
            "paper": f"{result.claim.form} {_figures(result.claim.paper)}".removeprefix("range "),
            "perfsim": _own(result),
            "lands": result.lands(),
            "settings": str(len(result.ours)),
            "note": result.claim.note,
            "why": result.claim.why,
        }
        for result in results
    ]


def print_claims(results: Sequence[ClaimResult]) -> None:
    """Print one row a claim, then the figure of every setting."""
    print("Claims are shown, never fitted to: parameters come from kernels, profiles, networks")
    print_rows(claim_rows(results))
    for result in results:
        if len(result.ours) > 1:
            each = ", ".join(f"{name} {value:.2f}" for name, value in result.ours.items())
            print(f"\n{result.claim.name}: {each}")


def _figures(values: Sequence[float]) -> str:
    return " to ".join(f"{value:g}" for value in values)


def _own(result: ClaimResult) -> str:
    if len(result.ours) == 1:
        return f"{result.mean:.2f}"
    return f"{result.low:.2f} to {result.high:.2f}, mean {result.mean:.2f}"


SHOWN_REASONS = 15
LONGEST = 90


def print_measurements(report: MeasurementsReport) -> None:
    """Print one table a grouping, the ranking, and why cases are not predicted."""
    print(
        f"{len(report.rows)} measured values predicted; errors are those of the time:"
        " predicted / measured - 1, of a rate measured / predicted - 1"
    )
    print_rows([_line("all whole iterations", report.whole)])
    for by, named in report.groups().items():
        if not named:
            continue
        print(f"\nby {by}" + (" (parts of an iteration, counted apart)" if by == "phase" else ""))
        print_rows([_line(name, rows) for name, rows in sorted(named.items())])
    pairs, right = report.ranking()
    if pairs:
        print(
            f"\nranking: of {pairs} pairs of systems that measure more than 10 % apart,"
            f" {right} ({right / pairs:.0%}) are ranked right"
        )
    if report.missed:
        print("\noutside their limits")
        for miss in report.missed:
            print(f"  {miss.group}: {miss.figure} {miss.found:.1%}, limit {miss.limit:.0%}")
    reasons = report.reasons()
    if reasons:
        print(f"\n{len(report.left)} values not predicted")
        for reason, count in reasons[:SHOWN_REASONS]:
            short = reason if len(reason) <= LONGEST else reason[: LONGEST - 3] + "..."
            print(f"  {count:4} {short}")
        if len(reasons) > SHOWN_REASONS:
            print(f"  and {len(reasons) - SHOWN_REASONS} more reasons (`json` lists all)")
    if report.notices:
        print()
    for notice in report.notices:
        print(notice)


def _line(name: str, rows: list[ComparedCase]) -> dict[str, str]:
    found = error_figures(rows)
    shares = ("median", "p90", "worst", "bias", "coverage", "half_width")
    return {
        "group": name,
        "rows": str(found["count"]),
        **{
            share.replace("_", " "): "-" if found[share] is None else f"{found[share]:.1%}"
            for share in shares
        },
    }


SIDE = 520
MARGIN = 60
COLOURS = tuple(figure.COLOURS.values())
STYLE = (
    skin.STYLE
    + """
svg { width: 100%; max-width: 44em; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.axis { stroke: var(--line); stroke-width: 1; } .same { stroke: var(--ink); stroke-width: 1; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
.miss { font-weight: 600; }
"""
)
SHARES = ("median", "p90", "worst", "bias", "coverage", "half_width")


def measurements_page(report: MeasurementsReport) -> str:
    """Return the page as text."""
    tables = [_table("All whole iterations", {"all": report.whole})]
    tables += [_table(f"By {by}", named) for by, named in report.groups().items() if named]
    pairs, right = report.ranking()
    missed = "".join(
        f'<li class="miss">{escape(one.group)}: {one.figure} {one.found:.1%}, its limit is'
        f" {one.limit:.0%}</li>"
        for one in report.missed
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>perfsim: predicted beside measured</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Predicted beside measured</h1>
<p>{len(report.rows)} measured values; an error is predicted over measured time less 1. Of {pairs}
pairs of systems that measure more than 10 % apart, {right} are ranked right.</p>
{f"<h2>Outside their limits</h2><ul>{missed}</ul>" if missed else ""}
{_picture(report.whole)}
{chr(10).join(tables)}
{chr(10).join(f"<p>{escape(notice)}</p>" for notice in report.notices)}
</body>
</html>
"""


def _table(title: str, named: dict[str, list[ComparedCase]]) -> str:
    words = ("group", "rows", *(share.replace("_", " ") for share in SHARES))
    head = "".join(f'<th scope="col">{word}</th>' for word in words)
    lines = []
    for name, rows in sorted(named.items()):
        found = error_figures(rows)
        cells = [str(found["count"])]
        cells += ["-" if found[one] is None else f"{found[one]:.1%}" for one in SHARES]
        told = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><td>{escape(name)}</td>{told}</tr>")
    body = chr(10).join(lines)
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _picture(rows: Sequence[ComparedCase]) -> str:
    """Return measured against predicted, both logarithmic, a colour a source.

    Rates are drawn as what they are; the line of equality is the same for every metric.
    """
    points = [row for row in rows if row.case.value * row.predicted > 0]
    if not points:
        return ""
    ends = [math.log10(value) for row in points for value in (row.case.value, row.predicted)]
    low, high = math.floor(min(ends)), math.ceil(max(ends))
    sources = sorted({row.case.group for row in points})
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(sources)}

    def place(value: float) -> float:
        return (math.log10(value) - low) / max(1, high - low) * SIDE

    shapes = [_grid(place(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1)]
    shapes.append(f'<line class="same" x1="0" y1="{SIDE}" x2="{SIDE}" y2="0"/>')
    shapes += [
        _point(row, place(row.case.value), place(row.predicted), colour[row.case.group])
        for row in points
    ]
    shapes += [_key(name, number, colour[name]) for number, name in enumerate(sources)]
    label = "measured (across) and predicted (up) values in their metric's unit; equal on the line"
    return (
        f'<svg viewBox="-{MARGIN} -10 {SIDE + MARGIN + 130} {SIDE + MARGIN}" role="img"'
        f' aria-label="{label}">{chr(10).join(shapes)}'
        f'<text x="{SIDE / 2}" y="{SIDE + 36}" text-anchor="middle">{label}</text></svg>'
    )


def _grid(at: float, word: str) -> str:
    """Return a line up and a line across at one value, with the value beside both."""
    return (
        f'<line class="axis" x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{SIDE}"/>'
        f'<line class="axis" x1="0" y1="{SIDE - at:.1f}" x2="{SIDE}" y2="{SIDE - at:.1f}"/>'
        f'<text x="{at:.1f}" y="{SIDE + 16}" text-anchor="middle">{word}</text>'
        f'<text x="-6" y="{SIDE - at + 4:.1f}" text-anchor="end">{word}</text>'
    )


def _point(row: ComparedCase, across: float, up: float, colour: str) -> str:
    """Return a row as a dot that says what it is."""
    return (
        f'<circle cx="{across:.1f}" cy="{SIDE - up:.1f}" r="3" fill="{colour}"'
        f' fill-opacity="0.7"><title>{escape(row.case.id)}: {escape(row.case.metric)} measured'
        f" {row.case.value:g}, predicted {row.predicted:.4g}, error of the time"
        f" {row.error:+.1%}</title></circle>"
    )


def _key(name: str, number: int, colour: str) -> str:
    """Return a source's line in the key."""
    return (
        f'<circle cx="{SIDE + 20}" cy="{12 + 16 * number}" r="4" fill="{colour}"/>'
        f'<text x="{SIDE + 30}" y="{16 + 16 * number}">{escape(name)}</text>'
    )


SHOWN_FALLS = 12


def print_validation(report: NcclReport) -> None:
    """Print a table of all questions, one a cluster, what falls, and which targets are missed."""
    clusters = len({cluster for cluster, _ in report.curves})
    print(
        f"{len(report.curves)} measured curves of {clusters} clusters; errors are"
        " |predicted / measured - 1|"
    )
    for module in questions().values():
        names = ", ".join(module.LIMITS)
        print(f"  {names}: {module.QUESTION}")
    print()
    print_rows(_questions(report))
    _choice(report)
    rows = [_cluster(row) for row in report.clusters()]
    if rows:
        print("\nby cluster (median / p90; a plain alpha-beta ring fit beside it)")
        print_rows(rows)
    _falls(report)
    misses = report.misses()
    print()
    if misses:
        print("targets missed")
        for sentence in misses:
            print(f"  - {sentence}")
    else:
        print("all targets reached that these curves can tell")


def _questions(report: NcclReport) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for question in question_names():
        if question == "choice":
            continue
        score = report.score(question)
        found.append(_row(report, question, score))
        for name, other in report.others(question).items():
            row = {"question": f"  {name}", "rows": str(other.count), **_numbers(other)}
            row["target"] = _no_worse(question, name)
            found.append({column: row.get(column, "") for column in found[0]})
    return found


def _row(report: NcclReport, question: str, score: Score) -> dict[str, str]:
    bands = {name: _two(report.score(question, name)) for name, _ in BANDS}
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
    """Return which other prediction this one must not be worse than, and in what."""
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
    found = report.to_dict()["questions"]["choice"]
    count = found["count"]
    if not count:
        print("\nchoice: no curves with ring and tree each held fixed; these data cannot tell")
        return
    smallest = min(row.size_bytes for row in report.of("choice"))
    print(
        f"\nchoice: the faster of ring and tree named in {found['right']} of {count} sizes"
        f" ({found['right'] / count:.0%}; target 90%), regret median {found['regret_median']:.1%};"
        f" always ring: {found['always_ring_right']} of {count}; NCCL's own tuner:"
        f" {found['tuner_right']} of {count}"
    )
    if found["always_ring_right"] >= 0.9 * count:
        print(
            f"  these curves start at {format_bytes(smallest)}, where ring nearly always wins:"
            " they cannot tell a good choice from none. The tuner itself is tested against worked"
            " values of its published formula."
        )


def _cluster(row: dict[str, object]) -> dict[str, str]:
    bands = row["bands"]
    assert isinstance(bands, dict)
    return {
        "cluster": str(row["cluster"]),
        "question": str(row["question"]),
        "rows": str(row["count"]),
        "median": _percent(row["median"]),  # type: ignore[arg-type]
        "p90": _percent(row["p90"]),  # type: ignore[arg-type]
        "worst": _percent(row["worst"]),  # type: ignore[arg-type]
        **{name: _percent(bands[name]["median"]) for name, _ in BANDS},
        "plain ring": _percent(row["plain_median"]),  # type: ignore[arg-type]
    }


def _falls(report: NcclReport) -> None:
    falls = sorted(report.falls(), key=lambda fall: -fall["drop"])
    if not falls:
        return
    print(
        f"\n{len(falls)} places where a measured time falls by more than 10 % as size grows: kept,"
        " interpolated as measured; no model whose time grows with size explains them"
    )
    for fall in falls[:SHOWN_FALLS]:
        print(
            f"  - {fall['cluster']}: {fall['curve']}: -{fall['drop']:.0%} from"
            f" {format_bytes(fall['from_bytes'])} to {format_bytes(fall['to_bytes'])}"
        )
    if len(falls) > SHOWN_FALLS:
        print(f"  - and {len(falls) - SHOWN_FALLS} more (`json` lists all)")
