"""Files that are no text: each kind is refused by name, with the byte that is wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perfsim.cli.main import code

RANDOM = b"ab\n" + random.Random(1).randbytes(400).replace(b"\0", b"\1")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("mine.toml", "predict --model resnet18 --gpus 8 --net {path}"),
        ("mine.toml", "predict --scenario {path}"),
        ("models/mine.csv", "predict --model mine --gpus 8 --profiles {folder}"),
        ("rows.csv.journal", "sweep --model resnet18 --vary gpus=2,4 --out {folder}/rows.csv"),
        ("mine.log", "calibrate import {path} --name ours --out {folder}"),
    ],
    ids=["network", "scenario", "profile", "journal", "nccl-tests"],
)
def test_a_file_of_random_bytes_is_named_in_plain_words(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(RANDOM)
    assert code(command.format(path=path, folder=tmp_path).split()) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"perfsim: {path}: is not text in UTF-8: byte 4 of 403 is wrong")
    assert "codec" not in said and path.read_bytes() == RANDOM


def test_bytes_count_from_the_beginning_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbfa\xff")  # behind a byte-order mark
    assert code(["predict", "--scenario", str(path)]) == 3
    assert "byte 5 of 5 is wrong" in capsys.readouterr().err
