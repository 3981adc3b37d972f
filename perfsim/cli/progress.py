"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from perfsim.calibrate.sweep.journal import Point
from perfsim.calibrate.sweep.sweep import Asked
from perfsim.units import format_bytes, format_seconds

__all__ = ["progress"]

EVERY = 20
"""Points between two lines, where standard error is no terminal."""


def progress(points: Sequence[Asked]) -> Callable[[Asked, Point | None], None]:
    """Return what is told of each point: a bar with the last result, or a line now and then."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    if not sys.stderr.isatty():
        return _lines(len(points))
    bar = Progress(
        BarColumn(24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=len(points))
    bar.start()

    def tell(asked: Asked, point: Point | None) -> None:
        bar.update(task, description=_words(asked, point), advance=int(point is not None))
        if bar.finished:
            bar.stop()

    return tell


def _lines(total: int) -> Callable[[Asked, Point | None], None]:
    done = 0

    def tell(asked: Asked, point: Point | None) -> None:
        nonlocal done
        if point is None:
            return
        done += 1
        if done % EVERY == 0 or done == total:
            sys.stderr.write(f"perfsim: {done} of {total}: {_words(asked, point)}\n")

    return tell


def _words(asked: Asked, point: Point | None) -> str:
    what = f"{asked.collective}, {asked.group.name}, {format_bytes(asked.size_bytes)}"
    return what if point is None else f"{what}: {format_seconds(point.median_s)}"
