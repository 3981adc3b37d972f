"""What a prediction beside other jobs says of them: notes, and the ``beside`` block of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.conditions.job_names import label
from perfsim.plan import Plan
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.conditions.beside import Job, Meeting
    from perfsim.resolve import Resolved

__all__ = ["meeting_block", "meeting_lines", "meeting_notes"]

SAME = 1e-9
"""Relative difference that counts as none."""


def meeting_block(scenario: Mapping[str, Any], met: Meeting) -> dict[str, Any]:
    """Return how the jobs fare as plain data."""
    pairs = zip(scenario["beside"], met.others, strict=True)
    return {
        **met.own.to_dict(),
        "starts": met.starts,
        "iterations": met.iterations,
        "jobs": [{"scenario": name, **other.to_dict()} for name, other in pairs],
    }


def meeting_lines(scenario: Mapping[str, Any], met: Meeting) -> list[str]:
    """Return how much each job is slowed down, a line a job."""
    lines = [f"beside other jobs    {_fares(met.own)}"]
    for name, other in zip(scenario["beside"], met.others, strict=True):
        lines.append(f"  {label(name):18} {_fares(other)}")
    return lines


def _fares(job: Job) -> str:
    return (
        f"{job.slowdown:.2f}x as long as alone   ({format_seconds(job.iteration_s)}, alone"
        f" {format_seconds(job.alone_s)})"
    )


def meeting_notes(resolved: Resolved, plans: Sequence[Plan], met: Meeting) -> list[str]:
    """Return what was assumed of the other jobs, and how far chance decides."""
    names = [label(name) for name in resolved.scenario.beside]
    others = plans[0].beside
    if not any(plan.crossings for plan in plans):
        return ["--beside has no effect: this job sends nothing between nodes."]
    quiet = [name for name, other in zip(names, others, strict=True) if not other.crossings]
    notes = [f"{name} sends nothing between nodes, and is in nobody's way." for name in quiet]
    if len(quiet) == len(names):
        return notes
    notes += [_sharing_note(names, met), _start_note(met)]
    for name, other, one in zip(names, others, resolved.beside, strict=True):
        if len(one.method.rounds()) > 1 and other.iterations < _period(one):
            notes.append(
                f"Not all iterations of {name} are alike: it is held in those that it runs most of."
            )
    notes.append(
        "Not modelled beside other jobs: unfair shares (other round-trip times or numbers of"
        " connections), bursts that overflow a switch (incast), and jobs that share only some of"
        " the links: all of each job's traffic between nodes is on the links that are shared."
        " What-ifs and the interval leave each message the part of the link that it got."
    )
    return notes


def _period(resolved: Resolved) -> float:
    return sum(one.count * len(one.iterations) for one in resolved.method.rounds())


def _sharing_note(names: Sequence[str], met: Meeting) -> str:
    own, others = met.own, zip(names, met.others, strict=True)
    slowed = "; ".join(
        f"{name} takes {format_seconds(other.iteration_s)} an iteration, {other.slowdown:.2f} times"
        f" as long as alone ({format_seconds(other.alone_s)})"
        for name, other in others
    )
    return (
        f"Beside {' and '.join(names)} this job takes {own.slowdown:.2f} times as long as alone"
        f" ({format_seconds(own.alone_s)}); {slowed}. Messages that are between nodes at once get"
        " equal parts of the link, job by job, none more than it needs (max-min fair, as TCP flows"
        " of one round-trip time come near: Bertsekas & Gallager 1992, 6.5.2; Velho et al. 2013);"
        " latency is not shared. The S-SGD that it is held against runs beside the same jobs."
    )


def _start_note(met: Meeting) -> str:
    own = met.own
    many = f"{met.starts} starts of the jobs" if met.starts > 1 else "one start of the jobs"
    found = (
        f"The mean over {many}, spread evenly over the longest iteration, and {met.iterations}"
        " iterations of each."
    )
    if own.high_s - own.low_s <= SAME * own.high_s:
        return f"{found} Every start gives the same."
    return (
        f"{found} It depends on who began when: {format_seconds(own.low_s)} with the luckiest"
        f" start, {format_seconds(own.high_s)} with the unluckiest. Under fair sharing equal jobs"
        " stay as they began; that unfair shares part jobs that collide is shown by Rajasekaran et"
        " al. (HotNets 2022; CASSINI, NSDI 2024)."
    )
