"""Apply a scenario's settings of fusion to each method: those that the method takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim import fusion
from perfsim.errors import unknown_option
from perfsim.methods import load_method, method_names
from perfsim.scenario import Scenario

__all__ = ["WHY_KEPT", "check_fusion_options", "for_method"]

_PLAIN_FUSION = "size"
"""S-SGD's own fusion. In a ranking, a method with another fusion keeps that."""

WHY_KEPT = {
    "fusion": "applies only to methods that fuse as ssgd; the others define their own fusion",
    "bucket": "applies only to fusion policies that do not set their own sizes",
    "options": "applies only to fusion policies that have this option",
}
"""By field: why a setting of fusion does not apply to every method."""


def for_method(scenario: Scenario, name: str) -> tuple[Scenario, list[str]]:
    """Return the scenario for one method, and the settings of fusion that do not apply to it.

    `fusion` applies to methods that fuse as ssgd. `bucket` and `fusion_options` apply to methods
    whose fusion takes them. Where a setting does not apply, the method keeps its own.
    """
    own = _own(name, scenario.options)
    changes: dict[str, Any] = {"method": name}
    kept = []
    used = scenario.fusion or own
    if own not in (used, _PLAIN_FUSION):
        changes["fusion"], used = None, own
        kept.append(f"`fusion` {scenario.fusion}")
    policy = fusion.load_policy(used)
    if scenario.bucket and policy.limit_bytes is None:
        changes["bucket"] = None
        kept.append(f"`bucket` {scenario.bucket}")
    foreign = [option for option in scenario.fusion_options if option not in policy.options]
    if foreign:
        known = scenario.fusion_options.items()
        changes["fusion_options"] = {key: value for key, value in known if key not in foreign}
        kept += [f"`fusion_options.{option}`" for option in foreign]
    return scenario.model_copy(update=changes), kept


def check_fusion_options(scenario: Scenario) -> None:
    """Refuse a fusion option that no method's fusion has.

    Raises
    ------
    RequestError
        If there is such an option.
    """
    used = {for_method(scenario, name)[0].fusion or _own(name, {}) for name in method_names()}
    known = {option for name in used for option in fusion.load_policy(name).options}
    for option in scenario.fusion_options:
        if option not in known:
            raise unknown_option("fusion", option, known, field="fusion_options")


def _own(name: str, options: Mapping[str, Any]) -> str:
    return load_method(name, options).default_fusion()
