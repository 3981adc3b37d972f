"""Commands with the flags of ``predict``."""

from __future__ import annotations

import inspect
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from perfsim.cli.compare import COMPARE_HELP, compare_command
from perfsim.cli.help import OVERVIEW
from perfsim.cli.main import COMMANDS, application
from perfsim.cli.predict import predict_command
from perfsim.cli.scenario_flags import SHARED_FLAGS, ScenarioFlags, scenario_command
from perfsim.scenario import SCENARIO_FIELDS

REPORTS = {"timeline", "trace", "chakra", "html", "png"}
"""Flags of ``predict`` that are no fields of a scenario and that not every command has."""


FILES = {"csv", "html", "trace", "png"}
"""Flags of ``compare`` that name a file to write."""


def test_every_flag_of_predict_is_there_and_those_of_the_scenario_are_its_fields() -> None:
    base = set(inspect.signature(predict_command).parameters) - REPORTS - {"epochs_of"}
    found = inspect.signature(compare_command).parameters
    assert set(found) == base | {"methods", "sort", "equal_bytes", "epochs_of", *FILES}
    flagged = {name for name, field in SCENARIO_FIELDS.items() if field.flag} - {"options"}
    assert base - {*SHARED_FLAGS, "verbose"} == flagged


def test_a_flag_means_here_what_its_own_words_say_and_predict_keeps_its_own() -> None:
    base = inspect.signature(predict_command).parameters
    found = inspect.signature(compare_command).parameters
    for name, parameter in found.items():
        [option] = parameter.annotation.__metadata__
        if name in COMPARE_HELP:
            assert option.help == COMPARE_HELP[name]
        elif name in base and name not in REPORTS:
            assert option.help == base[name].annotation.__metadata__[0].help
    assert all(
        base[name].annotation.__metadata__[0].help != COMPARE_HELP[name] for name in COMPARE_HELP
    )


def test_flags_that_are_not_given_say_nothing() -> None:
    told: list[ScenarioFlags] = []

    def command(asked: ScenarioFlags, out: None, json: bool) -> None:
        told.append(asked)

    wrapped = scenario_command()(command)
    given = dict.fromkeys(inspect.signature(wrapped).parameters)
    # As Typer gives them: a flag that may be repeated is an empty list, a switch may be off.
    wrapped(**given | {"set_": [], "straggler": [], "overlap": False, "scenario": "a.toml"})
    [asked] = told
    assert (asked.pairs, asked.scenario) == ([], "a.toml")
    assert {name: value for name, value in asked.flags.items() if value is not None} == {
        "overlap": False
    }


def test_the_overview_says_what_each_command_says_of_itself() -> None:
    """What ``perfsim --help`` lists is there before any command is imported."""
    assert [name for name in OVERVIEW if " " not in name] == list(COMMANDS)
    whole = CliRunner().invoke(application(), ["--help"]).output
    assert CliRunner().invoke(application(overview=True), ["--help"]).output == whole
    every = get_command(application())
    for name, told in OVERVIEW.items():
        one: Any = every
        for word in name.split():
            one = one.commands[word]
        assert " ".join(one.help.split("\n\n")[0].split()) == told


def test_a_command_alone_is_the_same_command() -> None:
    for name in ("predict", "plan", "validate"):
        alone = CliRunner().invoke(application(name), [name, "--help"]).output
        assert alone == CliRunner().invoke(application(), [name, "--help"]).output
