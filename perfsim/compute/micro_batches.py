"""What adding up the gradients of an iteration's micro-batches moves in memory.

Megatron-LM's products add to what is there (gradient_accumulation_fusion). Otherwise a kernel of
its own reads the sum and what a micro-batch made, and writes the sum. PyTorch's AccumulateGrad
takes the first micro-batch's gradient as the sum. A sum that is wider than the gradients is a
tensor of its own, to which those of the first, and of an only one, are added too
(microsoft/DeepSpeed runtime/bf16_optimizer.py, ``_update_hp_grad``; NVIDIA/Megatron-LM
core/tensor_parallel/layers.py, ``wgrad_gemm_accum_fp32`` into ``main_grad``).
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.execution import execution_of
from perfsim.compute.host_offload import with_passes
from perfsim.compute.profile import Profile, precision_bytes

__all__ = ["added_bytes", "with_added"]

_WAITS = 0.6
"""Share of the extra memory traffic of adding up that makes a product longer; its operations hide
the rest. A product that adds to an fp32 sum moves 6 bytes a parameter more than one that writes
bf16. It takes as long as 3.7 of them do, the median of 61 products on an A100, and 3.2 on a B200
(226; derived from MooreThreads/SimuMax@4dcaae51, Apache-2.0, configs/system/a100_pcie.json and
b200_bf16_ceperm.json: each weight gradient beside the two other products of its layer)."""


def added_bytes(
    precision: str, era: str, kept: float, micro_batches: int, *, casts_weights: bool = False
) -> float:
    """Return the memory traffic that adds a micro-batch's gradient of one parameter to the sum [B].

    It is the mean of all micro-batches of an iteration.

    Parameters
    ----------
    precision, era : that the model computes in, and its software
    kept : bytes of a value of the sum
    micro_batches : of an iteration
    casts_weights : whether a gradient was cast to the type of the sum before, as under autocast

    Examples
    --------
    >>> added_bytes("amp-bf16", "torch2", 4.0, 2), added_bytes("amp-bf16", "megatron", 4.0, 2)
    (10.0, 3.5999999999999996)
    >>> added_bytes("fp32", "torch2", 4.0, 2), added_bytes("fp32", "torch2", 4.0, 4)
    (6.0, 9.0)
    """
    made = kept if casts_weights else precision_bytes(precision)
    if execution_of(era).adds_in_products:
        return _WAITS * max(0.0, 2.0 * kept - made)
    own_sum = made != kept
    return (made + 2.0 * kept) * (1.0 if own_sum else 1.0 - 1.0 / micro_batches)


def with_added(profile: Profile, seconds_each: float) -> Profile:
    """Return a profile whose backward pass adds gradients up, for so long a parameter [s]."""
    return profile.lately((seconds_each,), lambda: _with_added(profile, seconds_each))


def _with_added(profile: Profile, seconds_each: float) -> Profile:
    more = [0.0] * len(profile.layers)
    for gradient in profile.gradients:
        more[gradient.layer] += seconds_each * gradient.elements
    return with_passes(profile, [1.0] * len(more), _longer(profile, more))


def _longer(profile: Profile, more: Sequence[float]) -> list[float]:
    """Return how many times as long each layer's backward pass takes; one of no length stays."""
    return [
        1.0 + seconds / layer.backward_s if layer.backward_s else 1.0
        for layer, seconds in zip(profile.layers, more, strict=True)
    ]
