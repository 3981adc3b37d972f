"""The gallery of scenarios/: every question's command runs, and prints what is stored.

By stored output: "did it change", never "is it true". ``python tests/scripts/gallery.py`` writes it
anew.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.data.catalog import Catalog
from perfsim.planning.grid import axes_of
from perfsim.prediction import predict
from perfsim.report.terminal import command_lines
from perfsim.scenario import make_scenario
from perfsim.session import Session
from perfsim.validate.mapping import SourceCases, scenario_of
from scripts import gallery, gallery_answers, ranking, readme
from scripts.gallery_found import by_axes, seconds
from support.bars import Row, bar, chart

QUESTIONS = gallery.questions()
ANEW = "run python tests/scripts/gallery.py"
SHARDING = "How to shard or split a language model?"


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_command_prints_what_is_stored(name: str) -> None:
    stored = gallery.OUTPUTS / f"{name}.txt"
    assert gallery.answered()[name].printed == stored.read_text(encoding="utf-8"), ANEW


def test_the_gallery_has_not_drifted() -> None:
    assert gallery.generated() == gallery.README.read_text(encoding="utf-8"), ANEW


def test_every_question_stands_once_with_its_answer_and_nothing_else_is_stored() -> None:
    listed = [name for names in gallery.SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(QUESTIONS)
    assert {path.stem for path in gallery.OUTPUTS.iterdir()} == set(QUESTIONS)
    assert all(callable(getattr(gallery_answers, name)) for name in listed)


def test_the_gallery_asks_every_command() -> None:
    asked = {file["command"].split()[1] for file in QUESTIONS.values()}
    assert {"predict", "compare", "sweep", "tune", "explain", "plan", "validate"} <= asked
    assert len(QUESTIONS) >= 15


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_a_scenario_that_its_command_names(name: str) -> None:
    file = QUESTIONS[name]
    assert file["question"].endswith("?") and "\n" not in file["question"]
    assert name in file["command"] or file["command"].startswith("perfsim validate ")
    assert make_scenario(file["scenario"], name)
    assert bool(axes_of(file.get("sweep", {}))) == file["command"].startswith("perfsim sweep ")


def test_measured_values_are_held_out_and_stand_beside_a_row_of_the_same_gpus() -> None:
    shown = 0
    for name, asked in gallery.answered().items():
        stated = QUESTIONS[name]["scenario"]
        for row, case in asked.measured.items():
            if "compare" in asked.command:
                [found] = [one["scenario"] for one in asked.found["rows"] if row in _method(one)]
            else:
                found = stated | by_axes(asked)[tuple(row.split())]
            # What one node calibrates is the way of asking that states the time of one GPU.
            assert case.role == "test" or (case.role == "calibration" and "single_gpu" not in found)
            assert case.gpus == str(found["gpus"])
            shown += 1
    assert shown >= 20


def _method(row: dict[str, Any]) -> list[str]:
    return [row["scenario"]["method"]]


@pytest.mark.parametrize("name", gallery.SECTIONS[SHARDING])
def test_a_row_of_the_answer_is_the_run_that_was_measured(name: str) -> None:
    """The case's own scenario predicts what stands beside it."""
    asked, session = gallery.answered()[name], Session()
    assert asked.measured
    for row, case in asked.measured.items():
        source = SourceCases([case], [], session)
        scenario = scenario_of(case, source.roles[case.id], source, "blind")
        assert scenario is not None
        found_s = seconds(by_axes(asked)[tuple(row.split())])
        assert predict(scenario, session).iteration_s == pytest.approx(found_s, rel=1e-3), row


def test_pictures_and_commands_are_80_columns_wide_at_most() -> None:
    inside = False
    for line in gallery.gallery().splitlines():
        inside = inside != line.startswith("```")
        assert not inside or len(line) <= 80, line


def test_a_command_in_lines_is_the_command_for_a_shell() -> None:
    for file in QUESTIONS.values():
        lines = command_lines(file["command"])
        assert "\n".join(lines).replace("\\\n", "").split() == file["command"].split()
        assert all(line.endswith(" \\") for line in lines[:-1])


def test_every_scenario_of_a_question_can_be_predicted_by_itself() -> None:
    session = Session()
    for name, file in QUESTIONS.items():
        assert predict(make_scenario(file["scenario"], name), session).iteration_s > 0


def test_the_settings_of_every_paper_are_told() -> None:
    told = gallery.README.read_text(encoding="utf-8").split("<!-- end: gallery -->")[1]
    others = set(Catalog().scenarios()) - set(QUESTIONS)
    assert {name for name in others if "_".join(name.split("_")[:2]) not in told} == set()


def test_a_bar_by_hand() -> None:
    # 2 and 3 of 10 in 20 characters; ends are rounded, so that parts add up.
    assert bar((("#", 2.0), ("-", 3.0)), 10.0, 20) == "####------"
    assert bar((("#", 0.4), ("-", 0.4), ("+", 0.2)), 1.0, 4) == "##-+"


def test_bars_share_a_scale_unless_groups_are_far_apart() -> None:
    def drawn(longest: float) -> list[int]:
        groups = [[Row(("a",), [("#", 1.0)])], [Row(("b",), [("#", longest)])]]
        return [line.count("#") for line in chart(["what"], groups).splitlines() if "#" in line]

    assert drawn(10.0) == [7, 74]
    assert drawn(100.0) == [74, 74]


def test_list_shows_the_questions_first_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(["list", "scenarios"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines[1:] if line[:1].strip() and "(" not in line]
    assert names[: len(QUESTIONS)] == sorted(QUESTIONS)
    assert all(len(line) <= 80 for line in lines)
    shown = " ".join(" ".join(lines).split())
    assert all(file["question"] in shown for file in QUESTIONS.values())


@pytest.mark.parametrize("name", ["which_method_1gbe", "what_if_uneven_nodes", "which_kfac_64"])
def test_show_tells_question_and_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(["show", "scenario", name]) == 0
    printed = capsys.readouterr().out
    file = QUESTIONS[name]
    assert printed.startswith(file["question"])
    assert file["command"] in " ".join(printed.replace("\\\n", "").split())
    assert ("3, 5" in printed) == (name == "what_if_uneven_nodes")
    assert ("spd-016" in printed) == (name == "which_kfac_64")


@pytest.mark.parametrize("script", [gallery, ranking, readme])
def test_help_of_a_script_is_a_usage_line(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        script.main(["--help"])
    assert capsys.readouterr().out.startswith("usage: ")


def test_an_answer_counts_as_the_screen_does() -> None:
    screen = (gallery.OUTPUTS / "which_method_1gbe.txt").read_text(encoding="utf-8")
    [counted] = re.findall(r"\w+ and \d+ more have shorter iterations", screen)
    written = " ".join(gallery.README.read_text(encoding="utf-8").split())
    assert f"{counted}, down to" in written
    assert " costs -" not in written


def test_a_field_without_a_flag_says_so() -> None:
    assert "| `overlap_slowdown` | FACTOR; no flag |" in readme.fields()
    assert "| `overlap` | true or false |" in readme.fields()
