"""How the oracle asks: in Python or by the command line, in this process or in several.

All that it needs of perfsim is ``Scenario``, ``predict`` and ``compare`` of the package and
``python -m perfsim``; `run_command` and `answer_in_python` are the only functions that call it.
"""

from __future__ import annotations

import csv
import gc
import io
import json
import multiprocessing
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from scripts.oracle_questions import Question, all_questions

__all__ = ["Answer", "answer_all", "questions_here"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for place in (HERE, ROOT):  # the checkout that this file lies in, whatever is installed
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

INPUTS = HERE / "oracle" / "inputs"

Answer = dict[str, Any]

KINDS = {0: "done", 1: "other", 2: "request", 3: "file", 4: "outside a limit"}
"""What each exit code says."""


def run_command(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of ``python -m perfsim``, run here."""
    out, err, before = io.StringIO(), io.StringIO(), (sys.argv, gc.get_threshold())
    sys.argv = ["perfsim", *arguments]
    exit_code = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_module("perfsim", run_name="__main__", alter_sys=False)
    except SystemExit as left:
        exit_code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.argv = before[0]
        gc.set_threshold(*before[1])
        gc.unfreeze()
    return exit_code, out.getvalue(), err.getvalue()


def fields_of(text: str) -> dict[str, Any]:
    """Return the fields of a scenario that ``field=value ...`` gives."""
    fields: dict[str, Any] = {}
    for part in text.split():
        name, _, written = part.partition("=")
        try:
            value = json.loads(written)
        except json.JSONDecodeError:
            value = written
        table, _, option = name.partition(".")
        if option:
            fields.setdefault(table, {})[option] = value
        else:
            fields[name] = value
    return fields


def answer_in_python(question: Question) -> Answer:
    """Return what ``predict`` or ``compare`` answers, or how it refuses."""
    from perfsim import Scenario, compare, predict

    try:
        asked = Scenario(**fields_of(question.text))
        found = predict(asked) if question.through == "predict" else compare(asked)
        return {"exit": 0, "kind": KINDS[0], "json": found.to_dict()}
    except Exception as error:
        # What pydantic itself refuses has no exit code; what perfsim refuses has.
        exit_code = getattr(error, "exit_code", None)
        kind = KINDS[exit_code] if exit_code in KINDS else type(error).__name__
        return {"exit": exit_code, "kind": kind, **told(str(error), flag_of(error))}


def answer_of_command(question: Question) -> Answer:
    """Return what a command prints with ``--json``, and the files that it writes into ``out``."""
    shutil.rmtree("out", ignore_errors=True)
    Path("out").mkdir()
    exit_code, out, err = run_command([*question.text.split(), "--json"])
    answer: Answer = {"exit": exit_code, "kind": KINDS.get(exit_code, "unknown")}
    if exit_code in (0, 4):
        answer["json"] = json.loads(out)
    else:
        answer |= {"printed": bool(out), **told(err.removeprefix("perfsim: "))}
    files = sorted(path for path in Path("out").rglob("*") if path.is_file())
    if files:
        answer["files"] = {path.as_posix(): content_of(path) for path in files}
    return answer


def flag_of(error: Exception) -> str:
    """Return the flag of the field that a refusal is about, "" where it is about none."""
    field = str(getattr(error, "field", "")).partition(".")[0]
    name = {"options": "set", "fusion_options": "set"}.get(field, field)
    return f"--{name.replace('_', '-')}" if name else ""


def told(sentence: str, flag: str = "") -> Answer:
    """Return a refusal's sentence, and the flag that it is about, where it begins with one."""
    found = re.match(r"(?:[\w.-]+\.toml: )?(--[a-z-]+)", sentence)
    lines = [line.strip() for line in sentence.splitlines()]
    said = " ".join(line for line in lines if "errors.pydantic.dev" not in line)
    return {"about": found[1] if found else flag, "said": said.strip()}


def content_of(path: Path) -> Any:
    """Return what a file holds: its tables, rows or objects, numbers as numbers."""
    text = path.read_text()
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".toml":
        return tomllib.loads(text)
    lines = text.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    return {"comments": comments, "rows": [[cell_of(cell) for cell in row] for row in rows]}


def cell_of(text: str) -> str | int | float:
    """Return what a cell of a table holds."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def answer_of(question: Question) -> Answer:
    """Return the answer to a question as it is stored; the present folder is a ``workplace``."""
    command = question.through == "command"
    answer = answer_of_command(question) if command else answer_in_python(question)
    text = json.dumps(answer)
    today = time.strftime("%Y-%m-%d"), time.strftime("%Y-%m-%d", time.gmtime())
    for found, name in (
        (os.getcwd(), "WORKPLACE"),
        (str(ROOT), "CHECKOUT"),
        *((day, "TODAY") for day in today),
    ):
        text = text.replace(found, name)
    plain: Answer = json.loads(text)
    return plain


@contextmanager
def workplace() -> Iterator[None]:
    """Work in a new folder that holds the files of ``oracle/inputs``, and no profiles."""
    os.environ.pop("PERFSIM_PATH", None)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
        with chdir(folder):
            yield


def answer_some(questions: Sequence[Question]) -> list[tuple[str, Answer, float]]:
    """Return name, answer and seconds of each question, asked in this process."""
    found = []
    with workplace():
        for question in questions:
            start = time.process_time()
            answer = answer_of(question)
            found.append((question.name, answer, time.process_time() - start))
    return found


def answer_all(questions: Sequence[Question], workers: int) -> list[tuple[str, Answer, float]]:
    """Return the same, asked in so many processes."""
    if workers == 1:
        return answer_some(questions)
    size = max(1, min(40, len(questions) // workers))
    parts = [questions[start : start + size] for start in range(0, len(questions), size)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        return [one for part in pool.map(answer_some, parts) for one in part]


@cache
def questions_here() -> list[Question]:
    """Return all questions about what ships with this checkout."""
    with workplace():
        return all_questions(_names, _asked_by)


@cache
def _names(kind: str) -> list[str]:
    """Return the names of one kind, sorted: the first column of ``perfsim list``."""
    exit_code, out, err = run_command(["list", kind, "--json"])
    if exit_code:
        raise SystemExit(f"oracle: perfsim list {kind}: {err}")
    return sorted({str(next(iter(row.values()))) for row in json.loads(out)["rows"]})


def _asked_by(scenario: str) -> str:
    """Return the command that a shipped scenario is for, without what only a terminal needs."""
    _, out, _ = run_command(["show", "scenario", scenario, "--json"])
    command = str(json.loads(out).get("command") or "").removeprefix("perfsim ")
    return re.sub(r" --(timeline|format \w+)", "", command)
