"""Commands that ask of a scenario as ``predict`` does: with its flags, and some of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsim.cli.options import scenario_fields
from perfsim.cli.predicting import predict_command

__all__ = ["Asked", "like_predict"]

SHARED = ("set_", "scenario", "profiles", "out", "json")
"""What such a command takes of ``predict`` besides the flags that are fields of a scenario."""

NOT_TAKEN = ("html", "trace", "png")
"""What of ``predict`` is for its own output."""


@dataclass(frozen=True)
class Asked:
    """The flags of a scenario as they were given."""

    flags: dict[str, Any]
    pairs: list[str]
    scenario: str | None
    profiles: str | None

    def fields(self) -> tuple[dict[str, Any], list[str]]:
        """Return the scenario's fields, flags over file, and what is to be noted of that."""
        from perfsim.catalog import Catalog

        return scenario_fields(Catalog(self.profiles), self.scenario, self.flags, self.pairs)


def like_predict(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the flags of ``predict``; it is called with ``Asked`` and the rest.

    The rest are ``out`` and ``json``, and the parameters that ``command`` has of its own.
    """
    own = inspect.signature(command, eval_str=True).parameters
    base = inspect.signature(predict_command, eval_str=True).parameters
    flags = [name for name in base if name not in (*SHARED, *NOT_TAKEN)]
    taken = [base[name] for name in base if name not in NOT_TAKEN]
    added = [one for name, one in own.items() if name not in ("asked", *base)]
    place = next(at for at, one in enumerate(taken) if one.name == "profiles")
    parameters = [*taken[:place], *added, *taken[place:]]

    def wrapped(**given: Any) -> None:
        asked = Asked(
            {name: given.pop(name) for name in flags},
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
