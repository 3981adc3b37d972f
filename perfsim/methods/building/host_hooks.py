"""What the host runs around modules under ZeRO-3, beside launching them.

DeepSpeed's hooks around each module are Python that gathers its tensors, waits, frees them and
counts gradients. Where modules are small, many or run again, that is what an iteration takes.
Times are measured by tests/scripts/sharding_host.py (PyTorch 2.13, DeepSpeed 0.19.8) on one core of
an AMD EPYC without a GPU; streams, events and launches of a GPU are not in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfsim.compute.execution import execution_of
from perfsim.compute.profile import Gradient, Profile
from perfsim.compute.recompute import RECOMPUTE
from perfsim.fusion.policies import block_units

__all__ = ["ZERO3_S", "HookTimes", "with_host", "zero3_host_s"]


class HookTimes(NamedTuple):
    """What the host takes longer, forward and backward [s]."""

    forward_s: float
    backward_s: float

    def times(self, count: float, again: int = 0) -> float:
        """Return both passes of so many, whose forward pass runs ``again`` times more."""
        return count * (self.forward_s * (1 + again) + self.backward_s)


ZERO3_S = {
    "sharded": HookTimes(259e-6, 254e-6),
    "whole": HookTimes(136e-6, 184e-6),
    "without tensors": HookTimes(98e-6, 56e-6),
}
"""Of a module whose tensors are sharded, of one whose tensors stay whole for their size, and of one
without any."""

_MODULES_OF_BLOCK = 4
"""Modules of a block without tensors of their own: the block, its attention, its MLP and what that
has for an activation (transformers 5, modeling_llama.py, modeling_qwen3.py)."""
_MODULES_OF_EXPERT = 2
"""Those of an expert that is a module: itself and its activation."""


def zero3_host_s(profile: Profile, persistence: int, software: str, recompute: str) -> float:
    """Return what the host takes longer by ZeRO-3 for both passes [s].

    Hooks run again around modules that are computed again.

    Parameters
    ----------
    persistence : values of the largest tensor that stays whole
    """
    execution = execution_of(software)
    if execution.captured:
        return 0.0
    again = int(recompute == RECOMPUTE[-1])
    parameters = profile.all_parameters()
    layers: dict[int, list[Gradient]] = {}
    for one in parameters:
        layers.setdefault(one.layer, []).append(one)
    sharded = whole = 0
    for tensors in layers.values():
        modules = max(_split([one], execution.looped) for one in tensors)
        if max(one.elements for one in tensors) > persistence * modules:
            sharded += modules
        else:
            whole += modules
    found = ZERO3_S["sharded"].times(sharded, again) + ZERO3_S["whole"].times(whole, again)
    experts = max((_experts(one, execution.looped) for one in parameters), default=0)
    blocks = len(block_units(parameters))
    empty = blocks * (_MODULES_OF_BLOCK + _MODULES_OF_EXPERT * experts)
    return found + ZERO3_S["without tensors"].times(empty, again)


def _experts(parameter: Gradient, looped: bool) -> int:
    """Return how many experts a parameter is of that a loop runs one by one; 0 of others."""
    return parameter.shape[0] if looped and len(parameter.shape) == _EXPERTS_AXES else 0


_EXPERTS_AXES = 3
"""Axes of a tensor of all experts: experts, rows, columns."""


def _split(parameters: Iterable[Gradient], looped: bool) -> int:
    """Return how many parameters these are where each expert of a loop has its own.

    Examples
    --------
    >>> gate_up = Gradient("mlp.experts.gate_up_proj", (8, 200, 100), 0.0, 0)
    >>> _split([gate_up], looped=False), _split([gate_up], looped=True)
    (1, 16)
    """
    return sum(max(1, _experts(one, looped) * (1 + ("gate_up" in one.name))) for one in parameters)


def with_host(profile: Profile, more_s: float) -> Profile:
    """Return a profile whose host takes so much longer for both passes [s].

    Passes take longer where the host then needs more time than the GPU.
    """
    passes_s = profile.forward_s + profile.backward_s
    if not more_s or not passes_s:
        return profile
    return profile.with_shares(profile.host_share + more_s / passes_s, profile.device_share)
