"""MG-WFBP: merge a gradient into the next one where waiting for it costs less than it saves.

Along the backward pass, with what is merged so far as one message of size m that could start at
``start = max(end of the message before, its own ready time)``, the next gradient (size m') joins
it when

    max(0, ready of the next - start) < T(m) + T(m') - T(m + m')

where T is the time of an all-reduce. For T = alpha + beta m the right side is alpha: the rule of
the paper. It also covers its other case, a next gradient that is ready before the message could
start, since then nothing is waited for. ``--bucket`` is not used.

The rule looks one gradient ahead, so that it is not always the best partition, though the paper
has it as optimal: a large message may be held back for many small ones, each less than alpha after
the one before (``optimal`` finds the best). For T = alpha + beta m and n gradients it ends at most
(n - 1) alpha later than the best: after the link last stood idle for want of any gradient, each of
them costs one alpha or a shorter wait, while the best pays one alpha and the same bytes (with
``merge_below`` a wait may be longer).

References
----------
Shi, Chu & Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
Algorithms", INFOCOM 2019 (arXiv 1811.11141), Algorithm 1. Code: HKBU-HPML/MG-WFBP,
distributed_optimizer.py, ``_generate_groups_mgwfbp``, which takes alpha and beta from a table or
from a fit at start-up; ``--set fusion.merge_alpha=... --set fusion.merge_beta=...`` does the same.
The code of HKBU-HPML/ddl-benchmarks@30de09bc (mgwfbp/hv_distributed_optimizer.py) besides merges
every message below 8192 elements into the next one: ``--set fusion.merge_below=32KiB``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.units import parse_bytes, parse_seconds, parse_seconds_per_byte

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse", "merge_cost"]

SUMMARY = "MG-WFBP: merge into the next tensor when waiting costs less than the latency saved"
OPTIONS: Mapping[str, str] = {
    "merge_alpha": "start-up time that the rule assumes (a time; default: the network's own cost)",
    "merge_beta": "time a byte that the rule assumes, such as 0.74ns/B",
    "merge_below": "messages smaller than this always join the next (default 0B)",
}
LIMIT_BYTES = None


def merge_cost(context: FusionContext) -> Callable[[float], float]:
    """Return bytes -> seconds of an all-reduce, as the rule is to believe it.

    Raises
    ------
    RequestError
        If one of ``merge_alpha`` and ``merge_beta`` is given without the other, or is no such
        quantity.
    """
    given = [name for name in ("merge_alpha", "merge_beta") if name in context.options]
    if not given:
        return context.all_reduce_s
    if len(given) == 1:
        raise RequestError(
            f"fusion.{given[0]}: merge_alpha and merge_beta go together; give both, or neither to"
            " merge by the network's own cost."
        )
    alpha_s = parse_seconds(context.options["merge_alpha"], "fusion.merge_alpha")
    beta_s_per_byte = parse_seconds_per_byte(context.options["merge_beta"], "fusion.merge_beta")
    return lambda size_bytes: alpha_s + beta_s_per_byte * size_bytes


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return the merged buckets.

    Raises
    ------
    RequestError
        If ``merge_below`` is not a size; see also ``merge_cost``.
    """
    cost_s = merge_cost(context)
    below_bytes = parse_bytes(context.options.get("merge_below", "0B"), "fusion.merge_below")
    groups: list[list[Gradient]] = []
    size_bytes = start_s = taken_s = 0.0
    for gradient in gradients:
        next_bytes = context.message_bytes(gradient)
        alone_s = cost_s(next_bytes)
        if groups:
            both_s = cost_s(size_bytes + next_bytes)
            waits_s = max(0.0, gradient.ready_s - start_s)
            if waits_s < taken_s + alone_s - both_s or size_bytes < below_bytes:
                groups[-1].append(gradient)
                size_bytes += next_bytes
                start_s, taken_s = max(start_s, gradient.ready_s), both_s
                continue
        start_s, taken_s = max(start_s + taken_s, gradient.ready_s), alone_s
        groups.append([gradient])
        size_bytes = next_bytes
    return [Bucket.of(group) for group in groups]
