"""The errors of predicted measurements as a person reads them in a terminal."""

from __future__ import annotations

from perfsim.report.terminal import print_rows
from perfsim.validate.measurements.report import Report, Row, figures

__all__ = ["print_measurements"]

SHOWN_REASONS = 15
LONGEST = 90


def print_measurements(report: Report) -> None:
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
            print(f"  and {len(reasons) - SHOWN_REASONS} more reasons (--json lists all)")
    if report.notices:
        print()
    for notice in report.notices:
        print(notice)


def _line(name: str, rows: list[Row]) -> dict[str, str]:
    found = figures(rows)
    shares = ("median", "p90", "worst", "bias", "coverage", "half_width")
    return {
        "group": name,
        "rows": str(found["count"]),
        **{
            share.replace("_", " "): "-" if found[share] is None else f"{found[share]:.1%}"
            for share in shares
        },
    }
