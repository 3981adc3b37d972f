"""What of a scenario can be tuned: fusion size, all-reduce algorithm, options of its method."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfsim.errors import RequestError, unknown
from perfsim.fusion.size import FIRST_LIMIT_BYTES
from perfsim.library import AUTO
from perfsim.library import library as find_library
from perfsim.methods import load_method, method_class, method_name
from perfsim.resolve import Resolved

__all__ = [
    "KNOBS",
    "Knob",
    "Value",
    "choices",
    "current",
    "first_bucket",
    "knobs",
    "refuse",
    "with_value",
]

Value = float | str
"""Bytes of a bucket, a share, a whole number (as a float), or an algorithm's name."""


@dataclass(frozen=True, slots=True)
class Knob:
    """Something that can be set, and where to look for its best value.

    Parameters
    ----------
    name : bucket, density, rank, interval or algorithm
    unit : of its values, for column names ("bytes"; "" for numbers and names)
    low, high : the range looked at; both 0 for names
    factor : from one place of the coarse grid to the next
    whole : whether only whole numbers are allowed
    gentle : which end changes learning least, "high" or "low"; "" where it changes nothing
    why : what it does to learning, as a sentence
    """

    name: str
    unit: str = ""
    low: float = 0.0
    high: float = 0.0
    factor: float = 2.0
    whole: bool = False
    gentle: str = ""
    why: str = ""


KNOBS: dict[str, Knob] = {
    "bucket": Knob("bucket", "bytes", 2.0**16, 2.0**40),
    "density": Knob(
        "density",
        low=1e-4,
        high=1.0,
        factor=10.0**0.5,
        gentle="high",
        why="A lower density sends less of each gradient and changes convergence: time alone"
        " cannot say which density is best.",
    ),
    "rank": Knob(
        "rank",
        low=1.0,
        high=256.0,
        whole=True,
        gentle="high",
        why="A lower rank keeps less of each gradient and changes convergence: time alone cannot"
        " say which rank is best.",
    ),
    "interval": Knob(
        "interval",
        low=1.0,
        high=256.0,
        whole=True,
        gentle="low",
        why="A longer interval lets the models drift apart and changes convergence: time alone"
        " cannot say which interval is best.",
    ),
    "algorithm": Knob("algorithm"),
}
"""In the order in which they are shown."""


def knobs(resolved: Resolved) -> list[Knob]:
    """Return what can be tuned in a scenario."""
    options = method_class(resolved.scenario.method).model_fields
    found = []
    for name, knob in KNOBS.items():
        if name == "bucket":
            if resolved.policy.LIMIT_BYTES is not None:
                # Beyond the whole model all sizes are one bucket.
                whole = resolved.profile.size_bytes
                found.append(replace(knob, high=min(knob.high, max(whole, 2.0 * knob.low))))
        elif name == "algorithm" or name in options:
            found.append(knob)
    return found


def current(resolved: Resolved, knob: Knob) -> Value:
    """Return the value that the scenario has."""
    if knob.name == "bucket":
        return resolved.limit_bytes or resolved.policy.LIMIT_BYTES or 0.0
    if knob.name == "algorithm":
        return resolved.scenario.algorithm
    return float(getattr(resolved.method, knob.name))


def choices(resolved: Resolved) -> dict[str, str]:
    """Return auto and the algorithms of all-reduce that the library has, with what each needs.

    "" for those that the library takes by itself.
    """
    library = find_library(resolved.cluster.library)
    own = library.considered("all_reduce")
    names = library.names("all_reduce")
    needs = {name: library.algorithm("all_reduce", name).needs for name in names}
    return {AUTO: ""} | {name: "" if name in own else needs[name] for name in names}


def first_bucket(resolved: Resolved) -> float | None:
    """Return DDP's first bucket where its default holds, which a size for all would change [B]."""
    if resolved.policy_name != "size" or resolved.limit_bytes is not None:
        return None
    return None if "first_bucket" in resolved.scenario.fusion_options else FIRST_LIMIT_BYTES


def with_value(resolved: Resolved, knob: Knob, value: Value) -> Resolved:
    """Return the question with a knob at a value.

    Raises
    ------
    RequestError
        If the method does not take it.
    """
    scenario = resolved.scenario
    if knob.name == "bucket":
        first = first_bucket(resolved)
        if first is not None:
            sizes = {**scenario.fusion_options, "first_bucket": f"{min(first, float(value)):.0f}B"}
            scenario = scenario.model_copy(update={"fusion_options": sizes})
        return replace(resolved, scenario=scenario, limit_bytes=float(value))
    if knob.name == "algorithm":
        changed = scenario.model_copy(update={"algorithm": str(value)})
        return replace(resolved, scenario=changed)
    given = str(int(value)) if knob.whole else value
    options = {**scenario.options, knob.name: given}
    method = load_method(method_name(scenario.method), options)
    changed = scenario.model_copy(update={"options": options})
    return replace(resolved, scenario=changed, method=method)


def refuse(knob: str, resolved: Resolved) -> RequestError:
    """Return the error for something that this scenario cannot be tuned over."""
    found = [one.name for one in knobs(resolved)]
    method = method_name(resolved.scenario.method)
    if knob not in KNOBS:
        return unknown("--over", knob, KNOBS)
    if knob == "bucket":
        return RequestError(
            f"--over: 'bucket' has no meaning with fusion {resolved.policy_name!r}, which sets its"
            f" own sizes; here: {', '.join(found)}."
        )
    return RequestError(f"--over: {method!r} has no {knob}; it has {', '.join(found)}.")
