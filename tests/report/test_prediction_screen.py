"""The first screen of a prediction: its length and width, and what it says first."""

from __future__ import annotations

import pickle

import pytest

from perfsim import Scenario, predict
from perfsim.methods import method_names
from perfsim.note import Note, assumption, briefs, of_grade, warning
from perfsim.report.prediction_screen import SCREEN_LINES, prediction_lines
from perfsim.report.terminal import print_notes
from perfsim.time_to_accuracy import EpochsFactor, learning_warnings

DGC = Scenario(model="resnet50", gpus=64, net="1gbe", method="dgc")


def screen(columns: int = 80, **fields: object) -> list[str]:
    """Return the screen of a scenario."""
    return prediction_lines(predict(Scenario(**fields)), columns)


@pytest.fixture(scope="module")
def dgc() -> list[str]:
    return prediction_lines(predict(DGC))


def test_the_question_takes_two_lines_and_the_answer_follows(dgc: list[str]) -> None:
    assert dgc[0] == "resnet50, dgc (density 0.001); batch 32 a GPU, fp32"
    assert dgc[1] == "64 x v100 (16 x 4 GPUs), 1gbe between nodes, nvlink-v100 inside"
    assert dgc[2] == ""
    labels = [line[:16].strip() for line in dgc[3:9]]
    assert labels == [
        *("iteration", "throughput", "against S-SGD", "held back by"),
        *("sent by a GPU", "memory of a GPU"),
    ]


def test_the_parts_add_up_to_the_iteration(dgc: list[str]) -> None:
    shares = [float(line.split("%")[0].split()[-1]) for line in dgc[10:15]]
    assert sum(shares) == pytest.approx(100, abs=0.3)


def test_it_says_what_may_change_a_decision_what_was_taken_and_where_more_is(
    dgc: list[str],
) -> None:
    text = " ".join(" ".join(dgc).split())
    assert "warning dgc learns otherwise than S-SGD" in text
    assert "lie outside the range they were measured in" in text
    assert "assumed gpu v100, gpus_per_node 4, intra_net nvlink-v100" in text
    assert "-v: 8 sources, " in text


@pytest.mark.parametrize("method", method_names())
def test_no_method_needs_more_lines_or_columns(method: str) -> None:
    fields: dict[str, object] = {"model": "resnet50", "gpus": 8, "net": "10gbe", "method": method}
    if method == "distributed_muon":
        fields |= {"optimizer": "muon"}
    lines = screen(gpus_per_node=4, **fields)
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "fields",
    [
        {
            "model": "llama3-70b",
            "gpus": 512,
            "node": "dgx-h100",
            "tp": 8,
            "pp": 4,
            "accumulate": 32,
        },
        {"model": "gpt2-xl", "node": "dgx-h100", "site": "8,8,16", "wan": "1Gbit/s,40ms"},
        {"model": "resnet50", "gpus": 16, "straggler": ["1:1.5"], "background": 0.3, "seed": 3},
        {"model": "gpt2-xl", "gpus": 8, "gpu": "t4", "batch": 64, "method": "dgc"},
        {"model": "resnet50", "gpus": 16, "gpu": "v100:8,p100:8", "net": "10gbe"},
    ],
)
def test_it_is_as_short_and_narrow_where_there_is_much_to_say(fields: dict[str, object]) -> None:
    lines = screen(**fields)
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= 80


def test_it_says_that_the_baseline_could_not_run_and_what_efficiency_is_over() -> None:
    sharded = {"model": "llama3-8b", "gpus": 64, "node": "dgx-h100", "method": "fsdp"}
    found = predict(Scenario(**sharded, recompute="full"))
    lines = prediction_lines(found)
    at = next(place for place, line in enumerate(lines) if line.startswith("against S-SGD"))
    assert lines[at].endswith("s; would not fit into memory)")
    assert lines[at + 1].startswith("scaling         efficiency 10")
    assert lines[at + 1].endswith("(of one GPU alone, had it the memory)")
    note = next(one for one in found.notes if one.startswith("Scaling efficiency is over 64 times"))
    assert "the memory of one GPU could not hold it. It is above 100 % because" in note
    assert "because that GPU updates all parameters by itself (233.6 ms)" in note
    usual = predict(Scenario(model="resnet50", gpus=8))
    assert not any("fficiency is over" in note for note in usual.notes)
    assert "   scaling efficiency " in "\n".join(prediction_lines(usual))


def test_it_folds_to_a_narrow_terminal() -> None:
    lines = screen(40, **DGC.model_dump(exclude_defaults=True))
    assert max(map(len, lines)) <= 40
    assert lines[0] == "resnet50, dgc (density 0.001); batch 32"


def test_what_does_not_fit_into_memory_is_said_first_and_what_is_left_out_is_counted() -> None:
    fields = {"model": "llama3-70b", "gpus": 8, "gpu": "v100", "method": "dgc", "seed": 1}
    lines = screen(**fields, background=0.1, algorithm="tree")
    warnings = [line for line in lines if line.startswith("warning")]
    assert "It does not fit into memory" in warnings[0]
    assert len(lines) <= SCREEN_LINES
    assert "more warnings," in " ".join(lines) or len(warnings) > 3


def test_only_what_is_unusual_of_the_options_is_said() -> None:
    first = screen(model="resnet50", gpus=8, method="powersgd", options={"rank": "2"})[0]
    assert first.startswith("resnet50, powersgd (rank 2);")
    asked = screen(model="resnet50", gpus=8, fusion="none", overlap=False, algorithm="tree")
    assert "fusion none; no overlap; all-reduce tree" in " ".join(" ".join(asked[:3]).split())


def test_notes_keep_their_grade_in_copies_and_are_texts() -> None:
    note = assumption("4 GPUs a node (the default).", "`gpus_per_node` 4")
    copy = pickle.loads(pickle.dumps(note))
    assert (copy, copy.grade, copy.brief) == (note, note.grade, note.brief)
    assert isinstance(copy, Note)
    assert note == "4 GPUs a node (the default)."
    notes = ["a remark", note, warning("It does not fit.")]
    assert of_grade(notes, "remark") == ["a remark"]
    assert briefs(notes, "assumption") == ["`gpus_per_node` 4"]
    assert briefs(notes, "warning") == ["It does not fit."]


def test_json_has_warnings_and_assumptions_among_the_notes() -> None:
    found = predict(DGC).to_dict()
    assert found["warnings"]
    assert found["assumptions"]
    assert {*found["warnings"], *found["assumptions"]} < set(found["notes"])
    assert found["memory_usable_bytes"] > sum(found["memory_bytes"].values())


def test_few_warnings_are_printed_and_the_others_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = [warning(f"w{number}", f"brief {number}") for number in range(6)]
    print_notes([*notes, assumption("a", "`gpu` v100"), "a remark"], verbose=False)
    told = capsys.readouterr().out.split("\n")
    assert told[1:5] == [f"warning         brief {number}" for number in range(4)]
    assert told[5:7] == ["assumed         gpu v100", "next            -v: 2 more warnings, 8 notes"]
    print_notes(notes, verbose=True)
    assert "  - w5\n" in capsys.readouterr().out


def test_what_is_known_against_a_method_is_a_warning() -> None:
    factor = EpochsFactor("none", against=("it fell short (a)", "and again (b)"), why="of it")
    [found] = learning_warnings({"topk": factor})
    assert found == "Against topk: it fell short (a); and again (b)."
    assert of_grade([found], "warning") == [found]
    assert briefs([found], "warning") == ["Against topk: it fell short (a) and 1 more"]
