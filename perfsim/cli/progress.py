"""The one progress bar: on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["ShowProgress", "progress"]


class ShowProgress(Protocol):
    """Shows how many are done, of how many, and which is next."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None:
        """Show it."""


@contextmanager
def progress(unit: str = "", *, every: int = 0) -> Iterator[ShowProgress]:
    """Give a function that shows progress as a bar with its rate and the time left.

    The bar appears with the first call and is gone when the work is over.

    Parameters
    ----------
    unit : what is counted, for the rate: "rows"
    every : a line of text after each so many, where standard error is no terminal; 0 is none, for
        work of a few minutes at most
    """
    if not sys.stderr.isatty():
        yield _write_lines(every)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    bar = Progress(
        BarColumn(16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
    task = bar.add_task("", total=None, rate="")

    def show(done: int, total: int, what: str = "", /) -> None:
        bar.update(task, completed=done, total=total, description=what)
        bar.update(task, rate=_rate(bar.tasks[0].speed, unit))
        bar.start()

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _rate(per_s: float | None, unit: str) -> str:
    """Return a rate in words; below one a second, as the time of each.

    Examples
    --------
    >>> _rate(1234.5, "rows"), _rate(2.5, ""), _rate(0.05, "points"), _rate(None, "rows")
    ('1,234 rows/s', '2.5/s', '20 s each', '')
    """
    if not per_s:
        return ""
    if per_s < 1.0:
        return f"{1.0 / per_s:.3g} s each"
    number = f"{per_s:,.0f}" if per_s >= 10.0 else f"{per_s:.2g}"
    return f"{number}{' ' if unit else ''}{unit}/s"


def _write_lines(every: int) -> Callable[..., None]:
    """Return a function that writes a line after each so many, and after the last."""
    last = 0

    def show(done: int, total: int, what: str = "", /) -> None:
        nonlocal last
        if every and done != last and (done % every == 0 or done == total):
            sys.stderr.write(f"perfsim: {done} of {total}: {what}\n")
        last = done

    return show
