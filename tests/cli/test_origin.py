"""A refusal names the scenario file and its key for what the file gives, the flag for a flag's."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.cli.main import code

FILES = {
    "s.toml": 'model = "resnet50"\ngpus = 64\nnet = "10gbe"\nmethod = "dgc"\n',
    "words.toml": 'model = "resnet50"\ngpus = "sixty-four"\n',
    "options.toml": 'model = "resnet50"\ngpus = 64\nmethod = "dgc"\noptions = {densty = 1}\n',
    "fusion.toml": 'model = "resnet50"\ngpus = 8\nfusion_options = {first_bucket = "x"}\n',
    "nodes.toml": 'model = "resnet50"\ngpus = 8\ngpus_per_node = 3\n',
    "beside.toml": 'model = "resnet50"\ngpus = 64\nbeside = "words.toml"\n',
}

TARGET = "--dataset imagenet --epochs 90 --gpus 8"

SAID = [
    ("predict s.toml --gpus abc", "--gpus: 'abc' is not allowed: it must be a whole number."),
    ("predict s.toml --net 10gbes", "--net: no '10gbes'; did you mean"),
    ("predict s.toml --placement 3,5", "--placement: '3,5' places 8 GPUs, gpus of s.toml says 64"),
    ("predict s.toml --tp 3", "s.toml: gpus: 64 GPUs do not divide by --tp 3 x"),
    ("predict s.toml --set densty=1", "--set: method 'dgc' has no 'densty'"),
    ("predict s.toml --beside none.toml", "--beside: there is no file 'none.toml'"),
    ("predict s.toml --beside words.toml", "--beside: words.toml: gpus: 'sixty-four' is not"),
    ("predict s.toml --epochs-of dcg=2", "--epochs-of is for ranking methods"),
    ("predict words.toml", "words.toml: gpus: 'sixty-four' is not allowed"),
    ("sweep words.toml --vary batch=8,16", "words.toml: gpus: 'sixty-four' is not allowed"),
    ("sweep words.toml --vary gpus=x", "--vary gpus: 'x' is not allowed"),
    ("predict options.toml --set density=1%", "options.toml: options: method 'dgc' has no"),
    ("predict options.toml --set densty=2", "--set: method 'dgc' has no 'densty'"),
    ("predict fusion.toml", "fusion.toml: fusion_options.first_bucket: 'x' is not a size"),
    (
        f"plan fusion.toml {TARGET}",
        "no cluster can be used: fusion_options.first_bucket of fusion.toml: 'x' is not a size",
    ),
    (
        f"plan fusion.toml {TARGET} --set fusion.first_bucket=y",
        "no cluster can be used: --set fusion.first_bucket: 'y' is not a size",
    ),
    (
        f"plan nodes.toml {TARGET}",
        "no cluster can be used: gpus_per_node of nodes.toml: 8 GPUs do not divide by 3",
    ),
    ("predict beside.toml", "beside.toml: beside: words.toml: gpus: 'sixty-four' is not"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("origin")
    for name, text in FILES.items():
        (made / name).write_text(f'schema = "perfsim/scenario/1"\n[scenario]\n{text}')
    return made


@pytest.mark.parametrize(("line", "said"), SAID, ids=[line for line, _ in SAID])
def test_a_refusal_names_where_the_value_was_given(
    line: str,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert code(line.split()) in (2, 3)
    assert capsys.readouterr().err.startswith(f"perfsim: {said}")
