"""Where flags of fusion apply to all methods at once, and where a method keeps its own fusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim import fusion
from perfsim.errors import unknown_option
from perfsim.methods import load_method, method_names
from perfsim.scenario import Scenario

__all__ = ["WHY_KEPT", "check_fusion_options", "for_method"]

PLAIN_FUSION = "size"
"""S-SGD's own fusion. Methods with another are what they are by it, too."""

WHY_KEPT = {
    "--fusion": "is for methods that fuse as ssgd, as another fusion is part of what a method is",
    "--bucket": "is for fusion that does not set its own sizes",
    "--set": "is for fusion policies that have it",
}


def for_method(scenario: Scenario, name: str) -> tuple[Scenario, list[str]]:
    """Return the scenario for one method, and the flags of fusion that do not apply to it.

    ``--fusion`` applies to methods that fuse as ssgd, ``--bucket`` and ``--set fusion.NAME=VALUE``
    to those whose fusion takes them; where one does not apply, the method keeps its own.
    """
    own = _own(name, scenario.options)
    changes: dict[str, Any] = {"method": name}
    kept = []
    used = scenario.fusion or own
    if own not in (used, PLAIN_FUSION):
        changes["fusion"], used = None, own
        kept.append(f"--fusion {scenario.fusion}")
    policy = fusion.load(used)
    if scenario.bucket and policy.LIMIT_BYTES is None:
        changes["bucket"] = None
        kept.append(f"--bucket {scenario.bucket}")
    strange = [option for option in scenario.fusion_options if option not in policy.OPTIONS]
    if strange:
        known = scenario.fusion_options.items()
        changes["fusion_options"] = {key: value for key, value in known if key not in strange}
        kept += [f"--set fusion.{option}" for option in strange]
    return scenario.model_copy(update=changes), kept


def check_fusion_options(scenario: Scenario) -> None:
    """Refuse an option of fusion that no method's fusion has."""
    used = {for_method(scenario, name)[0].fusion or _own(name, {}) for name in method_names()}
    known = {option for name in used for option in fusion.load(name).OPTIONS}
    for option in scenario.fusion_options:
        if option not in known:
            raise unknown_option("--set: ", "fusion", option, known)


def _own(name: str, options: Mapping[str, Any]) -> str:
    return load_method(name, options).default_fusion()
