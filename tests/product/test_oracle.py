"""The oracle: a sample of its questions is answered as stored, and it finds what differs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scripts import oracle
from scripts.oracle_differences import MAX_RELATIVE_FITTED, compared
from scripts.oracle_questions import Question

ANSWER: dict[str, Any] = {
    "exit": 0,
    "json": {
        "bottleneck": "bandwidth",
        "calls": 15,
        "iteration_s": 0.2706992700314,
        "other_s": 0.0,
        "overlap": True,
        "bucket": None,
        "notes": ["4 GPUs a node (the default)."],
        "rate": "1.173 GB/s",
        "rows": [{"method": "dgc", "source": "a figure of the paper"}, {"method": "ssgd"}],
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    """Return the answer with other fields."""
    other = copy.deepcopy(ANSWER)
    other["json"] |= fields
    return other


def test_a_sample_is_answered_as_it_is_stored(capsys):
    left = oracle.main(["--sample", "--workers", "1"])
    said = capsys.readouterr().out
    assert left == 0, said
    assert f"{oracle.SAMPLE_SIZE} answers compared" in said


def test_fits_alone_may_differ_by_what_processors_make_of_derivatives():
    rate = {"rate": 5987222602.292714}, {"rate": 5987222620.931499}
    moved = {"rate": 5987222602.292714}, {"rate": 5987232602.292714}
    fitting, other = "calibrate/calibrate import log", "predict/log"
    for name, (old, new), differ in (
        (fitting, rate, 0),
        (other, rate, 1),
        (fitting, moved, 1),
    ):
        found = oracle.compare_all({name: old}, {name: new})
        assert found[name].numbers_moved == differ, (name, new)
    assert MAX_RELATIVE_FITTED < 5e-5, "a network file keeps 4 digits"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"iteration_s": ANSWER["json"]["iteration_s"] * (1 + 1e-9)}, "json.iteration_s"),
        ({"iteration_s": ANSWER["json"]["iteration_s"] * (1 - 3e-12)}, "json.iteration_s"),
        ({"iteration_s": float("nan")}, "json.iteration_s"),
        ({"other_s": 1e-300}, "json.other_s"),
        ({"calls": 16}, "json.calls"),
        ({"calls": 15.0}, "json.calls"),
        ({"overlap": 1}, "json.overlap"),
        ({"bucket": 0}, "json.bucket"),
        ({"bottleneck": "latency"}, "json.bottleneck"),
        ({"rate": "1.174 GB/s"}, "json.rate"),
        ({"rows": ANSWER["json"]["rows"][:1]}, "json.rows"),
        ({"rows": [ANSWER["json"]["rows"][0], {"method": "topk"}]}, "json.rows[1].method"),
        ({"rows": [ANSWER["json"]["rows"][0], {}]}, "json.rows[1].method"),
        ({"added": 1}, "json.added"),
    ],
)
def test_what_differs_is_found(fields, path):
    found = compared(ANSWER, changed(**fields))
    assert [one.path for one in found.differences] == [path]
    assert path in str(found.differences[0])


def test_an_exit_code_is_compared_exactly():
    assert compared(ANSWER, ANSWER | {"exit": 2}).differences


@pytest.mark.parametrize(
    ("fields", "numbers_changed"),
    [
        ({"notes": ["A node has 4 GPUs."]}, False),
        ({"notes": ["A node has 5 GPUs."]}, True),
        ({"notes": []}, True),
        ({"notes": ["4 GPUs a node (the default).", "One more."]}, False),
        ({"rows": [{"method": "dgc", "source": "their figure"}, {"method": "ssgd"}]}, False),
    ],
)
def test_a_changed_sentence_is_told_and_is_no_difference(fields, numbers_changed):
    found = compared(ANSWER, changed(**fields))
    assert not found.differences
    assert [one.numbers_changed for one in found.sentences] == [numbers_changed]


def test_the_same_answer_and_one_within_rounding_do_not_differ():
    near = ANSWER["json"]["iteration_s"] * (1 + 4e-13)
    for other in (copy.deepcopy(ANSWER), changed(iteration_s=near)):
        found = compared(ANSWER, other)
        assert (found.differences, found.sentences, found.numbers) == ([], [], 4)


def test_a_moved_number_fails_and_is_printed(monkeypatch, capsys):
    name = "predict/predict --model alexnet --gpus 8 --method fsdp"
    monkeypatch.setattr(oracle, "questions_here", lambda: [Question("predict", "x", "")])
    monkeypatch.setattr(oracle, "answer_all", lambda *_: [(name, changed(iteration_s=0.3), 0.0)])
    monkeypatch.setattr(oracle, "stored_answers", lambda _: {name: ANSWER})
    assert oracle.main([]) == 1
    said = capsys.readouterr().out
    assert f"{name}\n    json.iteration_s: 0.2706992700314 -> 0.3  (relative 0.0977)" in said
    assert "1 answers compared: 4 numbers, 1 differ" in said


def test_what_is_not_stored_and_what_is_not_asked_any_more_fail(monkeypatch, capsys):
    monkeypatch.setattr(oracle, "questions_here", lambda: [Question("show", "x", "")])
    monkeypatch.setattr(oracle, "answer_all", lambda *_: [("show/x", ANSWER, 0.0)])
    monkeypatch.setattr(oracle, "stored_answers", lambda _: {"show/y": ANSWER})
    assert oracle.main([]) == 1
    said = capsys.readouterr().out
    assert "new, not stored: show/x" in said
    assert "stored, but not asked any more: show/y" in said
    assert "--write" in said


def test_answers_are_stored_as_the_same_bytes(monkeypatch, tmp_path):
    monkeypatch.setattr(oracle, "STORE", tmp_path)
    written = []
    for answers in ({"show/a": ANSWER, "show/b": {}}, {"show/b": {}, "show/a": ANSWER}):
        oracle.store(answers, ["show"])
        written.append((tmp_path / "show.json.gz").read_bytes())
    assert written[0] == written[1]
    assert oracle.stored_answers(["show", "nothing"]) == {"show/a": ANSWER, "show/b": {}}


def test_a_name_that_no_question_has_is_a_wrong_request(capsys):
    assert oracle.main(["--only", "nothing/*/nothing"]) == 2
    assert "no question has such a name" in capsys.readouterr().out


def test_every_stored_file_is_of_a_group():
    stored = {path.name.removesuffix(".json.gz") for path in oracle.STORE.glob("*.json.gz")}
    assert stored == set(oracle.GROUPS)
