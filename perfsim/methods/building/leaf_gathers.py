"""Gathers of ZeRO-3: leaf modules gathered ahead of use, in the order of a recorded trace.

DeepSpeed's coordinator runs in the hook before each module of both passes. It gathers what the
module lacks, then gathers ahead along the trace, all in one message, as long as not too many
parameters are whole. After a module it frees what is not used again soon. What it does depends on
sizes alone, so that `leaf_fetches` runs it without times.

References
----------
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020
(arXiv 1910.02054). Code: deepspeedai/DeepSpeed at 00a31c99, deepspeed/runtime/zero/
partitioned_param_coordinator.py, fetch_sub_module, release_sub_module and __params_to_release.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, NamedTuple

from pydantic import Field

from perfsim.methods.base import Job, JobRepeats, JobStage, MethodContext, PassPoint, Send
from perfsim.methods.building.host_copies import copy_in
from perfsim.methods.building.layerwise import LayerStarts

__all__ = [
    "GatherLimits",
    "LeafFetch",
    "MaxLive",
    "MaxReuseDistance",
    "PersistenceThreshold",
    "PrefetchBucket",
    "fetch_jobs",
    "leaf_fetches",
    "leaf_gathers",
    "leaf_modules",
    "persistent_elements",
]


class GatherLimits(NamedTuple):
    """Limits of DeepSpeed's coordinator, in values; its defaults.

    ``prefetch`` is gathered ahead in one hook (stage3_prefetch_bucket_size). A tensor of up to
    ``persistence`` values is never sharded (stage3_param_persistence_threshold). Nothing is
    gathered ahead while ``live`` are whole (stage3_max_live_parameters). What is used again within
    ``reuse`` is not freed (stage3_max_reuse_distance).
    """

    prefetch: int = 50_000_000
    persistence: int = 100_000
    live: int = 1_000_000_000
    reuse: int = 1_000_000_000


_Values = Annotated[int, Field(ge=0, le=10**12)]
PrefetchBucket = Annotated[_Values, Field(description="values gathered ahead in one hook")]
PersistenceThreshold = Annotated[_Values, Field(description="largest tensor never sharded")]
MaxLive = Annotated[_Values, Field(description="gathered values that stop gathers ahead")]
MaxReuseDistance = Annotated[_Values, Field(description="values until reuse that keep a layer")]
"""Options of methods that give these limits; each has the default of `GatherLimits`."""


class LeafFetch(NamedTuple):
    """One message: the hook that issues it, the first one that needs it, and what it brings.

    Hooks count the modules of the forward pass, then those of the backward pass.

    Parameters
    ----------
    elements, tensors : how many values, of how many tensors
    again : whether this iteration has gathered them before; where messages are not kept apart by
        that, False
    """

    hook: int
    first_use: int
    elements: int
    tensors: int = 1
    again: bool = False


def leaf_fetches(
    modules: Sequence[Sequence[int]], limits: GatherLimits, *, apart: bool = False
) -> list[LeafFetch]:
    """Return the gathers of one forward and backward pass, in order of issue.

    Parameters
    ----------
    modules : sizes of the tensors of each leaf module, in forward order
    apart : whether a hook sends what was gathered before in a message of its own, which goes first

    Examples
    --------
    >>> for fetch in leaf_fetches([[400], [300], [200]], GatherLimits(250, 10, 10**9, 500)):
    ...     print(fetch.hook, fetch.first_use, fetch.elements)
    0 0 400
    0 1 300
    1 2 600
    >>> # The last holds the first module again: the two others stay whole until it needs them.
    """
    trace = [*range(len(modules)), *reversed(range(len(modules)))]
    tensors = [
        [(module, index) for index in range(len(sizes))] for module, sizes in enumerate(modules)
    ]
    size = {tensor: modules[tensor[0]][tensor[1]] for of in tensors for tensor in of}
    kept = {tensor for tensor, elements in size.items() if elements <= limits.persistence}
    queue = deque((tensor, step) for step, module in enumerate(trace) for tensor in tensors[module])
    whole, fetched_for = set(kept), dict.fromkeys(size, -1)
    before = set[tuple[int, int]]()
    # Values of the modules after each.
    after = [*accumulate(map(sum, reversed(modules)), initial=0)][-2::-1]
    live, found = 0, list[LeafFetch]()

    def fetch(step: int, needed: dict[tuple[int, int], int]) -> int:
        """Gather tensors, each for the step that needs it; return how many values they have."""
        for again in (True, False) if apart else (False,):
            some = [tensor for tensor in needed if not apart or (tensor in before) == again]
            if some:
                elements = sum(size[tensor] for tensor in some)
                first_use = min(needed[tensor] for tensor in some)
                found.append(LeafFetch(step, first_use, elements, len(some), again))
        whole.update(needed)
        before.update(needed)
        return sum(size[tensor] for tensor in needed)

    for step, module in enumerate(trace):
        own = tensors[module]
        missing = [tensor for tensor in own if tensor not in whole]
        live += fetch(step, dict.fromkeys(missing, step))
        for _ in [tensor for tensor in own if fetched_for[tensor] < step]:
            tensor, at = queue.popleft()
            fetched_for[tensor] = at
        ahead, elements = dict[tuple[int, int], int](), 0
        room = min(limits.live - live, limits.prefetch)
        while queue and elements < room:
            tensor, at = queue.popleft()
            fetched_for[tensor] = max(fetched_for[tensor], at)
            if tensor not in whole and tensor not in ahead:
                ahead[tensor] = at
                elements += size[tensor]
        live += fetch(step, ahead)
        # Between both uses of a module, the later ones run forward and backward.
        again = step < len(modules) and 2 * after[step] < limits.reuse
        for tensor in own:
            if tensor not in kept and not again and fetched_for[tensor] <= step + 1:
                whole.discard(tensor)
                live -= size[tensor]
    return found


def persistent_elements(modules: Sequence[Sequence[int]], limits: GatherLimits) -> int:
    """Return the values of the tensors that are never sharded."""
    return sum(size for sizes in modules for size in sizes if size <= limits.persistence)


def leaf_gathers(
    world: MethodContext, limits: GatherLimits, value_bytes: float, *, from_host: bool = False
) -> list[Job]:
    """Return the gathers of both passes: each begins at its hook, its first module waits for it.

    ``from_host`` says whether a rank's part of each tensor comes from the host first.

    Raises
    ------
    ValueError
        If the context has no profile.
    """

    def gather(fetch: LeafFetch) -> list[JobStage]:
        send = Send("all_gather", value_bytes * fetch.elements)
        if not from_host:
            return [send]
        return [copy_in(value_bytes * fetch.elements / world.ranks, fetch.tensors), send]

    return fetch_jobs(world, leaf_fetches(leaf_modules(world), limits), gather)


def fetch_jobs(
    world: MethodContext,
    fetches: Sequence[LeafFetch],
    gather: Callable[[LeafFetch], Sequence[JobStage]],
    name: str = "fetch",
    repeats: JobRepeats = "exchange",
) -> list[Job]:
    """Return a job for each message: it begins at its hook, and its first module waits for it.

    Parameters
    ----------
    gather : makes the stages of one message
    name : begins the names of the jobs
    repeats : the micro-batches in which they run

    Raises
    ------
    ValueError
        If the context has no profile.
    """
    starts = LayerStarts.of(world)
    last = len(starts.forward_s) - 1

    def point(step: int) -> PassPoint:
        if step <= last:
            return PassPoint("forward", starts.forward_s[step])
        return PassPoint("backward", starts.backward_s[2 * last + 1 - step])

    return [
        Job(
            f"{name} {number}",
            tuple(gather(fetch)),
            point(fetch.hook),
            point(fetch.first_use),
            repeats=repeats,
        )
        for number, fetch in enumerate(fetches)
    ]


def leaf_modules(world: MethodContext, *, updated: bool = False) -> list[list[int]]:
    """Return the sizes of the tensors of each layer, in forward order.

    ``updated`` leaves out those that are frozen.
    """
    profile = world.given_profile()
    sizes: list[list[int]] = [[] for _ in profile.layers]
    if not updated:
        for frozen in profile.frozen:
            sizes[frozen.layer].append(math.prod(frozen.shape))
    for gradient in profile.gradients:
        sizes[gradient.layer].append(gradient.elements)
    return sizes
