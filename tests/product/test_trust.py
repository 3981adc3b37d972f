"""What perfsim does with files that it did not make: no code, no escape, no half-written file."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shutil
import socket
import time
import tracemalloc
from functools import cache
from pathlib import Path

import pytest

from perfsim.calibrate.formats import read_log
from perfsim.calibrate.traces import chrome_json as trace_file
from perfsim.calibrate.traces import kineto_recording as recording
from perfsim.calibrate.traces import read_trace
from perfsim.cli.main import code
from perfsim.data.files import _MAX_BYTES, named_file, read_bytes, write_bytes
from perfsim.data.toml import parse_toml
from perfsim.errors import DataError, PerfsimError, RequestError
from perfsim.network.layout import parse_layout
from scripts.fuzz import campaign
from scripts.fuzz.parsers import PARSERS, SEEDS, seeds
from support.paths import PACKAGE


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Return the calls, names and imports of the package, each with its file."""
    return [
        (path, node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call | ast.Name | ast.Import | ast.ImportFrom)
    ]


# Files are whole or not there


def test_a_write_that_is_cut_short_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answer.json"
    write_bytes(path, b"old")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new, and longer")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


IN_PLACE = {
    "data/files.py": "what is no regular file has no other way",
    "data/journal.py": "a journal grows line by line, and half a last line is cut off",
}
TRIALS = {
    "app/sharing.py",
    "calibrate/measure/kernel_files.py",
    "calibrate/write_network.py",
    "calibrate/write_profile.py",
}
"""They write into a temporary folder, to read back what they are about to write."""


def test_nothing_is_written_but_by_way_of_a_temporary_file() -> None:
    found: dict[str, str] = {}
    for path, node in nodes():
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        plain = isinstance(node.func, ast.Attribute) and name in ("write_text", "write_bytes")
        opened = name == "open" and any(
            re.fullmatch(r"'[wax]b?\+?'|mode", ast.unparse(one))
            for one in [*node.args, *(keyword.value for keyword in node.keywords)]
        )
        if plain or opened or name in ("savefig", "dump", "mkstemp"):
            found[str(path.relative_to(PACKAGE))] = ast.unparse(node)
    assert set(found) == set(IN_PLACE) | TRIALS, found
    for trial in TRIALS:
        assert "TemporaryDirectory" in (PACKAGE / trial).read_text()


# A schema in every file


FOREIGN = {"nccl_text", "nccl_json", "nccl_csv", "param_text", "pytorch_csv", "kineto", "horovod",
           "graph", "flags", "requests"}  # fmt: skip
"""Files of other tools, which have no schema of ours; what a browser sends."""
KINDS = sorted(set(PARSERS) - FOREIGN)


@pytest.mark.parametrize("parser", KINDS)
def test_a_file_of_a_newer_schema_is_told_from_a_damaged_one(parser: str, tmp_path: Path) -> None:
    for seed in seeds(parser):
        text, changed = re.subn(
            r"(perfsim/[\w-]+/)(\d+)",
            lambda m: f"{m[1]}{int(m[2]) + 1}",
            seed.data.decode(),
            count=1,
        )
        if not changed:
            continue
        path = tmp_path / seed.name
        path.write_text(text)
        with pytest.raises(DataError) as error:
            PARSERS[parser](path)
        told = str(error.value)
        assert told.startswith(str(path)) and "this perfsim reads" in told, told
        assert told.endswith("a newer perfsim may read it"), told


# No code from data files


def test_nothing_is_executed_or_unpickled() -> None:
    """The one eval is of the source of a method that ships, without any names of its own."""
    found = set()
    for path, node in nodes():
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {one.name.partition(".")[0] for one in node.names}
            names.add((getattr(node, "module", "") or "").partition(".")[0])
            wrong = names & {"pickle", "shelve", "marshal", "yaml", "dill", "joblib"}
            found |= {(str(path.relative_to(PACKAGE)), one) for one in wrong}
        if isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile", "__import__"):
            found.add((str(path.relative_to(PACKAGE)), node.id))
    assert found <= {("methods/describe.py", "eval"), ("methods/describe.py", "compile")}


def test_only_the_command_line_names_modules_to_import() -> None:
    """``import_module`` gets a name that a folder of perfsim lists, but for ``--model``."""
    for path, node in nodes():
        called = getattr(node, "func", None)
        if getattr(called, "attr", getattr(called, "id", "")) != "import_module":
            continue
        given = ast.unparse(node.args[0])  # type: ignore[union-attr]
        own = re.match(r"f'(\{__name__\}|\{__package__\}|perfsim|\{package\})\.", given)
        listed = given in ("HOME[name]", "package")
        assert own or listed or path == PACKAGE / "calibrate/measure/subject.py", f"{path}: {given}"


# Scenario and network files reach no other files


SECRET = "root:x:0:0:not to be seen"


@pytest.mark.parametrize("field", ["model", "net", "intra_net", "gpu", "method", "fusion"])
@pytest.mark.parametrize("place", ["../secret", "{}/secret", "{}/secret.toml"])
def test_a_scenario_that_names_another_file_tells_nothing_of_it(
    field: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("secret", "secret.toml", "secret.csv"):
        (tmp_path / name).write_text(f"{SECRET}\n")
    asked = {"model": "resnet50", "gpus": "8", field: place.format(tmp_path)}
    fields = "\n".join(f"{key} = {json.dumps(value)}" for key, value in asked.items())
    Path("asked.toml").write_text(f'schema = "perfsim/scenario/1"\n[scenario]\n{fields}\n')
    assert code(["predict", "--scenario", "asked.toml"]) in (2, 3)
    told = capsys.readouterr()
    assert told.out == "" and SECRET not in told.err and told.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*.*")) == sorted(
        [tmp_path / "here" / "asked.toml", tmp_path / "secret.csv", tmp_path / "secret.toml"]
    )


@pytest.mark.parametrize("field", ["out", "html", "trace", "png", "csv", "profiles"])
def test_a_scenario_names_no_output(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "asked.toml", tmp_path / "written"
    told = 'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 8\n'
    path.write_text(f'{told}{field} = "{out}"\n')
    assert code(["predict", "--scenario", str(path)]) == 2
    assert f"a scenario has no '{field}'" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("file", ["../links.csv", "/etc/passwd", "a/../../links.csv"])
def test_a_networks_graph_lies_beside_it(file: str, tmp_path: Path) -> None:
    shutil.copy(SEEDS / "graph" / "links.csv", tmp_path / "links.csv")
    (tmp_path / "nets").mkdir()
    text = (SEEDS / "network" / "made-up.toml").read_text()
    path = tmp_path / "nets" / "made-up.toml"
    path.write_text(f'{text}\n[fabric]\nkind = "graph"\nfile = "{file}"\nsource = "made up"\n')
    with pytest.raises(
        DataError, match=r"fabric\.file: found .* allowed is a file of the same fol"
    ):
        PARSERS["network"](path)


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc/cron", "", ".hidden", "a b", "x\n"])
def test_a_name_in_a_table_makes_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no name"):
        named_file(tmp_path, name, ".toml")


# Files made to be large


def test_a_packed_trace_that_swells_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "ALWAYS_UNPACKED_CHARACTERS", 1 << 20)
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb") as file:
        file.write(b'{"schemaVersion": 1, "traceEvents": [')
        for _ in range(8):
            file.write(b" " * (1 << 20))
        file.write(b"]}")
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        read_trace(bomb)


def test_a_trace_of_more_spans_than_fit_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_SPANS", 5)
    with pytest.raises(DataError, match="more than 5 spans of training; record fewer steps"):
        read_trace(SEEDS / "kineto" / "gpu.json")


@pytest.mark.parametrize("parser", ["profile", "device", "scenario", "curves", "graph"])
def test_a_file_larger_than_any_is_refused(
    parser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.data.files._MAX_BYTES", 100)
    monkeypatch.setattr("perfsim.data.toml.MAX_TOML_BYTES", 100)
    assert _MAX_BYTES >= 32 << 20
    [seed, *_] = seeds(parser)
    path = tmp_path / seed.name
    path.write_bytes(seed.data)
    with pytest.raises(PerfsimError, match="is larger than 0 MiB"):
        PARSERS[parser](path)


def special(folder: Path) -> dict[str, Path]:
    """Make what is no file: a pipe without a writer, a socket, links that lead nowhere."""
    names = ("pipe", "socket", "loop", "dangling")
    paths = {name: folder / name for name in names} | {"device": Path("/dev/zero")}
    os.mkfifo(paths["pipe"])
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(folder)  # the name of a socket has at most 107 characters
        made.bind("socket")
    paths["loop"].symlink_to("loop")
    paths["dangling"].symlink_to("nowhere")
    return paths | {"folder": folder}


SPECIAL = ("pipe", "socket", "device", "loop", "dangling", "folder")
READING = (
    "calibrate import {} --name x",
    "calibrate import {} --model x --batch 4",
    "predict --scenario {}",
    "predict --model {} --gpus 8 --net 1gbe",
    "predict --model resnet50 --gpus 8 --net {}",
    "predict --node {} --model resnet50 --gpus 8",
    "sweep {} --vary gpus=8",
    "explain --scenario {}",
    "plan --model resnet50 --gpus 8 --net 1gbe --dataset imagenet --epochs 1 --prices {}",
    "validate --measurements {}",
    "validate --map {}",
    "validate nccl --data {}",
    "pipeline {}",
    "init {}",
    "predict --model resnet50 --gpus 8 --net 1gbe --profiles {}",
)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("line", READING)
def test_what_is_no_file_is_refused_in_a_sentence(
    line: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = special(tmp_path)[kind]
    assert code(line.format(path).split()) in (2, 3)
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and told.err.startswith("perfsim: ")
    assert "internal error" not in told.err


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text("text")
    known = os.stat(file)
    monkeypatch.setattr(os, "stat", lambda *_, **__: known)
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_bytes(pipe)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    with pytest.raises(DataError, match="is larger than 32 MiB"):
        read_bytes(large)
    with pytest.raises(DataError, match="is larger than 4 MiB"):
        parse_toml(large)
    with pytest.raises(DataError, match="is larger than 32 MiB"):
        read_log(large)
    with pytest.raises(DataError, match="is larger than 1024 MiB"):
        read_trace(large)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("mark", ["a", '"a b"', "'a.b'", '"a\\"b"', "a-b"])
@pytest.mark.parametrize("form", ["{} = 1", "x = {{ {} = 1 }}", "[{}]", "[[{}]]", "  {}=1"])
def test_a_key_of_hundreds_of_parts_is_refused_before_it_is_read(
    mark: str, form: str, tmp_path: Path
) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = 1.5\n" + form.format(" . ".join([mark] * 40)) + "\n")
    with pytest.raises(DataError, match=r"deep.toml, line 2: .* key of more than 32 parts"):
        parse_toml(path)
    path.write_text(form.format(".".join([mark] * 30)) + "\nb = [" + "1.5, " * 5000 + "]\n")
    assert parse_toml(path)


def test_a_table_or_a_log_of_more_lines_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.data.files.MAX_LINES", 20)
    for parser in ("profile", "curves", "nccl_text", "own_csv"):
        seed = seeds(parser)[0]
        path = tmp_path / seed.name
        path.write_bytes(seed.data + b"\n" * 20)
        with pytest.raises(DataError, match="has more than 20 lines"):
            PARSERS[parser](path)


def test_a_log_of_damaged_lines_is_not_skipped_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.calibrate.formats.rows.MAX_SKIPPED", 20)
    seed = next(seed for seed in seeds("own_csv"))
    path = tmp_path / seed.name
    path.write_bytes(seed.data + b"x\n" * 30)
    with pytest.raises(DataError, match="has more than 20 damaged lines"):
        read_log(path, skip_bad=True)


def test_a_log_of_commas_is_refused_in_the_time_that_it_takes_to_read(tmp_path: Path) -> None:
    """30 MB of commas took 77 s: each cell of such a line was looked at as the name of a column."""
    path = tmp_path / "commas.log"
    path.write_bytes(b"," * (4 << 20))
    begun = time.process_time()
    with pytest.raises(DataError, match="holds no measurements in a form that is known"):
        read_log(path)
    assert time.process_time() - begun < 1.0


def test_a_wrong_word_of_a_layout_is_cut() -> None:
    with pytest.raises(RequestError) as error:
        parse_layout("dp<a>" * 3000)
    assert len(str(error.value)) < 300


def test_a_name_of_a_horovod_timeline_that_would_reach_a_terminal_is_cleaned(
    tmp_path: Path,
) -> None:
    """Found by the fuzz: a process id may be a text, and was taken as a tensor's name."""
    name, data = campaign.case("horovod", 24, 2134, seeds("horovod"))
    assert b"u001b[2J" in data
    path = tmp_path / name
    path.write_bytes(data)
    PARSERS["horovod"](path)
