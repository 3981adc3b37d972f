"""The flags of a scenario, made of the one list of its fields, for every command that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from perfsim.cli.completion import COMPLETIONS
from perfsim.cli.flags import JsonFlag, OutFlag, ProfilesFlag, flag_of, setting_of
from perfsim.cli.origin import note_file_fields
from perfsim.data.files import as_written
from perfsim.errors import RequestError, shown, spelled, spelling
from perfsim.note import warning
from perfsim.scenario import SCENARIO_FIELDS, ScenarioField

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog

__all__ = [
    "SHARED_FLAGS",
    "ScenarioFlags",
    "command_of",
    "field_flags",
    "scenario_command",
    "scenario_fields",
    "split_settings",
]

SHARED_FLAGS = ("file", "set_", "scenario", "profiles", "out", "json")
"""What every command with a scenario takes besides the flags of its fields."""


class ScenarioFlags(NamedTuple):
    """The flags of a scenario as they were given.

    Parameters
    ----------
    flags : by field; None where it was not given
    pairs : the settings NAME=VALUE of ``--set``
    scenario : the file, or the name of a shipped scenario
    profiles : the folder of the user's own profiles
    """

    flags: dict[str, Any]
    pairs: list[str]
    scenario: str | None
    profiles: str | None

    def fields(self) -> tuple[dict[str, Any], list[str]]:
        """Return the scenario's fields, flags over the file's, and notes on that."""
        from perfsim.data.catalog import Catalog

        return scenario_fields(Catalog(self.profiles), self.scenario, self.flags, self.pairs)


def scenario_command(
    words: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a scenario: it is called with ``ScenarioFlags`` and the rest.

    The rest are ``out``, ``json`` and the command's own parameters.

    Parameters
    ----------
    words : the help of flags that mean something else in this command, by parameter
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = {**_field_parameters(), **_shared_parameters()}
        for name, help_ in (words or {}).items():
            shared[name] = _reworded(shared[name], help_)
        own = inspect.signature(command, eval_str=True).parameters
        added = {name: one for name, one in own.items() if name not in ("asked", *shared)}
        if "file" not in own:
            added = {"file": _FILE, **added}
        last = {name: shared.pop(name) for name in ("profiles", "out", "json")}
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)  # as Typer calls it
            for one in (*shared.values(), *added.values(), *last.values())
        ]

        def with_flags(**given: Any) -> None:
            if "file" not in own:
                given["scenario"] = _one_scenario(given.pop("file", None), given["scenario"])
            asked = ScenarioFlags(
                # A flag that may be repeated is an empty list where it was not given.
                {name: None if (value := given.pop(name)) == [] else value for name in _flagged()},
                given.pop("set_") or [],
                given.pop("scenario"),
                given.pop("profiles"),
            )
            command(asked, **given)

        return _with_parameters(with_flags, command, parameters)

    return decorate


def _with_parameters(
    made: Callable[..., None],
    command: Callable[..., None],
    parameters: Sequence[inspect.Parameter],
) -> Callable[..., None]:
    """Give a function the name and text of a command, and the parameters that Typer reads."""
    made.__doc__ = command.__doc__
    made.__name__ = command.__name__
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return made


def _one_scenario(file: str | None, scenario: str | None) -> str | None:
    """Return the scenario that was named, before the flags or by its own."""
    if file is not None and scenario is not None:
        raise RequestError("scenario", "a scenario file is given already, before the flags.")
    return scenario if file is None else file


@cache
def _flagged() -> tuple[str, ...]:
    """Return the fields that have a flag of their own: all but options, which ``--set`` gives."""
    return tuple(
        name for name, field in SCENARIO_FIELDS.items() if field.flag and name != "options"
    )


@cache
def _field_parameters() -> dict[str, inspect.Parameter]:
    """Return a command's parameter for each field that has a flag, in the order of the list."""
    with spelling(lambda field: flag_of(field, {})):
        made = [_parameter(name, field) for name, field in SCENARIO_FIELDS.items() if field.flag]
    return {one.name: one for one in made}


def _parameter(name: str, field: ScenarioField) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    kind: Any = str | None
    default = spelled(field.default) or ("" if field.value in (None, ()) else str(field.value))
    if name == "options":
        name, flag, kind, default = "set_", "--set", list[str] | None, ""
    elif field.switch:
        no = flag.replace("--", "--no-", 1)
        default = spelled(field.default) or (flag if field.value else no).removeprefix("--")
        flag, kind = f"{flag}/{no}", bool | None
    elif field.repeated:
        kind = list[str] | None
    option = typer.Option(
        flag,
        help=spelled(field.help),
        metavar=field.metavar or None,
        show_default=default or False,
        autocompletion=COMPLETIONS.get(field.complete),
    )
    return _optional(name, Annotated[kind, option])


def _shared_parameters() -> dict[str, inspect.Parameter]:
    """Return the parameters that such commands have besides fields."""
    scenario = typer.Option(
        metavar="FILE|NAME",
        help="Scenario file (TOML) or shipped scenario; flags override it.",
        autocompletion=COMPLETIONS["scenarios"],
    )
    return {
        "scenario": _optional("scenario", Annotated[str | None, scenario]),
        "profiles": _optional("profiles", ProfilesFlag),
        "out": _optional("out", OutFlag),
        "json": _optional("json", JsonFlag, default=False),
    }


def _optional(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


_FILE = _optional(
    "file",
    Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Scenario file (TOML) or shipped scenario; flags override it.",
            autocompletion=COMPLETIONS["scenarios"],
        ),
    ],
)


def field_flags(
    names: Sequence[str],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some fields: it is called with them by field, as ``given``.

    A field whose flag was not given is None.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in own.values()
            if one.name != "given"
        ]
        parameters[1:1] = [_field_parameters()[name] for name in names]

        def with_flags(**all_: Any) -> None:
            given = {name: all_.pop(name) for name in names}
            command(given=given, **all_)

        return _with_parameters(with_flags, command, parameters)

    return decorate


def _reworded(parameter: inspect.Parameter, help_: str) -> inspect.Parameter:
    """Return a parameter with another help, which says its default too."""
    from copy import copy

    kind, option = parameter.annotation.__origin__, copy(parameter.annotation.__metadata__[0])
    option.help, option.show_default = help_, False
    return parameter.replace(annotation=Annotated[kind, option])


def command_of(asked: ScenarioFlags, changes: Mapping[str, Any]) -> str:
    """Return the command that predicts a scenario as given, with some fields changed.

    Fields that are changed to their default are left out.

    Examples
    --------
    >>> asked = ScenarioFlags({"model": "gpt2", "gpus": 8, "pp": 2}, [], None, None)
    >>> command_of(asked, {"tp": 4, "pp": 1, "options": {"stage": 1}, "method": "zero"})
    'perfsim predict --model gpt2 --gpus 8 --tp 4 --method zero --set stage=1'
    """
    fields = {name: value for name, value in asked.flags.items() if value is not None}
    pairs = list(asked.pairs)
    for name, value in changes.items():
        if name == "options":
            own = [pair for pair in pairs if pair.startswith("fusion.")]
            pairs = [*own, *(f"{option}={_plain(one)}" for option, one in value.items())]
        elif value in (None, SCENARIO_FIELDS[name].value) and asked.scenario is None:
            fields.pop(name, None)
        elif value is not None:
            fields[name] = value
    words = ["perfsim", "predict"]
    words += ["--scenario", asked.scenario] if asked.scenario else []
    for name, value in fields.items():
        words += _flag_words(name, value)
    words += [word for pair in pairs for word in ("--set", pair)]
    words += ["--profiles", asked.profiles] if asked.profiles else []
    return " ".join(quote(word) for word in words)


def _flag_words(name: str, value: Any) -> list[str]:
    """Return a field as it is given on the command line."""
    flag = "--" + name.replace("_", "-")
    if SCENARIO_FIELDS[name].switch:
        return [flag if value else flag.replace("--", "--no-", 1)]
    if SCENARIO_FIELDS[name].repeated and not isinstance(value, str):
        return [word for one in value for word in (flag, str(one))]
    return [flag, _plain(value)]


def _plain(value: Any) -> str:
    several = isinstance(value, tuple | list)
    return ",".join(map(str, value)) if several else as_written(value)


def split_settings(pairs: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split ``name=value`` settings into the method's and, by ``fusion.``, the fusion policy's.

    They may also be named as a scenario file does: ``options.density``, ``fusion_options.count``.

    Raises
    ------
    RequestError
        If one is not name=value, or a name is given twice.

    Examples
    --------
    >>> split_settings(["options.density=0.01", "fusion.cycle_time=2ms"])
    ({'density': '0.01'}, {'cycle_time': '2ms'})
    """
    method: dict[str, str] = {}
    fusion: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or not value:
            raise RequestError(
                "options", f"{shown(pair)} is not name=value, such as density=0.01.", value=pair
            )
        field, name = setting_of(name)
        group = fusion if field == "fusion_options" else method
        if name in group:
            raise RequestError("options", f"{shown(name)} is given twice.", value=pair)
        group[name] = value
    return method, fusion


def scenario_fields(
    catalog: Catalog, scenario: str | None, flags: Mapping[str, Any], pairs: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario's fields, flags over those of its file, and notes on that.

    The options of a file are for the method of the file: a flag that names another method leaves
    them out.

    Parameters
    ----------
    scenario : a path, or the name of a shipped scenario
    """
    fields: dict[str, Any] = {}
    notes: list[str] = []
    if scenario is not None:
        from perfsim.scenario_file import read_fields

        _refuse_model(scenario, catalog)
        path = catalog.scenario(scenario)
        fields = read_fields(path)
        if "beside" in fields:
            from perfsim.conditions.spec import full_paths

            fields["beside"] = full_paths(path, fields["beside"])
        own = fields.get("method", SCENARIO_FIELDS["method"].value)
        if flags.get("method") not in (None, own) and fields.pop("options", None):
            notes.append(warning(f"The file's options are left out: they are for {own}."))
    method, fusion = split_settings(pairs)
    given = {name: value for name, value in flags.items() if value is not None}
    if scenario is not None:
        note_file_fields(scenario, fields.keys() - given.keys())
    fields |= given
    if method:
        fields["options"] = {**fields.get("options", {}), **method}
    if fusion:
        fields["fusion_options"] = {**fields.get("fusion_options", {}), **fusion}
    return fields, notes


def _refuse_model(scenario: str, catalog: Catalog) -> None:
    """Refuse the name or file of a model in place of a scenario's.

    Raises
    ------
    RequestError
        If it is one.
    """
    if scenario.endswith(".toml") or scenario in catalog.scenarios():
        return
    from perfsim.models import is_defined

    if is_defined(scenario) or scenario.endswith(".csv"):
        why = f"{shown(scenario)} is a model; give it as `model` {scenario}."
        raise RequestError("scenario", why, value=scenario)
