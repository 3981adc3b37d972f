"""Public functions say what they give, and in which unit they take what has a dimension."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.paths import PACKAGE

DIMENSION = re.compile(
    r"(^|_)(rates?|sizes?|bandwidth|latency|alpha|beta|gamma|times?|seconds|durations?)$"
)
UNIT = re.compile(
    r"\[[^\]]*\b(s|B|bytes|ms|us|FLOP)\b[^\]]*\]|\bbytes\b|B/s|\bseconds\b|s/B|\bunits?\b|samples"
)


def public(text: str) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module that others may call."""
    tree = ast.parse(text)
    told = re.search(r"^__all__ = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    names = set(re.findall(r'"(\w+)"', told[1])) if told else None
    for one in tree.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_"):
            continue
        if names is None or one.name in names:
            yield one


def unsaid(one: ast.FunctionDef) -> list[str]:
    """Return a function's arguments that are numbers with a dimension that nothing states.

    A name that ends in its unit (``_s``, ``_bytes``) states it; else the docstring has to.
    """
    text = ast.get_docstring(one) or ""
    numbers = (a for a in one.args.args + one.args.kwonlyargs if a.annotation is not None)
    names = [a.arg for a in numbers if "float" in ast.unparse(a.annotation or a)]
    return [name for name in names if DIMENSION.search(name) and not UNIT.search(text)]


def test_every_public_function_says_what_it_gives_and_its_units() -> None:
    found, silent = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for one in public(path.read_text(encoding="utf-8")):
            found += 1
            if not ast.get_docstring(one) or unsaid(one):
                silent.append(f"{path.relative_to(PACKAGE)}: {one.name} {unsaid(one)}")
    assert found > 500 and silent == []


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("def f(rate: float): 'Return it.'", ["rate"]),
        ("def f(rate: float): 'Return it; rate [B/s].'", []),
        ("def f(rate_s: float, name: str): 'Return it.'", []),
        ("def f(*, link_rate: float | None = None): 'Return it.'", ["link_rate"]),
    ],
)
def test_an_argument_without_a_unit_is_told(source: str, left: list[str]) -> None:
    [one] = public(source)
    assert unsaid(one) == left
