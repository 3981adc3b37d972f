"""Which methods are compared, and which options go to which of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsim.errors import RequestError, unknown
from perfsim.methods import AUTO, load_method, method_class, method_name, method_names
from perfsim.scenario import Scenario

__all__ = ["chosen_methods", "options_of_each", "own_method"]

FIELD = "--methods"


def own_method(scenario: Scenario) -> str | None:
    """Return the method that a scenario states, None where it states none or ``auto``.

    Examples
    --------
    >>> own_method(Scenario(model="resnet50", gpus=8, method="DGC"))
    'dgc'
    >>> own_method(Scenario(model="resnet50", gpus=8)) is None
    True
    """
    if "method" not in scenario.model_fields_set or scenario.method.lower() == AUTO:
        return None
    return method_name(scenario.method)


def chosen_methods(given: str | Iterable[str] | None, own: str | None) -> list[str]:
    """Return the methods to compare: all, or those named and the scenario's own.

    Raises
    ------
    RequestError
        If one does not exist, or none is named.

    Examples
    --------
    >>> chosen_methods("topk, DGC,topk", "ssgd")
    ['topk', 'dgc', 'ssgd']
    """
    if given is None:
        return method_names()
    texts = given.split(",") if isinstance(given, str) else list(given)
    texts = [text.strip() for text in texts]
    if not any(texts):
        raise RequestError(
            f"{FIELD}: {given!r} names no method; a list such as ssgd,topk,dgc is needed."
        )
    if any(text.lower() == AUTO for text in texts):
        raise RequestError(f"{FIELD}: auto is no method; leave {FIELD} out to compare all.")
    named = [method_name(text, FIELD) for text in texts if text]
    return list(dict.fromkeys([*named, own] if own else named))


def options_of_each(
    scenario: Scenario, own: str | None, names: Sequence[str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options that each method is compared with.

    The scenario's options are for its own method. Of ``options``, ``name`` goes to all methods that
    have it and ``method.name`` to one, over the former.

    Raises
    ------
    RequestError
        If no method has an option, or none that has it allows its value.
    """
    every = {**({} if own else scenario.options), **options}
    found = {name: dict(scenario.options) if name == own else {} for name in names}
    holders = {}
    for option in sorted(every, key=lambda option: "." in option):
        holders[option] = _holders(option, names)
        for name in holders[option]:
            found[name][option.rpartition(".")[2]] = every[option]
    wrong = {name: error for name in names if (error := _refusal(name, found[name]))}
    if own in wrong and scenario.options:
        raise wrong[own]
    for having in holders.values():
        if all(name in wrong for name in having):
            raise wrong[having[0]]
    return found


def _holders(option: str, names: Sequence[str]) -> list[str]:
    """Return the methods that an option is for, as it is written: ``name`` or ``method.name``."""
    of, one, plain = option.rpartition(".")
    if one:
        name = method_name(of, "--set")
        if name not in names:
            raise RequestError(f"--set {option}: {name} is not among the methods compared.")
        load_method(name, {})
        having = [name] if plain in method_class(name).model_fields else []
        among = sorted(method_class(name).model_fields)
    else:
        having = [name for name in names if plain in method_class(name).model_fields]
        among = sorted({field for name in names for field in method_class(name).model_fields})
    if not having:
        raise unknown("--set", plain, among)
    return having


def _refusal(name: str, options: Mapping[str, Any]) -> RequestError | None:
    try:
        load_method(name, options)
    except RequestError as error:
        return error
    return None
