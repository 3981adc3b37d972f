"""GPUs as a user names them: one type, or several with how many there are of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.errors import RequestError
from perfsim.limits import shown

__all__ = ["gpu_words", "parse_types"]


def parse_types(text: str, field: str = "--gpu") -> tuple[tuple[str, int], ...]:
    """Return the types of GPU and how many there are of each; () where only a name is given.

    Types are separated by commas or by plus signs (in a list of values, where a comma ends one).

    Raises
    ------
    RequestError
        If it is not said how many there are of a type.

    Examples
    --------
    >>> parse_types("v100:16,p100:8"), parse_types("v100:16+p100:8"), parse_types("v100")
    ((('v100', 16), ('p100', 8)), (('v100', 16), ('p100', 8)), ())
    """
    if not any(sign in text for sign in ",+:"):
        return ()
    found = []
    for part in text.replace("+", ",").split(","):
        name, _, count = (piece.strip() for piece in part.partition(":"))
        if not name or not count.isdecimal() or int(count) < 1:
            raise RequestError(
                f"{field}: {shown(text)} does not say how many there are of each type; write"
                " TYPE:GPUS,TYPE:GPUS such as v100:16,p100:16."
            )
        found.append((name, int(count)))
    return tuple(found)


def gpu_words(scenario: Mapping[str, Any]) -> str:
    """Return how many GPUs of which types a prediction's scenario has.

    Examples
    --------
    >>> gpu_words({"gpus": 8, "gpu": "v100"}), gpu_words({"gpus": 8, "gpu": "v100:4,p100:4"})
    ('8 x v100', '4 x v100 + 4 x p100')
    """
    one = f"{scenario['gpus']} x {scenario['gpu']}"
    types = parse_types(str(scenario["gpu"]))
    return " + ".join(f"{count} x {name}" for name, count in types) or one
