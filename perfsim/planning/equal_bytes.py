"""Equal bytes: set density, rank or bits so that all compressors send about as much.

What a GPU sends in an iteration is the measure: of one method as it is asked for, or S-SGD's over a
compression ratio. Only compressors of gradients (`COMPRESSING`) are set; others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import method_class, method_name
from perfsim.methods.base import COMPRESSING
from perfsim.methods.fusion_settings import for_method
from perfsim.prediction import predict_iteration
from perfsim.scenario import Scenario
from perfsim.units import format_bytes

__all__ = ["SETTINGS", "EqualBytes", "equal_bytes", "settings_of"]

SETTINGS = ("density", "rank", "bits")
"""Options that set how much a method sends: it rises with each of them."""

_MIN_DENSITY, _MAX_RANK = 1e-6, 4096
"""The least density and the largest rank that are tried. Chosen: beyond what anyone published."""
_DENSITY_DIGITS = 3
"""Digits of a density, as a user would type them."""
_CLOSE = 0.01
"""Share of the target within which a density is found. Chosen: below what one digit more moves."""
_MAX_TRIES = 30
"""Steps to a density. Chosen: halving alone would need 20 of them."""

MAX_OFF = 1.5
"""Factor by which the nearest rank or number of bits may miss what is to be sent. Chosen: next to
it ranks 1 and 2 differ by more."""


class EqualBytes(NamedTuple):
    """The scenarios of methods that send about as much, and why others cannot.

    ``unset`` are the methods that stay as they are: they are no compressors of gradients.
    """

    asked: dict[str, Scenario]
    refused: dict[str, str]
    notes: list[str]
    unset: frozenset[str] = frozenset()


def equal_bytes(
    measure: str, asked: Mapping[str, Scenario], plain: Scenario, catalog: Catalog
) -> EqualBytes:
    """Set the option of each method that compresses so that it sends what ``measure`` says.

    Parameters
    ----------
    measure : a method that is compared, or a ratio such as 100 (S-SGD's bytes over 100)
    asked : by method, its scenario; an option among `SETTINGS` must not be set, but for the method
        that is the measure
    plain : the scenario of S-SGD

    Raises
    ------
    RequestError
        If the measure is neither, or an option that is to be set is given already.
    """
    target, reference = _target(measure, asked, plain, catalog)
    others = [name for name in asked if name != reference]
    unset = frozenset(one for one in others if method_class(one).family not in COMPRESSING)
    result, refused, words = dict(asked), {}, []
    for name in others:
        if name in unset:
            continue
        scenario = asked[name]
        given = [option for option in SETTINGS if option in scenario.options]
        if given:
            raise RequestError(
                "equal_bytes", f"sets {given[0]} of {name}; leave `options` {given[0]} out."
            )
        try:
            own = predict_iteration(for_method(scenario, name)[0], catalog).scenario.options
        except RequestError:  # the method does not apply: the ranking says why
            continue
        found = _set(name, scenario, own, target, catalog)
        if isinstance(found, str):
            refused[name] = found
            del result[name]
        else:
            result[name], sent = found
            words.append(f"{name} {format_bytes(sent)}")
    what = f"what {reference} sends" if reference else f"1/{float(measure):g} of S-SGD's bytes"
    note = f"`equal_bytes`: {what} a GPU, {format_bytes(target)}: {', '.join(words)}."
    return EqualBytes(result, refused, [note] if words else [], unset)


def _target(
    measure: str, asked: Mapping[str, Scenario], plain: Scenario, catalog: Catalog
) -> tuple[float, str]:
    """Return the bytes that each is to send, and the method that sends them, if any."""
    try:
        ratio = float(measure)
    except ValueError:
        reference = method_name(measure, "equal_bytes")
        if reference not in asked:
            raise RequestError(
                "equal_bytes", f"{reference} is not among the methods compared.", value=measure
            ) from None
        return _sent(reference, asked[reference], catalog), reference
    if not 1.0 <= ratio <= 1e6:
        why = f"{measure} is not allowed: a ratio must be 1 to 1,000,000."
        raise RequestError("equal_bytes", why, value=measure)
    return _sent("ssgd", plain, catalog) / ratio, ""


def _sent(name: str, scenario: Scenario, catalog: Catalog) -> float:
    found = predict_iteration(for_method(scenario, name)[0], catalog)
    return found.communication["bytes_per_gpu"]


def _set(
    name: str, scenario: Scenario, own: Mapping[str, Any], target: float, catalog: Catalog
) -> tuple[Scenario, float] | str:
    """Return a method's scenario that sends nearest to ``target``, or why there is none.

    ``own`` are the options that it has.
    """
    option = next((one for one in SETTINGS if one in own), "")
    if not option:
        return "has no density, rank or bits to set"

    def asked(value: float) -> Scenario:
        return scenario.model_copy(update={"options": {**scenario.options, option: value}})

    def sent(value: float) -> float:
        return _sent(name, asked(value), catalog)

    least, most = _limits(name, option)
    value: float
    if words := _words(name, option):
        value = min(words, key=lambda word: _off(sent(word), target))
    elif option == "density":
        value = _density(sent, target, most)
    else:
        value = _whole(sent, target, int(least), int(most))
    bytes_sent = sent(value)
    if _off(bytes_sent, target) > MAX_OFF:
        return (
            f"sends {format_bytes(bytes_sent)} with {option} {value:g}, not {format_bytes(target)}"
        )
    return asked(value), bytes_sent


def _off(bytes_sent: float, target: float) -> float:
    """Return by what factor what is sent misses the target."""
    return max(bytes_sent, target) / min(bytes_sent, target) if bytes_sent else float("inf")


def _words(name: str, option: str) -> tuple[int, ...]:
    """Return the values that an option is one of; none where it may be any between two limits."""
    kind = method_class(name).model_fields[option].annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


def _limits(name: str, option: str) -> tuple[float, float]:
    """Return the least and the largest value that an option may have."""
    least, most = 1.0, 1.0 if option == "density" else float(_MAX_RANK)
    for one in method_class(name).model_fields[option].metadata:
        least, most = getattr(one, "ge", least), getattr(one, "le", most)
    return least, most


def _density(sent: Callable[[float], float], target: float, most: float = 1.0) -> float:
    """Return the density, to three digits, that sends ``target`` bytes or nearest to it.

    ``most`` is the largest that the method takes.

    Examples
    --------
    >>> _density(lambda density: 1e6 * density + 20, 1e4), _density(lambda density: density, 5.0)
    (0.00998, 1.0)
    """
    low, high = _MIN_DENSITY, most
    low_bytes, high_bytes = sent(low), sent(high)
    if target <= low_bytes or target >= high_bytes:
        return low if target <= low_bytes else high
    density = low
    for _ in range(_MAX_TRIES):
        share = (target - low_bytes) / (high_bytes - low_bytes)
        density = float(f"{low + share * (high - low):.{_DENSITY_DIGITS}g}")
        found = sent(density)
        if abs(found / target - 1.0) <= _CLOSE or density in (low, high):
            break
        if found < target:
            low, low_bytes = density, found
        else:
            high, high_bytes = density, found
    return density


def _whole(sent: Callable[[float], float], target: float, least: int, most: int) -> int:
    """Return the whole number that sends nearest to ``target``, as a ratio.

    Examples
    --------
    >>> _whole(lambda rank: 100.0 * rank, 450.0, 1, 4096), _whole(lambda bits: bits, 1.0, 2, 16)
    (5, 2)
    """
    low, high = least, most
    while low < high:  # the first that sends no less
        middle = (low + high) // 2
        low, high = (low, middle) if sent(middle) >= target else (middle + 1, high)
    if low > least and target / sent(low - 1) < sent(low) / target:
        return low - 1
    return low


def settings_of(options: Mapping[str, Any]) -> str:
    """Return density, rank or bits of a method in words, "" where it has none.

    Examples
    --------
    >>> settings_of({"density": 0.001}), settings_of({"rank": 4, "bits": 8}), settings_of({})
    ('0.1%', 'rank 4', '')
    >>> settings_of({"packing": "bits"}), settings_of({"bits": 8, "packing": "bytes"})
    ('1 bit', '8 bits')
    """
    if "density" in options:
        return f"{100 * float(options['density']):.3g}%"
    if "rank" in options:
        return f"rank {options['rank']}"
    if "bits" in options:
        return f"{options['bits']} bits"
    return _PACKED.get(str(options.get("packing", "")), "")


_PACKED = {"bits": "1 bit", "bit2byte": "1 bit", "two_bits": "2 bits", "bytes": "8 bits"}
"""How much of a value each packing of signs sends."""
