"""Commands that ask of a scenario as ``predict`` does: with its flags, and some of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from perfsim.cli.options import scenario_fields
from perfsim.cli.predicting import predict_command

__all__ = ["Asked", "like_predict"]

SHARED = ("set_", "scenario", "profiles", "out", "json")
"""What such a command takes of ``predict`` besides the flags that are fields of a scenario."""

NOT_SHARED = ("timeline", "trace", "chakra", "html", "png")
"""Flags of ``predict`` that are no fields of a scenario and that not every command has."""


@dataclass(frozen=True)
class Asked:
    """The flags of a scenario as they were given."""

    flags: dict[str, Any]
    pairs: list[str]
    scenario: str | None
    profiles: str | None

    def fields(self, **defaults: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the scenario's fields, flags over file over ``defaults``, and notes on that."""
        from perfsim.catalog import Catalog

        found, notes = scenario_fields(
            Catalog(self.profiles), self.scenario, self.flags, self.pairs
        )
        return defaults | found, notes


def like_predict(
    command: Callable[..., None], words: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Return a command with the flags of ``predict``; it is called with ``Asked`` and the rest.

    The rest are ``out`` and ``json``, and the parameters that ``command`` has of its own. ``words``
    is the help of flags that mean something else here than in ``predict``.
    """
    own = inspect.signature(command, eval_str=True).parameters
    base = inspect.signature(predict_command, eval_str=True).parameters
    # The fields are not read off Scenario: pydantic would be loaded for every --help.
    flags = [name for name in base if name not in SHARED + NOT_SHARED]
    taken = [base[name] for name in base if name in flags or name in SHARED]
    taken = [_reworded(one, (words or {}).get(one.name)) for one in taken]
    added = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        if name not in ("asked", *flags, *SHARED)
    ]
    place = next(at for at, one in enumerate(taken) if one.name == "profiles")
    # All by keyword, as Typer calls it.
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in (*taken[:place], *added, *taken[place:])
    ]

    def wrapped(**given: Any) -> None:
        asked = Asked(
            # A flag that may be repeated and is not given is an empty list.
            {name: None if (value := given.pop(name)) == [] else value for name in flags},
            given.pop("set_") or [],
            given.pop("scenario"),
            given.pop("profiles"),
        )
        command(asked, **given)

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def _reworded(parameter: inspect.Parameter, help_: str | None) -> inspect.Parameter:
    """Return a flag with another help, which tells its default too."""
    if help_ is None:
        return parameter
    kind, option = get_args(parameter.annotation)
    option = copy(option)
    option.help, option.show_default = help_, False
    return parameter.replace(annotation=Annotated[kind, option])
