"""A scenario in one cell of a table: ``net=10gbe; method=topk; options.density=0.01``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.scenario import read_scenario

__all__ = ["nested", "parse", "text_of"]


def parse(text: str, name: str) -> dict[str, Any]:
    """Return the fields that a cell states, by name; ``name`` is the row's, for the message.

    Raises
    ------
    RequestError
        If a part is not field=value, or a field stands twice.

    Examples
    --------
    >>> parse("method=topk; options.density=0.01", "a-1")
    {'method': 'topk', 'options.density': '0.01'}
    """
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        field, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not field or not value:
            raise RequestError(name, f"scenario: {part!r} is not field=value, as method=topk.")
        if field in found:
            raise RequestError(name, f"scenario: {field!r} stands twice.")
        found[field] = value
    return found


def text_of(fields: Mapping[str, Any]) -> str:
    """Return fields as a cell states them.

    Examples
    --------
    >>> text_of({"method": "topk", "overlap": False})
    'method=topk; overlap=false'
    """
    return "; ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in fields.items()
    )


def nested(fields: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Return fields as a scenario has them: ``options.x`` below options, over ``scenario``'s file.

    Raises
    ------
    RequestError
        If the scenario that is named is neither shipped nor a file.
    """
    told = dict(fields)
    made: dict[str, Any] = {}
    if "scenario" in told:
        made = dict(read_scenario(catalog.scenario(str(told.pop("scenario"))))["scenario"])
    for name, value in told.items():
        outer, _, inner = name.partition(".")
        if inner:
            made[outer] = {**made.get(outer, {}), inner: value}
        else:
            made[name] = value
    return made
