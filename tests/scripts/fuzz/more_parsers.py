"""More parsers for the fuzz: records, stated models, journals, and what a browser sends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from perfsim.app.server import make_app
from perfsim.data.journal import Journal
from perfsim.data.toml import WrongValue
from perfsim.errors import DataError, PerfsimError, RequestError
from perfsim.models.config_file import read_config
from perfsim.models.language import architecture_layers
from perfsim.models.specification import canonical_model, specified_layers
from perfsim.network.node_type import read_node_type
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import SWEEP_JOURNAL_SCHEMA, Sweep, SweepRows, SweepTable, _take
from perfsim.report.sweep_files import sweep_csv, sweep_jsonl
from perfsim.validate.cell_pattern import MAX_CELL_CHARACTERS, cell_pattern

__all__ = [
    "UnsoundAnswerError",
    "journal_seeds",
    "read_app_request",
    "read_config_file",
    "read_node",
    "read_patterns",
    "read_stated_models",
    "read_sweep_journal",
]

SETTING = {"version": "1"}
_KINDS = {"columns": (False, False), "whole": (True, False), "objects": (True, True)}
"""Journals: whether rows are whole predictions, and whether they are objects."""
_CELL = ("rank 4, density 0.01, 12 bits K=7 " * 20)[:MAX_CELL_CHARACTERS]
_HOME = {"Host": "127.0.0.1:8050"}
_ASKED = ("/answer", "/options", "/opened", "/saved", "/figure", "/compared")


class UnsoundAnswerError(Exception):
    """The app answered with an error of the server, or in no sentence."""


def read_node(path: Path) -> Any:
    """Return a node type with its links."""
    return read_node_type(path)


def read_config_file(path: Path) -> Any:
    """Return the layers of a config.json."""
    shape = read_config(path)
    return [vars_of(layer) for layer in architecture_layers(shape)] if shape.layers < 200 else shape


def vars_of(layer: Any) -> Any:
    """Return a layer's name: its numbers are those of the shape, which is checked."""
    return getattr(layer, "name", "")


def read_stated_models(path: Path) -> Any:
    """Read a model a line; raise the last error."""
    wrong, found = None, []
    for line in os.fsdecode(path.read_bytes()).split("\n"):
        if line.startswith(("transformer:", "generic:")):
            try:
                found.append(canonical_model(line))
                if canonical_model(found[-1]) != found[-1]:
                    raise UnsoundAnswerError(f"{found[-1]!r} is read as another model")
                if len(line) < 100:
                    specified_layers(line)
            except PerfsimError as error:
                wrong = error
    if wrong is not None:
        raise wrong
    return found


def read_patterns(path: Path) -> None:
    """Take a pattern a line, and try each on a cell; raise the last error."""
    wrong = None
    for line in os.fsdecode(path.read_bytes()).split("\n"):
        try:
            pattern = cell_pattern(line)
        except WrongValue as error:
            wrong = error
        else:
            pattern.search(_CELL)
            pattern.search("a" * MAX_CELL_CHARACTERS)
            pattern.search("0" * MAX_CELL_CHARACTERS)
    if wrong is not None:
        raise DataError(wrong.why)


@cache
def _sweep(kind: str) -> Sweep:
    full, objects = _KINDS[kind]
    grid = SweepGrid({"model": "resnet18", "net": "1gbe"}, axes_of({"gpus": "7,8..32"}))
    return Sweep(grid, full=full, objects=objects)


@cache
def journal_seeds() -> Mapping[str, bytes]:
    """Return a journal of each kind, as a run of perfsim writes it."""
    made = {}
    for kind in _KINDS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / kind
            journal = Journal(path, SWEEP_JOURNAL_SCHEMA, SETTING, what="a sweep", anew="begin")
            journal.open(lambda _: None)
            rows = SweepRows(_sweep(kind)).chunk(0, 4)
            journal.add({"start": 0, "rows": rows[:2]})
            journal.add({"start": 2, "rows": rows[2:]})
            made[f"{kind}.journal"] = path.read_bytes()
    return made


def read_sweep_journal(path: Path) -> Any:
    """Go on from a journal, and write what it holds as a table."""
    sweep, rows = _sweep(path.name.partition(".")[0]), list[Any]()
    journal = Journal(path, SWEEP_JOURNAL_SCHEMA, SETTING, what="a sweep", anew="`fresh` helps")
    journal.open(partial(_take, sweep, rows))
    table = SweepTable(sweep, rows)
    repr(table)
    sweep_csv(table).encode()
    if sweep.objects:
        sweep_jsonl(table).encode()
    return rows


@cache
def _client() -> Any:
    return make_app("127.0.0.1", {}).flask.test_client()


def read_app_request(path: Path) -> None:
    """Send a link, or a question with its JSON, as a browser does; refusals are raised."""
    data = path.read_bytes()
    if path.suffix == ".txt":
        query = data.partition(b"?")[2].rstrip(b"\n")
        answer = _client().open("/", query_string=query.decode("latin-1"), headers=_HOME)
        if answer.status_code != 200:
            raise UnsoundAnswerError(f"the page is answered with {answer.status}")
        if b'id="notice" class="notice" role="status"></div>' in answer.data:
            return
        raise RequestError("", "the link is taken in part.")
    where = next((one for one in _ASKED if f'"{one}"'.encode() in data), "/opened")
    answer = _client().post(where, data=data, headers=_HOME, content_type="application/json")
    told = answer.get_json(silent=True)
    if answer.status_code >= 500 or not isinstance(told, dict):
        raise UnsoundAnswerError(f"{where} is answered with {answer.status}")
    sentence = told.get("sentence", "")
    if "internal error" in sentence:
        raise UnsoundAnswerError(f"{where}: {sentence}")
    if sentence:
        raise RequestError("", " ".join(sentence.split()))
