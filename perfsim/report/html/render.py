"""Fill the templates of the HTML pages: every value is escaped unless a template says otherwise.

Templates stand in ``templates/``, styles and scripts in ``assets/``. A page holds them all, so
that it opens without a network; Plotly's script is in it compressed, and the browser inflates it.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsim.errors import spelled

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["PLOTLY_SCRIPT", "render"]

_FOLDER = Path(__file__).parent

PLOTLY_SCRIPT = _FOLDER / "assets" / "plotly" / "plotly-basic.min.js"
"""Plotly's basic bundle, which ships with perfsim."""

_MIN_WHOLE = 1e6
"""Numbers from here on are shown without decimals."""


_MAX_PLAIN = 150_000
"""Letters of JSON that stand in a page as they are; the browser inflates what is longer."""


def render(template: str, **values: object) -> str:
    """Return the page that a template makes of ``values``.

    Examples
    --------
    >>> from perfsim.report.drawing import Drawing
    >>> drawing = Drawing("a<b", [], 1, 1)
    >>> page = render("network.html.j2", title="a<b", drawing=drawing, paragraphs=[])
    >>> "<h1>a&lt;b</h1>" in page
    True
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finished,
    )
    environment.globals.update(asset=_asset, island=_island, packed=_packed_asset)
    environment.filters.update(
        exact=repr,
        rounded=_rounded,
        g=lambda number: f"{number:g}",
        fixed=lambda number: f"{number:.1f}",
    )
    return environment


def _finished(value: Any) -> Any:
    """Return a text as a page shows it: fields as the reader knows them, no control characters."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    text = spelled(_MICROSECONDS.sub("µs", value))
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


_MICROSECONDS = re.compile(r"(?<=\d )us\b")
"""What `perfsim.units.format_seconds` writes in ASCII."""


def _asset(name: str) -> Markup:
    """Return a style or a script of ``assets/`` as it is."""
    from markupsafe import Markup

    return Markup((_FOLDER / "assets" / name).read_text(encoding="utf-8"))


@cache
def _packed_asset(name: str) -> str:
    """Return a file of ``assets/`` as `_packed` does."""
    return _packed((_FOLDER / "assets" / name).read_bytes())


def _packed(data: bytes) -> str:
    """Return bytes as gzip in base64, which states no time."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _rounded(number: float) -> str:
    whole = float(number).is_integer() or abs(number) >= _MIN_WHOLE
    return f"{number:,.0f}" if whole else f"{number:.6g}"


def _island(name: str, value: Any) -> Markup:
    """Return an element that holds JSON, which cannot end it; much is compressed."""
    from markupsafe import Markup

    text = spelled(json.dumps(value, allow_nan=False))
    if len(text) > _MAX_PLAIN:
        held = _packed(text.encode())
        return Markup('<script type="application/gzip" id="{}">{}</script>').format(name, held)
    for letter in "&<>":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))
