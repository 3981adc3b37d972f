"""Which keys the JSON of every command has, beside those that perfsim/JSON.md describes.

``python tests/scripts/json_keys.py`` prints the keys that are not described and those that no
answer has; a test runs the same. Keys come from the oracle's stored answers, from a few answers
that are quick to ask for, and from the code of commands that measure on machines.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.calibrate.measure.kernel_files import KernelLine
from perfsim.data.catalog import Catalog
from perfsim.data.tables import flat_record
from perfsim.doctor import Diagnosis, Part
from perfsim.first_scenario import INIT_SCHEMA
from perfsim.inventory import (
    DerivedRate,
    GpuRow,
    InventoryItem,
    LinkRow,
    NodeDescription,
    NodeRow,
    describe_thing,
)
from perfsim.pipeline import PIPELINE_ANSWER_SCHEMA, predict_pipeline, read_pipeline
from perfsim.planning.rows import FULL_SWEEP_COLUMNS
from perfsim.scenario import SCENARIO_FIELDS
from scripts.oracle import STORE, stored_answers
from support.paths import ROOT

DOCUMENT = ROOT / "perfsim" / "JSON.md"

COMMON = "In every answer"
"""The section of keys that mean the same wherever they stand."""

ASKED_OF_MANY = frozenset(
    ["gpus", "models", "networks", "methods", "compared", "sizes", "none", "refused"]
)
"""Groups of the oracle whose answers have no keys that others have not."""

OBJECTS: dict[str, frozenset[str]] = {
    "prediction": frozenset(["iteration_s", "breakdown_s", "samples_per_s", "scenario"]),
    "scenario": frozenset(["model", "method", "gpus", "fusion", "intra_net", "bucket_bytes"]),
    "parts": frozenset(["forward", "backward", "communication_exposed"]),
    "learning": frozenset(["basis", "epochs_factor", "fell_short"]),
    "choice": frozenset(["gpu_hours", "surely_in_time"]),
    "errors": frozenset(["count", "median", "p90", "worst"]),
}
"""Objects that stand in several answers, and keys by which each is known."""

NAMES = {
    "options|fusion_options": "option",
    "vary": "field",
    "memory_bytes": "part",
    "learning|left_out|kept_own_fusion": "method",
    "winners_by_software": "software",
    r"tuned\[\]\.(needs|refused)": "value",
    r"critical_path\[\]\.by_kind_s": "kind",
    r"claims\[\]\.ours": "setting",
    "ready_s": "gradient",
    "families": "cluster",
    "questions": "question",
    "bands": "band",
    "collectives": "collective",
    "others": "way",
    r"(.*\.)?limits": "figure",
    r"varied\[\]\.values": "name",
    r"throughput\.mfu": "way",
    "links": "link",
    r"ranks_measured": "link",
    "matrix_rates_flop_per_s": "precision",
}
"""Objects whose keys are names of things, and what those are."""

TEXTS = {r"kernel [\w-]+": "kernel <kernel>", r"matrix rate [\w-]+": "matrix rate <precision>"}
"""Keys of `show gpu` that name a thing within."""

SHOWN = {"gpu": ("h100",), "net": ("10gbe", "p4d-a100-efa400"), "model": ("gpt2", "resnet50")}
"""Things that `show` is asked for here."""

TABLES: dict[str, type[InventoryItem]] = {
    "perfsim/list/1 gpus": GpuRow,
    "perfsim/list/1 networks": LinkRow,
    "perfsim/list/1 nodes": NodeRow,
    "perfsim/show/1 node": NodeDescription,
}
"""Answers that take long to ask for, and the classes of their rows."""

MEASURING = {
    "perfsim/calibrate-compute/1": "profile.py",
    "perfsim/calibrate-kernels/1": "kernel_runs.py",
    "perfsim/calibrate-beside/1": "overlap.py",
}
"""Answers that need GPUs or hosts, and the file of perfsim/calibrate/measure that makes each."""

SEARCHED = ROOT / "perfsim" / "planning" / "parallelism.py"
"""What makes the divisions of `tune`, which take long to search."""

_Keys = dict[str, set[str]]
_PLAIN = (str, int, float, bool, type(None))


def collected() -> _Keys:
    """Return the keys of every answer by its section of the document."""
    found: _Keys = {}
    for section, result in _asked_here():
        _walk(found, section, "", result)
    for section, row in TABLES.items():
        head = "rows[]." if "list" in section else ""
        found[section] = {"schema", "kind", *(head + key for key in _keys_of(row))}
    found["perfsim/show/1 node"] |= {f"rates[].{key}" for key in _keys_of(DerivedRate)}
    for schema, file in MEASURING.items():
        found[schema] = set(_written_keys(ROOT / "perfsim" / "calibrate" / "measure" / file))
    found["perfsim/calibrate-kernels/1"] |= {f"kernels[].{one.name}" for one in fields(KernelLine)}
    found[INIT_SCHEMA] = set(_written_keys(ROOT / "perfsim" / "first_scenario.py"))
    found["CSV columns"] = {*FULL_SWEEP_COLUMNS, *_csv_columns()}
    found["division"] = {*_written_keys(SEARCHED), "tp", "pp", "cp", "ep", "etp"}
    here = set(found)
    groups = {path.name.partition(".")[0] for path in STORE.glob("*.json.gz")}
    for answer in stored_answers(sorted(groups - ASKED_OF_MANY)).values():
        stored = answer.get("json")
        if isinstance(stored, dict) and (section := _section(stored)) not in here:
            _walk(found, section, "", stored)
    return {section: _leaves(keys) for section, keys in found.items()}


def _asked_here() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield answers that are quick to ask for."""
    part, catalog = Part("", "", ""), Catalog()
    yield "perfsim/doctor/1", Diagnosis("", "", "", {}, [part], [part]).to_dict()
    sites = read_pipeline(STORE / "inputs" / "two-sites.toml")
    yield PIPELINE_ANSWER_SCHEMA, predict_pipeline(replace(sites, kept=0.05)).to_dict()
    for kind, names in SHOWN.items():
        for name in names:
            shown = describe_thing(kind, name, catalog).to_dict()
            yield f"perfsim/show/1 {kind}", {"schema": "perfsim/show/1", "kind": kind} | shown


def _csv_columns() -> Iterator[str]:
    """Yield the columns of a prediction in the CSV of `compare`, without those of its scenario."""
    stored = next(one["json"] for one in stored_answers(["options"]).values() if "json" in one)
    for column in flat_record(stored, ()):
        if column != "options":
            yield re.sub(r"memory_\w+_bytes", "memory_<part>_bytes", column)


def _section(result: dict[str, Any]) -> str:
    """Return the section of an answer: its schema, with the kind of `list` and `show`."""
    schema = str(result["schema"])
    if schema == "perfsim/prediction/1":
        return "prediction"
    return (
        f"{schema} {result['kind']}" if schema in ("perfsim/list/1", "perfsim/show/1") else schema
    )


def _walk(found: _Keys, section: str, path: str, value: Any) -> None:
    """Add the keys below one value; an object of several answers has a section of its own."""
    own = found.setdefault(section, set())
    if isinstance(value, list):
        below = [one for one in value if isinstance(one, (dict, list)) and one]
        own.add(path)
        for one in below:
            if isinstance(one, dict):
                _walk(found, section, f"{path}[]", one)
        return
    if not isinstance(value, dict) or not value:
        own.add(path)
        return
    kind = next((one for one, keys in OBJECTS.items() if keys <= value.keys()), None)
    if path and (kind or path.rpartition(".")[2] == "scenario"):
        own.add(path)
        if kind is None:
            return  # A scenario as it was stated: its keys are the fields of a file.
        section, path = kind, ""
        found.setdefault(section, set())
    for key, below in value.items():
        if below.__class__ in _PLAIN:
            found[section].add(_below(path, key))
        else:
            _walk(found, section, _below(path, key), below)


@cache
def _below(path: str, key: str) -> str:
    """Return the path of a key, by the words that the document has for it."""
    place = next((name for names, name in NAMES.items() if re.fullmatch(names, path)), None)
    said = next((words for text, words in TEXTS.items() if re.fullmatch(text, key)), key)
    said = f"<{place}>" if place else said
    return f"{path}.{said}" if path else said


def _keys_of(row: type[InventoryItem]) -> Iterator[str]:
    """Yield the keys of a row by its class."""
    for one in fields(row):  # type: ignore[arg-type]
        yield row.JSON_KEYS.get(one.name, one.name)


def _written_keys(path: Path) -> Iterator[str]:
    """Yield the keys that a file's ``to_dict`` writes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "to_dict":
            for one in ast.walk(node):
                if isinstance(one, ast.Dict):
                    keys = (key for key in one.keys if isinstance(key, ast.Constant))
                    yield from (str(key.value) for key in keys)


def _leaves(keys: set[str]) -> set[str]:
    """Return keys without those whose parts are there too."""
    parts = {key: [at.start() for at in re.finditer(r"\.|\[\](?=.)", key)] for key in keys}
    above = {key[:end] for key, ends in parts.items() for end in ends}
    whole = {f"{key}[]" for key in above} | above
    return {key for key in keys - whole if f"{key}[]" not in keys}


def described() -> _Keys:
    """Return the keys that the document describes, by section."""
    found: _Keys = {}
    section = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if head := re.match(r"## `?([^`(:]+?)`?(:| \(|$)", line):
            section = head[1]
        elif row := re.match(r"\| `(.+?)` \|", line):
            found.setdefault(section, set()).add(row[1])
    return found


def differences() -> list[str]:
    """Return the keys that are not described, and those that are described and not there."""
    there, said = collected(), described()
    common = said.pop(COMMON, set())
    there["scenario"] -= set(SCENARIO_FIELDS)
    lines = []
    for section in sorted({*there, *said}):
        own, known = there.get(section, set()), said.get(section, set())
        lines += [f"not described: {section}: {key}" for key in sorted(own - known - common)]
        lines += [f"not there: {section}: {key}" for key in sorted(known - own)]
    every = set().union(*there.values())
    return lines + [f"not there: {COMMON}: {key}" for key in sorted(common - every)]


if __name__ == "__main__":
    different = differences()
    print("\n".join(different) or "Every key is described.")
    sys.exit(bool(different))
