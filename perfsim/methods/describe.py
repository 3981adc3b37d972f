"""Describe a method from its own file: what it sends, keeps and leaves out, and its options."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, get_args

from perfsim.compute.profile import Gradient
from perfsim.data.catalog import Catalog
from perfsim.methods import ALIASES, method_class, method_name
from perfsim.methods.base import FIDELITY_OPTIONS, Method
from perfsim.methods.learning import known_evidence, same_update, summaries

__all__ = ["by_default", "describe_method", "fidelity", "sections"]

_MARKS = {"Bytes a rank": "bytes_a_rank", "Memory": "memory", "Left out": "left_out"}
_MARK = re.compile(r"\b(Bytes a rank|Memory|Left out)((?:,| \()[^:.]{0,60})?: ")
_WIRE_SYMBOLS = (
    "P ranks on equal hops; a matrix of n = rows x columns values; k of them kept; r the rank"
)
_UPDATE = {
    True: "launched tensor by tensor once the host has waited for the exchanges",
    False: "launched ahead of the GPU; the host does not wait",
}
_LARGE = Gradient("large", (2**12, 2**12), 0.0, 0)
"""A matrix that no method leaves out as too small to compress."""
_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def describe_method(name: str, catalog: Catalog) -> dict[str, Any]:
    """Describe one method: what it sends, keeps and leaves out, its options and how it learns.

    Raises
    ------
    RequestError
        If there is no such method.
    """
    cls, own = method_class(name), method_name(name)
    known = known_evidence(catalog)
    learnt = [one for one in known if same_update(one.method) == same_update(own)]
    return {
        "method": own,
        "summary": cls.summary,
        **sections(inspect.getdoc(cls) or ""),
        "levels": cls.levels,
        "wire": cls.wire,
        "wire_by_default": by_default(cls),
        "wire_symbols": _WIRE_SYMBOLS,
        "options": [_option(cls, option) for option in cls.model_fields],
        "default_fusion": cls().default_fusion(),
        "also_called": [other for other, named in ALIASES.items() if named == own],
        "fidelity": fidelity(cls),
        "code_base": cls().code_base().name,
        "update": _UPDATE[cls().code_base().waits],
        "family": cls.family,
        "learns_as_ssgd": not cls.lossy,
        "learning": summaries(learnt),
        "evidence": [one._asdict() for one in learnt],
        "needs": cls.needs or "nothing besides GPUs and a network",
        "source": cls.citation,
    }


def fidelity(cls: type[Method]) -> str:
    """Return how much of a gradient a method keeps by default: density, rank, bits; else "".

    Examples
    --------
    >>> [fidelity(method_class(name)) for name in ("topk", "powersgd", "signsgd", "ssgd")]
    ['density 0.001', 'rank 4', '1 bit a value', '']
    """
    method = cls()
    kept = method.in_effect()
    stated = [f"{name} {kept[name]:g}" for name in FIDELITY_OPTIONS if name in kept]
    quantises = cls.family in ("dense", "quantisation") and cls.holds_gathers
    if stated or not cls.lossy or not quantises:
        return ", ".join(stated)
    bits = round(8 * method.message_bytes(_LARGE, 0) / _LARGE.elements, 1)
    return f"{bits:g} {'bit' if bits == 1 else 'bits'} a value"


def sections(docstring: str) -> dict[str, str]:
    """Return the parts of a method's docstring, as plain text on one line each.

    ``what_is_sent`` is its first paragraph. ``kernels`` is the text before the first mark ("Bytes a
    rank:", "Memory:", "Left out:"). ``remarks`` are later paragraphs that begin with no mark.

    Examples
    --------
    >>> parts = sections("Sends ``k``. Memory: none. Left out: all.")
    >>> parts["what_is_sent"], parts["memory"], parts["left_out"]
    ('Sends k.', 'none.', 'all.')
    """
    paragraphs = [" ".join(part.split()) for part in docstring.split("\n\n")]
    mark = _MARK.search(paragraphs[0])
    first = paragraphs[0][: mark.start()].strip() if mark else paragraphs[0]
    rest = [paragraphs[0].removeprefix(first), *paragraphs[1:]]
    parts = dict.fromkeys(("what_is_sent", "kernels", *_MARKS.values(), "remarks"), "")
    parts["what_is_sent"] = first
    marked = False
    for paragraph in rest:
        # The split gives texts and the pattern's groups: text, mark, condition, text, ...
        before, *pieces = _MARK.split(paragraph)
        if before.strip():
            _add(parts, "remarks" if marked else "kernels", before)
        for word, condition, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            marked = True
            when = (condition or "").strip(", ")
            _add(parts, _MARKS[word], f"{when}: {text}" if when else text)
    return {name: text.replace("`", "") for name, text in parts.items()}


class _Chosen(ast.NodeTransformer):
    """A transformer that replaces each choice by options with the branch of the defaults."""

    def __init__(self, defaults: dict[str, Any]) -> None:
        self.defaults = defaults

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        used = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
        if not used <= set(self.defaults):
            return self.generic_visit(node)
        code = compile(ast.Expression(node.test), "wire", "eval")
        taken = node.body if eval(code, {"__builtins__": {}}, self.defaults) else node.orelse
        return self.visit(taken)  # type: ignore[no-any-return]


def by_default(cls: type[Method]) -> str:
    """Return a method's ``wire`` for its default options.

    Examples
    --------
    >>> by_default(method_class("topk"))
    '(P - 1) * 8 * k'
    """
    tree = _Chosen(cls().model_dump()).visit(ast.parse(cls.wire, mode="eval"))
    return ast.unparse(tree)


def _add(parts: dict[str, str], name: str, text: str) -> None:
    parts[name] = f"{parts[name]} {text.strip()}".strip()


def _option(cls: type[Method], option: str) -> dict[str, Any]:
    field = cls.model_fields[option]
    return {
        "option": option,
        "default": field.default,
        "allowed": _allowed(field),
        "what": field.description or "",
        "only_with": "; ".join(mark.words() for mark in cls.only_with(option)),
    }


def _allowed(field: Any) -> str:
    """Return the allowed values of an option, in words."""
    choices = get_args(field.annotation)
    kind, optional = field.annotation, ""
    if type(None) in choices:
        kind, optional = choices[0], ", or none"
    elif choices:
        return " or ".join(map(str, choices))
    words = {
        "gt": "above",
        "ge": "at least",
        "lt": "below",
        "le": "at most",
        "multiple_of": "a multiple of",
    }
    limits = [
        f"{word} {_number(getattr(limit, key))}"
        for limit in field.metadata
        for key, word in words.items()
        if hasattr(limit, key)
    ]
    return f"{_KINDS.get(kind, kind.__name__)} {' and '.join(limits)}".strip() + optional


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
