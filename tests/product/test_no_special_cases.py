"""Code knows mechanisms, not cases: no measured id, cluster or model is named in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import perfsim
from perfsim.data.catalog import Catalog

PACKAGE = Path(perfsim.__file__).parent
MODELS_FOLDER = PACKAGE / "models"
"""Where models are defined, by name."""

DEFAULTS = {"10gbe", "pcie3", "v100"}
"""Defaults of the command line (DESIGN.md section 6)."""

WORDS = {"lstm", "gpt2", "slingshot"}
"""Names that are also a kind of layer, Hugging Face's word for a family, and a transport."""

ID = re.compile(r"^[a-z][a-z0-9]{1,6}(-[a-z]+)*-\d{3}$")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and value of the strings of a file, without docstrings and help."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    told = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    told |= {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def test_code_names_no_measured_case_cluster_or_model() -> None:
    catalog = Catalog()
    networks = set(catalog.files("networks")) - DEFAULTS
    models = {stem.split(".")[0] for stem in catalog.files("models")}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        names = (networks if MODELS_FOLDER in path.parents else networks | models) - WORDS
        found += [
            f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
            for line, text in texts(path)
            if text in names or ID.match(text)
        ]
    assert not found, found
