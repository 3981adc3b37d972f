"""The table of what is known of learning: its rows, how it is refused, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.errors import DataError
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.learning import (
    LEARNING_FILE,
    STATEMENTS_FILE,
    read_evidence,
    read_statements,
    summaries,
)
from support.commands import answer, run
from support.paths import ROOT

TABLE = ROOT / "profiles" / "learning" / LEARNING_FILE
EVIDENCE = read_evidence(TABLE)


def test_rows_are_of_lossy_methods_and_say_where_they_are_from() -> None:
    assert len(EVIDENCE) >= 60 and len({one.method for one in EVIDENCE}) >= 30
    for one in EVIDENCE:
        assert one.method in method_names() and method_class(one.method).lossy, one.method
        assert one.licence in ("MIT", "Apache-2.0", "CC-BY-4.0", "paper", "none stated")
        assert one.date[:2] == "20"
        assert any(mark in one.source for mark in ("@", "arXiv", "github.com/"))
    assert len(set(EVIDENCE)) == len(EVIDENCE)


def test_options_are_the_methods_own() -> None:
    """Each cell makes a method: names that it has, values that it takes, none without effect."""
    for one in EVIDENCE:
        stated = dict(pair.split("=") for pair in one.options.split("; ") if pair)
        load_method(one.method, stated)


def test_tokens_are_of_language_models() -> None:
    """20 tokens for each of 2.4e9 parameters are 4.8e10."""
    told = [one for one in EVIDENCE if one.tokens is not None]
    assert {one.task for one in told} == {"language model pretraining"}
    charles = [one for one in told if one.model.endswith(" 2.4B") and "2503.09799" in one.source]
    assert len(charles) == 4 and {one.tokens for one in charles} == {4.8e10}


def test_published_values() -> None:
    """DGC on ResNet-50 with 32 GPUs and a cosine schedule; post-local SGD of 16 steps."""
    dgc = [one for one in EVIDENCE if one.source.startswith("synxlin") and one.workers == 256]
    assert {(one.model, one.baseline_value, one.value) for one in dgc} == {
        ("ResNet-50", 76.2, 75.9),
        ("VGG-16-BN", 73.4, 71.7),
    }
    local = {one.value for one in EVIDENCE if one.method == "postlocalsgd"}
    assert {75.33, 75.51, 75.11, 74.29} <= local


def test_published_epochs_of_k_fac() -> None:
    """Epochs to 75.9 % on ImageNet: 76 and 43 (Pauloski et al. 2020), 65 and 46 (KAISA)."""
    found = {
        (one.method, one.workers, one.baseline_value, one.value)
        for one in EVIDENCE
        if "75.9 %" in one.baseline
    }
    assert found == {("mpd_kfac", 16, 76.0, 43.0), ("kaisa", 8, 65.0, 46.0)}


def test_random_values_lose_on_language() -> None:
    """LSTMs end worse, the worse the fewer values; ImageNet within a point (GRACE, figure 6)."""
    rows = [one for one in EVIDENCE if one.method == "randk"]
    language = [one for one in rows if one.measure == "final_perplexity"]
    assert len(language) >= 3
    for one in language:
        assert one.value is not None and one.value > one.baseline_value
    images = [one for one in rows if one.data == "ImageNet"]
    assert {one.options for one in images} == {f"density={k}" for k in (0.01, 0.1, 0.25, 0.5)}
    for one in images:
        assert one.value is not None and abs(one.value - one.baseline_value) < 1


def test_a_quality_that_is_never_reached_is_told() -> None:
    never = [one for one in EVIDENCE if one.value is None]
    assert {(one.method, one.measure) for one in never} == {("qsgd", "epochs_to_quality")}
    for one in never:
        assert summaries([one])[0].count("never reached in 1") == 1
    [first, *_] = never
    alike = [one for one in EVIDENCE if one.method == first.method and one.source == first.source]
    assert any("never reached in 1" in line for line in summaries(alike))


def test_values_are_told_beside_their_baselines() -> None:
    """100 and 150 epochs for 100: 1.00 to 1.50; a loss of 2.2 for 2.0: +10 %."""
    first = next(one for one in EVIDENCE if one.measure == "epochs_to_quality")
    row = first._replace(source="here", baseline="b", baseline_value=100.0, value=100.0)
    [line] = summaries([row, row._replace(value=150.0)])
    assert line.startswith("epochs to its quality 1.00 to 1.50 times those of b (2 settings;")
    loss = row._replace(measure="final_loss", baseline_value=2.0, value=2.2)
    assert summaries([loss])[0].startswith("final loss +10.0 % against b (1 setting;")


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("measure", "final_happiness", "allowed: epochs_to_quality, final_accuracy"),
        ("unit", "nats", "allowed: percent"),
        ("value", "much", "not a number"),
        ("value", "never", "not a number"),
        ("workers", "2.5", "whole number"),
        ("source", "", "is empty"),
        ("task", "pictures", "allowed: image classification, language model pretraining"),
        ("tokens", "0", "above 0"),
        ("kind", "guessed", "is no kind"),
        ("comparable", "perhaps", "allowed: yes, no"),
        ("trained_ratio", "0", "above 0"),
    ],
)
def test_a_damaged_row_is_refused(tmp_path: Path, column: str, cell: str, words: str) -> None:
    head, row = (
        "method,setting,options,task,model,data,tokens,workers,measure,unit,comparable,baseline,"
        "baseline_value,value,trained_ratio,spread,runs,kind,source,locator,licence,date,notes",
        "dgc,d,density=0.1,other,m,c,,8,final_accuracy,percent,yes,b,76.2,76.6,,,5,published,s,l,"
        "MIT,2020,",
    )
    cells = dict(zip(head.split(","), row.split(","), strict=True)) | {column: cell}
    path = tmp_path / LEARNING_FILE
    path.write_text("\n".join(["# schema: perfsim/learning/1", head, ",".join(cells.values())]))
    with pytest.raises(DataError, match=words) as caught:
        read_evidence(path)
    assert f"line 3, column '{column}'" in str(caught.value)


def test_show_says_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer("show method dgc", capsys)
    rows = [one for one in EVIDENCE if one.method == "dgc"]
    assert len(shown["evidence"]) == len(rows) > 18
    assert len(shown["learning"]) == len({(r.source, r.measure, r.baseline) for r in rows})
    # Of methods that make one update, what is known of one is of all.
    kfac = [answer(f"show method {name}", capsys)["evidence"] for name in ("spd_kfac", "kaisa")]
    assert kfac[0] == kfac[1] != []
    left, out, _ = run("show method thc", capsys)
    assert left == 0 and "what is known of its learning\n  nothing is collected" in out
    left, out, _ = run("show method ssgd", capsys)
    assert left == 0 and "what is known of its learning" not in out


def test_a_column_that_a_table_of_statements_has_besides_does_not_count(tmp_path: Path) -> None:
    shipped = TABLE.with_name(STATEMENTS_FILE)
    notes, head, *rows = shipped.read_text().splitlines()
    while head.startswith("#"):
        notes, (head, *rows) = f"{notes}\n{head}", rows
    (wider := tmp_path / STATEMENTS_FILE).write_text(
        "\n".join([notes, f"{head},-1", *(f"{row},x" for row in rows)]) + "\n"
    )
    assert read_statements(wider) == read_statements(shipped)
