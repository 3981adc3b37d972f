"""The errors of predicted collectives as a person reads them in a terminal."""

from __future__ import annotations

from perfsim.report.terminal import print_rows
from perfsim.units import format_bytes
from perfsim.validate.nccl.report import OVER, Report, asked, questions
from perfsim.validate.nccl.row import BANDS
from perfsim.validate.score import Score

__all__ = ["print_validation"]

SHOWN_FALLS = 12


def print_validation(report: Report) -> None:
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


def _questions(report: Report) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for question in asked():
        if question == "choice":
            continue
        score = report.score(question)
        found.append(_row(report, question, score))
        for name, other in report.others(question).items():
            row = {"question": f"  {name}", "rows": str(other.count), **_numbers(other)}
            row["target"] = _no_worse(question, name)
            found.append({column: row.get(column, "") for column in found[0]})
    return found


def _row(report: Report, question: str, score: Score) -> dict[str, str]:
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
            f"{what} {limit:.0%}" for what, limit in limits.items() if OVER not in what
        ),
    }


def _no_worse(question: str, name: str) -> str:
    """Return which other prediction this one must not be worse than, and in what."""
    over: dict[str, list[str]] = {}
    for module in questions().values():
        for what in module.LIMITS.get(question, {}):
            names, _, part = what.partition(", ")
            one, _, other = names.partition(OVER)
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


def _choice(report: Report) -> None:
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


def _falls(report: Report) -> None:
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
        print(f"  - and {len(falls) - SHOWN_FALLS} more (--json lists all)")
