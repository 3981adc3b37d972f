"""A notebook's cells, run in order as a kernel runs them, without Jupyter."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["code_of", "read_notebook", "run_cells"]


def read_notebook(path: Path) -> dict[str, Any]:
    """Return a notebook as its file has it."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_of(notebook: dict[str, Any]) -> list[str]:
    """Return the text of each cell of code, in order."""
    return ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]


def run_cells(cells: list[str]) -> Iterator[Any]:
    """Run cells in one namespace and yield what each shows: the value of its last line, or None."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(cells, 1):
        body = ast.parse(text, f"cell {number}")
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, f"cell {number}", "exec"), names)
        if last is None:
            yield None
            continue
        shown = ast.Expression(last.value)
        yield eval(compile(shown, f"cell {number}", "eval"), names)
