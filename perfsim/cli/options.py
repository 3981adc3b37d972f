"""Options that several commands share, and the scenario they describe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import typer

from perfsim.errors import RequestError, shown

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario

__all__ = [
    "BackgroundFlag",
    "BesideFlag",
    "ChakraFlag",
    "HtmlFlag",
    "JitterFlag",
    "JsonFlag",
    "OutFlag",
    "PngFlag",
    "ProfilesFlag",
    "ReportProgress",
    "SeedFlag",
    "StragglerFlag",
    "TimelineFlag",
    "TraceFlag",
    "answer",
    "complete_fusions",
    "complete_gpus",
    "complete_methods",
    "complete_models",
    "complete_networks",
    "complete_scenarios",
    "complete_things",
    "naming",
    "progress",
    "ranking_of",
    "scenario_fields",
    "settings",
]


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Complete a model's name."""
    from perfsim.data.catalog import Catalog

    return _starting(list({stem.split(".")[0] for stem in Catalog().files("models")}), incomplete)


def complete_gpus(incomplete: str) -> list[str]:
    """Complete a GPU's name."""
    from perfsim.data.catalog import Catalog

    return _starting(list(Catalog().files("devices")), incomplete)


def complete_networks(incomplete: str) -> list[str]:
    """Complete a network's name."""
    from perfsim.data.catalog import Catalog

    return _starting(list(Catalog().files("networks")), incomplete)


def complete_methods(incomplete: str) -> list[str]:
    """Complete a method's name."""
    from perfsim.methods import method_names

    return _starting(method_names(), incomplete)


def complete_fusions(incomplete: str) -> list[str]:
    """Complete a fusion policy's name."""
    from perfsim import fusion

    return _starting(list(fusion.policy_names()), incomplete)


def complete_scenarios(incomplete: str) -> list[str]:
    """Complete a shipped scenario's name."""
    from perfsim.data.catalog import Catalog

    return _starting(list(Catalog().scenarios()), incomplete)


def complete_things(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of what ``perfsim show`` is asked for."""
    kinds = {
        "model": complete_models,
        "gpu": complete_gpus,
        "net": complete_networks,
        "method": complete_methods,
        "scenario": complete_scenarios,
    }
    complete = kinds.get(context.params.get("kind") or "")
    return complete(incomplete) if complete else []


StragglerFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPUS:FACTOR",
        help="So many GPUs that compute this many times slower: 1:1.5. May be repeated.",
    ),
]
JitterFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Standard deviation of each GPU's computation from iteration to iteration, relative:"
        " 5%.",
    ),
]
BackgroundFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Share of the network between nodes that other traffic takes: 30%."
    ),
]
BesideFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCENARIO",
        help="Another job that sends over the same links between nodes: its scenario file, or a"
        " shipped one. Says how much each slows down: bert.toml. May be repeated.",
        autocompletion=complete_scenarios,
    ),
]
SeedFlag: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Of the draws of --jitter.", show_default="0")
]


JsonFlag: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ProfilesFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profiles", metavar="DIR", help="Folder of your own profiles, looked into first."
    ),
]
OutFlag: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON object here.")
]
HtmlFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page that opens in any browser."),
]
TraceFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Also write the timeline as a Chrome trace (JSON), for ui.perfetto.dev or"
        " chrome://tracing.",
    ),
]
ChakraFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--chakra",
        metavar="FILE",
        help="Also write the steady period as an MLCommons Chakra execution trace in JSON: rank 0's"
        " tasks with what each waits for.",
    ),
]
PngFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--png",
        metavar="FILE",
        help="Also draw the timeline as a PNG (needs 'perfsim[png]' and Chrome or Chromium).",
    ),
]
TimelineFlag: TypeAlias = Annotated[
    bool,
    typer.Option("--timeline", help="Also print the timeline as text: a line a stream."),
]


def answer(result: dict[str, Any], out: Path | None, json: bool, show: Callable[[], None]) -> None:
    """Write a result to ``out`` if that is given, then print it as JSON or as ``show`` does."""
    if out is not None:
        from perfsim.report.terminal import write_json

        write_json(out, result)
    if json:
        from perfsim.report.terminal import json_text

        typer.echo(json_text(result))
    else:
        show()


def settings(pairs: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split ``name=value`` settings into the method's and, by ``fusion.``, the fusion policy's.

    Raises
    ------
    RequestError
        If one is not name=value, or a name is given twice.

    Examples
    --------
    >>> settings(["density=0.01", "fusion.cycle_time=2ms"])
    ({'density': '0.01'}, {'cycle_time': '2ms'})
    """
    method: dict[str, str] = {}
    fusion: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or not value:
            raise RequestError(f"--set: {shown(pair)} is not name=value, such as density=0.01.")
        group = fusion if name.startswith("fusion.") else method
        name = name.removeprefix("fusion.")
        if name in group:
            raise RequestError(f"--set: {shown(name)} is given twice.")
        group[name] = value
    return method, fusion


def scenario_fields(
    catalog: Catalog, scenario: str | None, flags: dict[str, Any], pairs: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario's fields, flags over file, and what is to be noted of that.

    ``scenario`` is a path or the name of a shipped scenario. A file's options are for its own
    method: a flag that names another leaves them out.
    """
    from perfsim.scenario import read_file

    fields: dict[str, Any] = {}
    notes = []
    if scenario is not None:
        path = catalog.scenario(scenario)
        fields = dict(read_file(path)["scenario"])
        if "beside" in fields:
            from perfsim.conditions.spec import found_from

            fields["beside"] = found_from(path, fields["beside"])
        own = fields.get("method", "ssgd")
        if flags.get("method") not in (None, own) and fields.pop("options", None):
            notes.append(f"The file's options are left out: they are for {own}.")
    method, fusion = settings(pairs)
    for name, value in flags.items():
        if value is not None:
            fields[name] = value
    if method:
        fields["options"] = {**fields.get("options", {}), **method}
    if fusion:
        fields["fusion_options"] = {**fields.get("fusion_options", {}), **fusion}
    return fields, notes


NO_FLAGS = ("overlap_slowdown",)
"""Fields that only scenario files have."""

OTHER_FLAGS = frozenset(
    [
        "backend",
        "budget",
        "chakra",
        "cluster",
        "collective",
        "collectives",
        "counts",
        "csv",
        "dask",
        "data",
        "dataset",
        "deadline",
        "device",
        "device_file",
        "epochs",
        "epochs_of",
        "force",
        "format",
        "fresh",
        "full",
        "gpu_power",
        "gpu_types",
        "html",
        "install_completion",
        "json",
        "kernel_budget",
        "kernels",
        "max",
        "max_size",
        "measurements",
        "methods",
        "name",
        "nets",
        "nics_per_node",
        "nodes",
        "optimizer",
        "out",
        "over",
        "patience",
        "png",
        "prices",
        "profiles",
        "ranks",
        "repeats",
        "report",
        "scenario",
        "sequence",
        "show_completion",
        "skip_bad",
        "sort",
        "timeline",
        "title",
        "tolerance",
        "trace",
        "transport",
        "workers",
    ]
)
"""Flags that are no field of a scenario, as texts of the library name them in backticks."""


def flag_of(field: str) -> str:
    """Return how the command line writes a field: ``gpus_per_node`` is ``--gpus-per-node``.

    What is neither a field of a scenario nor another flag (a key of a file) stays as it is.

    Examples
    --------
    >>> [flag_of(field) for field in ("gpus_per_node", "options.density", "vary.gpus", "alpha")]
    ['--gpus-per-node', '--set density', '--vary gpus', 'alpha']
    """
    from perfsim.scenario import FIELDS

    name, _, option = field.partition(".")
    grouped = {"options": "--set ", "fusion_options": "--set fusion.", "vary": "--vary "}
    if name in grouped:
        return f"{grouped[name]}{option}".strip()
    if name in NO_FLAGS or name not in {*FIELDS, *OTHER_FLAGS}:
        return field
    return "--" + name.replace("_", "-")


@contextmanager
def naming(scenario: str | None) -> Iterator[None]:
    """Name the scenario file in what is refused: it may stand there rather than in a flag.

    Examples
    --------
    >>> with naming("mine.toml"):
    ...     raise RequestError("gpus", "is needed.")
    Traceback (most recent call last):
    perfsim.errors.RequestError: mine.toml: gpus: is needed.
    """
    try:
        yield
    except RequestError as error:
        raise error.within(scenario or "") from None


def ranking_of(asked: Scenario, catalog: Catalog) -> Ranking | None:
    """Return the ranking of all methods where ``--method auto`` asks for it, else None."""
    from perfsim.methods import AUTO_METHOD

    if asked.method.lower() != AUTO_METHOD:
        return None
    from perfsim.ranking import rank

    with progress() as tell:
        return rank(asked, catalog, tell)


class ReportProgress(Protocol):
    """What is told how many are done, of how many, and what is next or was found."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None:
        """Show it."""


@contextmanager
def progress(unit: str = "", *, every: int = 0) -> Iterator[ReportProgress]:
    """Give what is told of progress: a bar with rate and time left, from the first word on.

    Parameters
    ----------
    unit : what is counted, for the rate: "rows"
    every : where standard error is no terminal, a line of text each so many; 0 is none, for what
        takes minutes at most
    """
    if not sys.stderr.isatty():
        yield _lines(every)
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

    def tell(done: int, total: int, what: str = "", /) -> None:
        bar.update(task, completed=done, total=total, description=what)
        bar.update(task, rate=_rate(bar.tasks[0].speed, unit))
        bar.start()

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()


def _rate(per_s: float | None, unit: str) -> str:
    """Return a rate in words; a slow one as the time of each.

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


def _lines(every: int) -> Callable[..., None]:
    last = 0

    def tell(done: int, total: int, what: str = "", /) -> None:
        nonlocal last
        if every and done != last and (done % every == 0 or done == total):
            sys.stderr.write(f"perfsim: {done} of {total}: {what}\n")
        last = done

    return tell
