"""Options of a method that have an effect only beside others, and values of the wrong kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel

__all__ = ["SET", "OnlyWith", "choices_read", "truth_for_number"]


class _Set:
    """Stands for any value but the option's default."""


SET = _Set()
"""``OnlyWith(warmup_epochs=SET)``: where warmup_epochs is not its default."""


class OnlyWith:
    """Marks an option that has an effect only where others have one of some values.

    Each keyword is another option of the same method: a value, a tuple of values, or ``SET``.
    All of them must hold. Written beside the type:
    ``bits: Annotated[int, OnlyWith(compress="qsgd")] = Field(8, ...)``.

    Examples
    --------
    >>> OnlyWith(compress="qsgd").words()
    'compress=qsgd'
    >>> OnlyWith(codec=("a", "b"), warmup_epochs=SET, schedule="").words()
    'codec=a or b, warmup_epochs set, schedule not set'
    """

    def __init__(self, **allowed: object) -> None:
        self.allowed: Mapping[str, object] = allowed

    def unmet(self, options: BaseModel) -> str:
        """Return what takes the effect away and how to have it, as the end of a sentence, or ""."""
        for name, allowed in self.allowed.items():
            value = getattr(options, name)
            if allowed is SET:
                met = value != type(options).model_fields[name].default
            else:
                met = value in _values(allowed)
            if not met:
                remedy = f"leave {name} out" if allowed == "" else f"set {_words(name, allowed)}"
                return f"with {name}={value}; {remedy.removesuffix(' set')}"
        return ""

    def words(self) -> str:
        """Return what it is for."""
        return ", ".join(_words(name, allowed) for name, allowed in self.allowed.items())


def _values(allowed: object) -> tuple[object, ...]:
    return allowed if isinstance(allowed, tuple) else (allowed,)


def _words(name: str, allowed: object) -> str:
    if allowed is SET:
        return f"{name} set"
    if allowed == "":
        return f"{name} not set"
    return f"{name}={' or '.join(map(str, _values(allowed)))}"


def truth_for_number(model: type[BaseModel], values: object) -> str:
    """Return the first field whose value is true or false where a number is due, or "".

    True would be taken as 1.
    """
    if not isinstance(values, Mapping):
        return ""
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or not isinstance(value, bool):
            continue
        kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
        if bool not in kinds and (int in kinds or float in kinds):
            return str(name)
    return ""


def choices_read(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Return values with text as a whole number where the choices are such: "2" of 2 or 4."""
    read = dict(values)
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is not None and isinstance(value, str) and value.isascii() and value.isdecimal():
            whole = [one for one in get_args(field.annotation) if isinstance(one, int)]
            read[name] = next((one for one in whole if str(one) == value), value)
    return read
