"""Files hold one idea and functions can be read at once: neither grows past a stated length."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "perfsim"

MOST_LINES = 300
MOST_BODY = 40
"""Lines of a function without its signature and docstring."""


def bodies(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each function of a module and the lines of its body."""
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            body = one.body if ast.get_docstring(one) is None else one.body[1:]
            if body:
                yield one.name, (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def test_files_and_functions_are_short() -> None:
    long = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(PACKAGE)
        found = [one for one in bodies(text) if one[1] > MOST_BODY]
        long += [f"{where}: {name} has {n} lines" for name, n in found]
    for path in (*PACKAGE.rglob("*.py"), *TESTS.rglob("*.py")):
        n = path.read_text(encoding="utf-8").count("\n")
        if n > MOST_LINES:
            long.append(f"{path.name} has {n} lines")
    assert not long, long


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f(\n    a,\n):\n    return a\n", 1),
        (
            'def f(a):\n    """Say.\n\n    More.\n    """\n    b = a\n\n    return (\n        b)\n',
            4,
        ),
        ('def f():\n    """Say nothing."""\n', 0),
    ],
)
def test_a_body_is_what_follows_the_docstring(text: str, lines: int) -> None:
    assert sum(number for _, number in bodies(text)) == lines
