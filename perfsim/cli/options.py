"""Options that several commands share, and the scenario they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfsim.errors import RequestError
from perfsim.limits import shown

if TYPE_CHECKING:
    from perfsim.catalog import Catalog
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario

__all__ = [
    "Chakra",
    "Html",
    "Json",
    "Out",
    "Png",
    "Profiles",
    "Timeline",
    "Trace",
    "answer",
    "naming",
    "ranking_of",
    "scenario_fields",
    "settings",
]

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Profiles: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profiles", metavar="DIR", help="Folder of your own profiles, looked into first."
    ),
]
Out: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON object here.")
]
Html: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page that opens in any browser."),
]
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Also write the timeline as a Chrome trace (JSON), for ui.perfetto.dev or"
        " chrome://tracing.",
    ),
]
Chakra: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--chakra",
        metavar="FILE",
        help="Also write the steady period as an MLCommons Chakra execution trace in JSON: rank 0's"
        " tasks with what each waits for.",
    ),
]
Png: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--png",
        metavar="FILE",
        help="Also draw the timeline as a PNG (needs 'perfsim[png]' and Chrome or Chromium).",
    ),
]
Timeline: TypeAlias = Annotated[
    bool,
    typer.Option("--timeline", help="Also print the timeline as text: a line a stream."),
]


def answer(result: dict[str, Any], out: Path | None, json: bool, show: Callable[[], None]) -> None:
    """Write a result to ``out`` if that is given, then print it as JSON or as ``show`` does."""
    if out is not None:
        from perfsim.report.files import write_json

        write_json(out, result)
    if json:
        from perfsim.report.files import json_text

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
    from perfsim.scenario_file import read_file

    fields: dict[str, Any] = {}
    notes = []
    if scenario is not None:
        path = catalog.scenario(scenario)
        fields = dict(read_file(path)["scenario"])
        if "beside" in fields:
            from perfsim.conditions.job_names import found_from

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


@contextmanager
def naming(scenario: str | None) -> Iterator[None]:
    """Name the scenario file in what is refused: it may stand there rather than in a flag.

    Examples
    --------
    >>> with naming("mine.toml"):
    ...     raise RequestError("--gpus is needed.")
    Traceback (most recent call last):
    perfsim.errors.RequestError: mine.toml: --gpus is needed.
    """
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{scenario}: {error}" if scenario else str(error)) from None


def ranking_of(asked: Scenario, catalog: Catalog) -> Ranking | None:
    """Return the ranking of all methods where ``--method auto`` asks for it, else None."""
    from perfsim.methods import AUTO

    if asked.method.lower() != AUTO:
        return None
    from perfsim.cli.working import working
    from perfsim.ranking import rank

    with working() as tell:
        return rank(asked, catalog, tell)
