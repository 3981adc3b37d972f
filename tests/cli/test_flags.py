"""How messages name the flags of a command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from perfsim.cli.flags import flag_of, flags_of
from perfsim.cli.main import COMMANDS, application
from perfsim.scenario import SCENARIO_FIELDS


def options(of: Any) -> Iterator[Any]:
    """Yield the options of a command, and of those below it."""
    yield from (one for one in of.params if one.param_type_name == "option")
    for command in getattr(of, "commands", {}).values():
        yield from options(command)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_a_command_is_named_as_it_is_written(name: str) -> None:
    made = application(name)
    flags = flags_of(made)
    command = typer.main.get_command(made).commands[name]  # type: ignore[attr-defined]
    for option in options(command):
        for flag in (*option.opts, *option.secondary_opts):
            if flag not in ("-h", "--help"):
                assert flag_of(flag.lstrip("-").replace("-", "_"), flags) == flag


def test_a_flag_of_another_command_stays_a_field() -> None:
    assert flag_of("workers", flags_of(application("sweep"))) == "--workers"
    assert flag_of("workers", flags_of(application("predict"))) == "workers"


def test_fields_of_a_scenario_are_flags_in_every_command() -> None:
    for name, field in SCENARIO_FIELDS.items():
        if name not in ("options", "fusion_options"):
            written = "--" + name.replace("_", "-") if field.flag else name
            assert flag_of(name, {}) == written
    assert flag_of("options.density", {}) == "--set density"
    assert flag_of("fusion_options.cycle_time", {}) == "--set fusion.cycle_time"
