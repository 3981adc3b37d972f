"""Fusion by cost: policies that weigh the time of an all-reduce against waiting for more."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.by_size import MessageSizes, Times, TimesBySize, arrays, as_list, one_by_one
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion import policy
from perfsim.fusion.buckets import Bucket, FusionContext
from perfsim.fusion.policies import DEAR_GROUP_BYTES, dear_groups, layer_bytes, layer_ranges
from perfsim.sums import sum_in_order
from perfsim.units import parse_bytes, parse_seconds, parse_seconds_per_byte

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["fuse_as_asc", "fuse_as_dear_tuned", "fuse_as_mgwfbp", "fuse_optimally", "merge_cost"]

MERGE_COST_OPTIONS = {
    "merge_alpha": "start-up time that the rule assumes (a time; default: the network's own cost)",
    "merge_beta": "time a byte that the rule assumes, such as 0.74ns/B",
}


def merge_cost(context: FusionContext) -> TimesBySize:
    """Return the times of an all-reduce by its size, as the rule assumes them.

    Raises
    ------
    RequestError
        If one of ``merge_alpha`` and ``merge_beta`` is given without the other, or is no such
        quantity.
    """
    given = [name for name in MERGE_COST_OPTIONS if name in context.options]
    if not given:
        return context.by_size("all_reduce")
    if len(given) == 1:
        raise RequestError(
            f"fusion_options.{given[0]}",
            "merge_alpha and merge_beta go together; give both, or neither to merge by the"
            " network's own cost.",
            value=context.options[given[0]],
        )
    alpha_s = parse_seconds(context.options["merge_alpha"], "fusion_options.merge_alpha")
    beta_s_per_byte = parse_seconds_per_byte(
        context.options["merge_beta"], "fusion_options.merge_beta"
    )
    return one_by_one(lambda size_bytes: alpha_s + beta_s_per_byte * size_bytes)


@policy(
    "mgwfbp",
    timed=True,
    summary="MG-WFBP: merge into the next tensor when waiting costs less than the latency saved",
    options=MERGE_COST_OPTIONS
    | {"merge_below": "messages smaller than this always join the next (default 0B)"},
)
def fuse_as_mgwfbp(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Merge a gradient into the next one where waiting for it costs less than it saves.

    Along the backward pass, with what is merged so far as one message of size m that could start at
    ``start = max(end of the message before, its own ready time)``, the next gradient (size m')
    joins it when

        max(0, ready of the next - start) < T(m) + T(m') - T(m + m')

    where T is the time of an all-reduce. For T = alpha + beta m the right side is alpha: the rule
    of the paper. It also covers the paper's other case, a next gradient that is ready before the
    message could start, since then nothing is waited for. `bucket` is not used.

    The rule looks one gradient ahead, so that it is not always the best partition, though the paper
    has it as optimal: a large message may be held back for many small ones, each less than alpha
    after the one before (policy optimal finds the best). For T = alpha + beta m and n gradients it
    ends at most (n - 1) alpha later than the best: after the link last stood idle for want of any
    gradient, each of them costs one alpha or a shorter wait, while the best pays one alpha and the
    same bytes (with ``merge_below`` a wait may be longer).

    Raises
    ------
    RequestError
        If ``merge_below`` is not a size; see also `merge_cost`.

    References
    ----------
    Shi, Chu & Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
    Algorithms", INFOCOM 2019 (arXiv 1811.11141), Algorithm 1. Code: HKBU-HPML/MG-WFBP,
    distributed_optimizer.py, ``_generate_groups_mgwfbp``, which takes alpha and beta from a table
    or from a fit at start-up; the options merge_alpha and merge_beta do the same. The code of
    HKBU-HPML/ddl-benchmarks@30de09bc (mgwfbp/hv_distributed_optimizer.py) besides merges every
    message below 8192 elements into the next one: the option merge_below=32KiB.
    """
    times, sent = merge_cost(context), context.sent_of(gradients)
    given = context.options.get("merge_below")
    below_bytes = parse_bytes(given, "fusion_options.merge_below") if given is not None else 0.0
    before = sent.once(("merged by MG-WFBP", below_bytes), _MergedBefore)
    cost_s, whole_s = times.of, times.of(sent.whole_bytes)
    like = before.nearest(whole_s)
    asked, merged = sent.each, _Merging(0, [], [], 0.0, 0.0, 0.0)
    if like is None:
        seconds = times.each(asked)
    else:
        asked, seconds = like.asked, times.each(like.asked)
        same = like.up_to_another_decision(seconds, sent.ready_s)
        if same is None:
            return sent.buckets(like.places)
        merged = same
    known_s = dict(zip(asked.sizes_bytes, as_list(seconds), strict=True))
    first, starts, sums_bytes, size_bytes, start_s, taken_s = merged
    for place in range(first, len(gradients)):
        next_bytes, ready_s = sent.sizes_bytes[place], gradients[place].ready_s
        alone_s = known_s[next_bytes]
        if starts:
            sum_bytes = size_bytes + next_bytes
            sums_bytes.append(sum_bytes)
            both_s = known_s.get(sum_bytes)
            if both_s is None:
                both_s = cost_s(sum_bytes)
            saves_s = taken_s + alone_s - both_s
            if (saves_s > 0.0 and ready_s - start_s < saves_s) or size_bytes < below_bytes:
                size_bytes, taken_s = sum_bytes, both_s
                start_s = max(start_s, ready_s)
                continue
        start_s, taken_s = max(start_s + taken_s, ready_s), alone_s
        starts.append(place)
        size_bytes = next_bytes
    made = _Merged(sent.each, sent.numbers, starts, sums_bytes, below_bytes)
    before.keep(whole_s, made)
    return sent.buckets(made.places)


class _Merging(NamedTuple):
    """How far MG-WFBP's rule has come.

    Parameters
    ----------
    place : the gradient that it looks at next
    starts, sums_bytes : those of `_Merged` so far
    size_bytes, start_s, taken_s : of what is merged so far, its size, when it could start, and how
        long it takes
    """

    place: int
    starts: list[int]
    sums_bytes: list[float]
    size_bytes: float
    start_s: float
    taken_s: float


class _Merged:
    """What MG-WFBP's rule merged on one network.

    On a network alike it asks for nearly the same sizes, which are priced together, and decides
    nearly the same, which arrays check quicker than it decides again.

    Parameters
    ----------
    each, numbers : the sizes of the gradients, and the number of each one's among these
    starts : where each message begins
    sums_bytes : what each gradient but the first would make together with what is merged before it
    below_bytes : size below which a message joined the next in any case
    """

    def __init__(
        self,
        each: MessageSizes,
        numbers: list[int],
        starts: list[int],
        sums_bytes: list[float],
        below_bytes: float,
    ) -> None:
        self._each, self._alone = each, numbers
        self._starts, self._sums_bytes, self._below_bytes = starts, sums_bytes, below_bytes
        self.places = tuple(pairwise([*starts, len(numbers)]))

    @cached_property
    def asked(self) -> MessageSizes:
        """The sizes of which the rule asked the time: of the gradients, then the sums."""
        return MessageSizes((*self._each.sizes_bytes, *self._sums_bytes))

    @cached_property
    def _numbers(self) -> Any:
        """Of each gradient but the first, three numbers of sizes among those asked for.

        They are of what is merged before it, of itself, and of both together.
        """
        import numpy as np

        alone, count = self._alone, len(self._each.sizes_bytes)
        sums = range(count, count + len(alone) - 1)
        before = np.array([alone[0], *sums[:-1]])
        nothing_merged = self._begins[:-1]
        before[nothing_merged] = np.array(alone)[:-1][nothing_merged]
        return np.array([before, alone[1:], sums])

    @cached_property
    def _begins(self) -> Any:
        """Whether each gradient begins a message."""
        import numpy as np

        begins = np.zeros(len(self._alone), bool)
        begins[self._starts] = True
        return begins

    @cached_property
    def _messages(self) -> tuple[Any, Any]:
        """The last gradients of all messages but the latest; how many gradients each has."""
        import numpy as np

        last = np.array(self._starts[1:], int) - 1
        return last, np.diff([*self._starts, len(self._alone)])

    def up_to_another_decision(
        self, seconds: Times, ready_s: NDArray[np.float64]
    ) -> _Merging | None:
        """Return how far the rule comes on another network until it decides otherwise there.

        None where it never does.

        Parameters
        ----------
        seconds : what the sizes asked for take there
        ready_s : when each gradient is ready
        """
        import numpy as np

        if len(self._alone) < 2:
            return None
        taken_s, alone_s, both_s = np.asarray(seconds)[self._numbers]
        last, counts = self._messages
        start_s = max(0.0, float(ready_s[0]))
        begun_s = [start_s]
        messages = taken_s[last].tolist(), ready_s[last].tolist(), ready_s[last + 1].tolist()
        for took_s, end_s, next_ready_s in zip(*messages, strict=True):
            start_s = max(max(start_s, end_s) + took_s, next_ready_s)
            begun_s.append(start_s)
        starts_s = np.maximum(np.array(begun_s).repeat(counts)[:-1], ready_s[:-1])
        saves_s = taken_s + alone_s - both_s
        joins = (saves_s > 0.0) & (ready_s[1:] - starts_s < saves_s)
        before = self._numbers[0]
        if self._below_bytes:
            joins |= self.asked.as_arrays[0][before] < self._below_bytes
        others = (joins == self._begins[1:]).nonzero()[0]
        if not len(others):
            return None
        at = int(others[0])
        return _Merging(
            at + 1,
            self._starts[: bisect_right(self._starts, at)],
            self._sums_bytes[:at],
            self.asked.sizes_bytes[before[at]],
            float(starts_s[at]),
            float(taken_s[at]),
        )


_MAX_NETWORKS = 32
"""Networks on which it is kept what was merged. No source: chosen."""


_time_s = itemgetter(0)


class _MergedBefore:
    """What MG-WFBP's rule merged on some networks, by what all gradients together took."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, _Merged]] = []

    def nearest(self, whole_s: float) -> _Merged | None:
        """Return what was merged on the network most like one; None where that does not help."""
        if not self._kept or arrays() is None:
            return None
        after = bisect_left(self._kept, whole_s, key=_time_s)
        around = self._kept[max(after - 1, 0) : after + 1]
        return min(around, key=lambda one: abs(_time_s(one) - whole_s))[1]

    def keep(self, whole_s: float, merged: _Merged) -> None:
        """Keep what was merged on a network."""
        if len(self._kept) >= _MAX_NETWORKS:
            self._kept.clear()
        insort(self._kept, (whole_s, merged), key=_time_s)


@policy(
    "asc",
    timed=True,
    summary="ASC-WFBP: merge into the next tensor when that is ready before the message could"
    " start",
    options=MERGE_COST_OPTIONS,
)
def fuse_as_asc(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Merge a gradient only where it waits for nothing; two messages may go at once.

    Along the backward pass, the next gradient joins what is merged so far when it is ready before
    that message could start, ``start = max(end of the message before, its own ready time)``: the
    first case of MG-WFBP's rule. In the other case, a next gradient that comes while the message is
    on its way, MG-WFBP holds it back for less than a start-up time; here it starts at once beside
    it. The start times are those of messages one after the other, as in the code. `bucket` is not
    used.

    Raises
    ------
    RequestError
        See `merge_cost`.

    References
    ----------
    Shi, Chu & Li, "Exploiting Simultaneous Communications to Accelerate Data Parallel Distributed
    Deep Learning", INFOCOM 2021. Code: lzhangbv/dear_pytorch@43138d8b
    mgwfbp/hv_distributed_optimizer.py, ``_generate_groups_asc``, which takes alpha and beta from a
    table: the options merge_alpha and merge_beta do the same.
    """
    cost_s, sent = merge_cost(context).of, context.sent_of(gradients)
    starts: list[int] = []
    size_bytes = start_s = 0.0
    for place, (gradient, next_bytes) in enumerate(zip(gradients, sent.sizes_bytes, strict=True)):
        if starts and gradient.ready_s < start_s:
            size_bytes += next_bytes
            continue
        taken_s = cost_s(size_bytes) if starts else 0.0
        start_s = max(start_s + taken_s, gradient.ready_s)
        starts.append(place)
        size_bytes = next_bytes
    return sent.buckets(pairwise([*starts, len(gradients)]))


@policy(
    "optimal",
    timed=True,
    summary="the buckets that end communication soonest (exact search, no library's rule)",
    options=MERGE_COST_OPTIONS,
)
def fuse_optimally(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Find the consecutive buckets that end communication soonest, by dynamic programming.

    With gradients 1..n in ready order, r their ready times and T the time of an all-reduce,

        end(i) = min over j < i of  max(end(j), r(i)) + T(size of j+1..i),   end(0) = 0

    An earlier end of a prefix never makes the rest end later, so the recurrence is exact for
    messages sent one after another, for any T. No library does this; it is the yardstick for those
    that do something quicker. Where several partitions end at the same time it takes one with the
    fewest buckets. It takes n (n + 1) / 2 evaluations of T. `bucket` is not used; ``merge_alpha``
    and ``merge_beta`` as in policy mgwfbp.

    Raises
    ------
    RequestError
        See `merge_cost`.
    """
    cost_s, sent = merge_cost(context).of, context.sent_of(gradients)
    sizes = sent.sizes_bytes
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for last, gradient in enumerate(gradients):
        choices = []
        size_bytes = 0.0
        for first in range(last, -1, -1):
            size_bytes += sizes[first]
            end_s, buckets, _ = best[first]
            choices.append((max(end_s, gradient.ready_s) + cost_s(size_bytes), buckets + 1, first))
        best.append(min(choices))
    ends = [len(gradients)]
    while ends[-1]:
        ends.append(best[ends[-1]][2])
    return sent.buckets(pairwise(reversed(ends)))


_TRIED_MIB = [2.0 ** (step / 4) for step in range(33)]
"""Group sizes that DeAR's search may take, 1 to 256 MiB [MiB]."""


@policy(
    "dear_tuned",
    timed=True,
    summary="DeAR with the size of its groups tuned, from 1 to 256 MiB",
)
def fuse_as_dear_tuned(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill DeAR's groups (policy dear) to the size with the shortest iteration.

    DeAR tries sizes while it trains, by Bayesian optimisation over 1 to 256 MB, and keeps the
    fastest. Here sizes a quarter of a doubling apart are tried, 25 MiB first. The iteration is
    reckoned without kernels and update: reduce-scatters one after another in the backward pass,
    then all-gathers, the first layers' first, beside the forward pass, on GPUs of equal speed: with
    stragglers another size may be better. `bucket` is not used (policy dear takes it).

    References
    ----------
    Zhang et al., "Decoupling the All-Reduce Primitive for Accelerating Distributed Deep Learning",
    2023 (arXiv 2302.12445). Code: lzhangbv/dear_pytorch, dear/dopt_rsag_bo.py (bounds) and
    dear/tuner.py; README.md: 25 MB without tuning.
    """
    if not gradients:
        return []
    sent, backward_s = context.sent_of(gradients), context.backward_s
    forward_s = tuple(context.forward_s)
    tried = sent.once(
        ("sizes that DeAR tries", forward_s),
        lambda: _groups_to_try(
            [gradient.layer for gradient in gradients],
            [gradient.ready_s for gradient in gradients],
            sent.sizes_bytes,
            forward_s,
        ),
    )
    halves = [context.by_size(half).each(tried.asked) for half in ("reduce_scatter", "all_gather")]
    scatter_s, gather_s = map(as_list, halves)
    many = not isinstance(backward_s, float | int)  # times that stand for many have no bound
    least_s = repeat(0.0) if many else tried.least_s(backward_s, *halves)
    best, best_s = tried.groups[0], math.inf
    for one, at_least_s in zip(tried.groups, least_s, strict=False):
        if at_least_s <= best_s:
            ended_s = _decoupled_s(one.sends, backward_s, scatter_s, gather_s)
            if ended_s < best_s:
                best, best_s = one, ended_s
    return sent.buckets(best.places)


_ROUNDED = 1.0 - 1e-9
"""A sum of some hundred floats is no nearer to what it stands for. No source: chosen."""


class _Groups(NamedTuple):
    """Groups of gradients, in ready order.

    Parameters
    ----------
    places : where the gradients of each group begin and end
    sends : of each group the number of its size among those asked for, when its last gradient is
        ready, and what the forward passes of its layers take
    """

    places: tuple[tuple[int, int], ...]
    sends: list[tuple[int, float, float]]


class _Tried:
    """The groups of each size that DeAR tries.

    Parameters
    ----------
    groups : those of each size
    asked : the sizes of all groups
    """

    def __init__(self, groups: Sequence[_Groups], asked: MessageSizes) -> None:
        self.groups, self.asked = groups, asked
        self._sizes = [[size for size, _, _ in one.sends] for one in groups]
        self._first_ready_s = [one.sends[0][1] for one in groups]
        self._last_pass_s = [one.sends[0][2] for one in groups]  # gathered last
        self._forward_s = [sum_in_order([passes_s for *_, passes_s in one.sends]) for one in groups]

    def least_s(self, backward_s: float, scatter_s: Times, gather_s: Times) -> list[float]:
        """Return what `_decoupled_s` is at least, for each size: nothing waits but at first [s]."""
        halves = self._sums(scatter_s), self._sums(gather_s)
        each_s = as_list(gather_s)
        latest_s = [each_s[sizes[-1]] for sizes in self._sizes]  # gathered first
        rest = latest_s, self._first_ready_s, self._last_pass_s, self._forward_s
        return [
            _ROUNDED
            * (
                max(ready_s + scattered_s, backward_s)
                + max(gathered_s + pass_s, first_s + forward_s)
            )
            for scattered_s, gathered_s, first_s, ready_s, pass_s, forward_s in zip(
                *halves, *rest, strict=True
            )
        ]

    def _sums(self, seconds: Times) -> list[float]:
        """Return what the messages of each size's groups take together [s]."""
        np = arrays()
        if np is None:
            return [sum([seconds[size] for size in sizes]) for sizes in self._sizes]
        numbers, starts = self._as_arrays
        return as_list(np.add.reduceat(np.asarray(seconds)[numbers], starts))

    @cached_property
    def _as_arrays(self) -> Any:
        """The numbers of all sizes, one size's groups after the other's, and where each begin."""
        import numpy as np

        starts = [0, *accumulate(map(len, self._sizes))]
        return np.array([*chain.from_iterable(self._sizes)]), np.array(starts[:-1])


def _groups_to_try(
    layers: Sequence[int],
    ready_s: Sequence[float],
    sizes_bytes: Sequence[float],
    forward_s: Sequence[float],
) -> _Tried:
    """Return the groups of each size tried, 25 MiB first.

    Groups that are alike are there once.

    Parameters
    ----------
    layers, ready_s : the number of each gradient's layer, and when the gradient is ready
    sizes_bytes : what is sent for each gradient
    forward_s : what each layer's forward pass takes; empty for nothing
    """
    limits = (DEAR_GROUP_BYTES, *(size * 2.0**20 for size in _TRIED_MIB))
    ranges = layer_ranges(layers)
    own_bytes = layer_bytes(ranges, sizes_bytes)
    tried = dict.fromkeys([tuple(dear_groups(ranges, own_bytes, limit)) for limit in limits])
    size_of = {
        place: sum_in_order(sizes_bytes[slice(*place)])
        for place in dict.fromkeys(chain.from_iterable(tried))
    }
    asked = MessageSizes.of(size_of.values())
    number_of = {size: number for number, size in enumerate(asked.sizes_bytes)}

    def sent(first: int, end: int) -> tuple[int, float, float]:
        passes_s = (
            sum_in_order([forward_s[one] for one in set(layers[first:end])]) if forward_s else 0.0
        )
        return number_of[size_of[first, end]], ready_s[end - 1], passes_s

    sends = {place: sent(*place) for place in size_of}
    groups = [_Groups(places, [sends[place] for place in places]) for places in tried]
    return _Tried(groups, asked)


def _decoupled_s(
    sends: Sequence[tuple[int, float, float]],
    backward_s: float,
    scatter_s: Sequence[float],
    gather_s: Sequence[float],
) -> float:
    """Return when a forward pass ends that follows the groups' two halves [s].

    Counted from the start of the backward pass before it. Both halves are given by size.
    """
    sent_s = 0.0
    for size, ready_s, _ in sends:
        if ready_s > sent_s:  # noqa: PLR1730 (half the time of max())
            sent_s = ready_s
        sent_s += scatter_s[size]
    ended_s = sent_s = max(sent_s, backward_s)
    for size, _, forward_s in reversed(sends):
        sent_s += gather_s[size]
        if sent_s > ended_s:  # noqa: PLR1730
            ended_s = sent_s
        ended_s += forward_s
    return ended_s
