"""A method's description as a person reads it in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.report.terminal import print_lines

__all__ = ["print_method"]

COLUMNS = 80
TITLES = {
    "what_is_sent": "what is sent",
    "kernels": "when, by which calls and kernels",
    "bytes_a_rank": "bytes a rank",
    "memory": "memory",
    "left_out": "left out",
    "remarks": "options and implementations",
}


def print_method(found: Mapping[str, Any]) -> None:
    """Print a description by ``perfsim.method_description``, section by section."""
    print_lines([f"{found['method']}: {found['summary']}"], most=COLUMNS)
    facts = {
        "family": found["family"],
        "learns as ssgd": "yes" if found["learns_as_ssgd"] else "no",
        "fusion": f"{found['default_fusion']}, unless --fusion asks for another",
        "needs": found["needs"],
    }
    print_lines([f"{name:16}{fact}" for name, fact in facts.items()], "  ", " " * 18, COLUMNS)
    for name, title in TITLES.items():
        if found[name]:
            _section(title, [found[name]])
        if name == "bytes_a_rank":
            print_lines([f"by default {found['wire_by_default']}"], "  ", "    ", COLUMNS)
            print_lines([f"with {found['wire_symbols']}"], "  ", "    ", COLUMNS)
    print("\noptions (--set NAME=VALUE)" + ("" if found["options"] else ": none"))
    for option in found["options"]:
        value = "none" if option["default"] in ("", None) else option["default"]
        first = f"{option['option']} = {value}   ({option['allowed']})"
        only = f"only with {option['only_with']}" if option["only_with"] else ""
        print_lines([first], "  ", "      ", COLUMNS)
        print_lines([text for text in (option["what"], only) if text], "      ", "      ", COLUMNS)
    _section("paper and code", found["source"].split("; "))
    _section("accuracy record", [found["accuracy_record"]])


def _section(title: str, lines: list[str]) -> None:
    print(f"\n{title}")
    print_lines(lines, "  ", "    " if len(lines) > 1 else "  ", COLUMNS)
