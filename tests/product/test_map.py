"""The map of the code (perfsim/README.md) names what is there, and leaves no room out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.paths import PACKAGE, ROOT

MAP = (PACKAGE / "README.md").read_text(encoding="utf-8")
NAMED = MAP.partition("## Recipes")[0]
"""The part that says where things are; recipes make files of their own."""

FILE = r"`([\w./]+\.(?:py|csv|toml|js))`"


def path_of(name: str) -> Path:
    """Return where a name of the map should be: in the package, or beside it."""
    inside = PACKAGE / name
    return inside if inside.exists() else ROOT / name


def defined(path: Path) -> set[str]:
    """Return what a module defines, members of classes as ``Class.member``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in names(inner)}
    return found


def names(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign):
        return {ast.unparse(node.target)}
    return {ast.unparse(one) for one in node.targets} if isinstance(node, ast.Assign) else set()


def test_files_of_the_map_are_there() -> None:
    files = set(re.findall(FILE, NAMED))
    short = {name for name in files if not path_of(name).exists()}
    # A name alone stands beside the file or folder that its row names before it.
    everywhere = [f"/{path}" for path in (*PACKAGE.rglob("*"), *(ROOT / "profiles").rglob("*"))]
    assert len(files) > 80
    assert [one for one in short if not any(path.endswith(f"/{one}") for path in everywhere)] == []


def test_functions_of_the_map_are_there() -> None:
    pairs = re.findall(FILE + r"(?:,|:) `([A-Za-z_]\w*(?:\.\w+)?)`", NAMED)
    wrong = [
        (name, what)
        for name, what in pairs
        if not what.endswith((".py", ".toml")) and what not in defined(path_of(name))
    ]
    assert len(pairs) > 40 and wrong == []


def test_every_room_and_file_at_the_top_is_in_the_map() -> None:
    rows = [line.split("|")[1] for line in NAMED.splitlines() if line.startswith("| `")]
    told = {name.strip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    here = {
        path.name
        for path in PACKAGE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    } - {"__init__.py", "__main__.py"}
    assert here - told == set()
    rooms = {name for name in told if "/" not in name and not name.endswith(".py")}
    assert {name for name in rooms if not (PACKAGE / name).is_dir()} == set()
