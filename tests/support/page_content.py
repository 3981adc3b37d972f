"""What a page of the report holds: its tables and its data, and a string that would do harm."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

__all__ = ["HOSTILE", "Tables", "island"]

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'"


class Tables(HTMLParser):
    """The tables of a page: by id, rows of cells, a number as its element's value."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str | float]]] = {}
        self._rows: list[list[str | float]] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a table, a row or a cell, or take a number."""
        told = dict(attrs)
        if tag == "table":
            self._rows = self.found.setdefault(str(told["id"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._inside = True
            self._rows[-1].append("")
        elif tag == "data":
            self._rows[-1][-1] = float(str(told["value"]))

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        """Take a cell's text."""
        if self._inside and isinstance(self._rows[-1][-1], str):
            self._rows[-1][-1] += data


def island(page: str, name: str) -> Any:
    """Return the JSON that stands in the page under a name, as it is or compressed."""
    found = re.search(rf'<script type="application/(json|gzip)" id="{name}">(.*?)</script>', page)
    assert found
    if found[1] == "json":
        return json.loads(found[2])
    return json.loads(gzip.decompress(base64.b64decode(found[2])))
