"""Sparsified gradients: selection, thresholds, merging, and the exchange of values and indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from perfsim.compute.kernel import (
    FLOAT,
    INDEX,
    Kernel,
    KernelLoop,
    Kernels,
    elementwise,
    method_code,
    scatter_add,
)
from perfsim.compute.software import NEWEST, is_newest
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Group, JobStage, MethodContext, Send
from perfsim.methods.building.queued_kernels import in_turn

__all__ = [
    "ABOVE_LAUNCHES",
    "ABOVE_PASSES",
    "Decoding",
    "Selection",
    "SparseExchange",
    "SparseSum",
    "above",
    "decoded",
    "doubled",
    "exact",
    "exchanged",
    "gathered",
    "hierarchical",
    "in_era",
    "kept",
    "merged_by_omgs",
    "merged_pairs",
    "permutation",
    "sampled_threshold",
    "served",
    "union_estimate",
    "worst_case",
]

Selection = Literal["auto", "old", "sort", "new"]
"""PyTorch's top-k. "old": one block selects from a slice by radix (before 1.11). "sort": slices of
at least 100,000 values are sorted (1.11, and 1.12 with CUDA before 11.6). "new": many blocks select
from a slice (1.12 with CUDA since 11.6, and later). "auto": that of the software era."""

_ERA_SELECTION: dict[str, Selection] = {"torch1.12": "sort", "torch2": "new"}
"""The selection of eras; that of "torch2" runs in all newer ones, "old" in all older ones.

References
----------
pytorch/pytorch pull requests 68632 (sort, PyTorch 1.11), 71081 and 74267 (many blocks, 1.12; they
need CUB's scan by key, of CUDA 11.6).
"""

_SORTED_FROM = 100_000
"""Values of the smallest slice that is sorted (pytorch/pytorch pull request 68632)."""

_SORT_ROUNDS, _SORT_PASSES, _SORT_LAUNCHES = 6, 7, 3
"""CUB sorts 32 bits in 6 rounds (NVIDIA-Genomics-Research/GenomeWorks pull request 287). A round
reads the keys to count digits, then reads and writes keys (4 bytes) and indices (8 bytes): 7
passes. Its launches count, sum and scatter."""


def exact(elements: int, selection: Selection, software: str = NEWEST) -> Kernel:
    """Return PyTorch's exact top-k of ``elements`` magnitudes in a software era.

    If nothing is measured, selection takes 7 passes over the data in PyTorch 1.12 to 2.4: that of
    fp16 values, with two digits of 8 bits, takes 5 (pytorch/pytorch issue 167462: 128 slices of 8
    million, 11.3 ms on an L20), and fp32 has four. The issue measures 17.3 ms in PyTorch 2.7, which
    pull request 164459 mends.

    Examples
    --------
    >>> exact(1000, "new").name, exact(1000, "old").moved_bytes
    ('topk_new', 28000.0)
    >>> [exact(2_000_000, "auto", era).name for era in ("torch1.8", "torch1.12", "torch2")]
    ['topk_old', 'topk_sort', 'topk_new']
    """
    if selection == "auto":
        selection = "new" if is_newest(software) else _ERA_SELECTION.get(software, "old")
    if selection == "sort" and elements < _SORTED_FROM:
        selection = "old"
    if selection == "sort":
        passes, launches = _SORT_ROUNDS * _SORT_PASSES, _SORT_ROUNDS * _SORT_LAUNCHES
        return Kernel("topk_sort", elements, float(passes * FLOAT * elements), launches=launches)
    return Kernel(f"topk_{selection}", elements, 7.0 * FLOAT * elements, launches=7)


def permutation(elements: int) -> Kernel:
    """Return torch.randperm over all indices.

    Where nothing was measured: keys and indices, 8 bytes each, are read and written 8 times.
    """
    return method_code("randperm", elements, elementwise(elements, 32, 7))


@lru_cache(maxsize=1024)  # of its arguments alone; each prediction asks for the same kernels
def in_era(kernel: Kernel, software: str) -> Kernel:
    """Return a kernel with the exact top-k of another software era in place of its own.

    Examples
    --------
    >>> in_era(exact(1000, "new"), "torch1.8").name
    'topk_old'
    """
    if kernel.name.startswith("topk_"):
        return exact(kernel.elements, "auto", software)
    if not any(part.name.startswith("topk_") for part in kernel.parts):
        return kernel
    return kernel._replace(parts=tuple(in_era(part, software) for part in kernel.parts))


@lru_cache(maxsize=1024)  # of its arguments alone; tensors of a size come again and again
def sampled_threshold(
    elements: int, density: float, software: str, tries: int = 1, name: str = "dgc_encode"
) -> Kernel:
    """Return DGC's encode: the threshold of a sample's top-k, the values above it, compacted.

    Magnitudes are taken (2 passes), a 1 % sample (at least 2 / density values) is copied, its top-k
    and their minimum are taken. Each of ``tries`` thresholds compares and finds indices (see
    ``above``). The values found are gathered, and cleared in velocity and accumulator.

    References
    ----------
    synxlin/deep-gradient-compression@24673d45 dgc/compression.py, _sparsify; dgc/memory.py, update.

    Examples
    --------
    >>> [part.name for part in sampled_threshold(10**6, 0.001, "torch2").parts]
    ['elementwise', 'elementwise', 'topk_new', 'elementwise', 'elementwise']
    """
    samples = max(math.ceil(_SAMPLED * elements), math.ceil(min(elements, 2 / density)))
    count = kept(elements, density)
    return method_code(
        name,
        elements,
        elementwise(elements, 2),
        elementwise(samples, 2),
        exact(samples, "auto", software),
        above(elements, tries),
        elementwise(count, 5, 4),
    )


_SAMPLED = 0.01
"""Share of the values in DGC's sample (code, sample_ratio)."""


def merged_pairs(count: int, selection: Selection, software: str = NEWEST) -> tuple[Kernel, ...]:
    """Return the top ``count`` of the sum of two lists of ``count`` values and their indices.

    The 2 k pairs are sorted by index. This radix sort reads and writes keys and values for each of
    four digits (16 passes). Neighbours with the same index are added (4), magnitudes are taken
    (2), and the largest are selected and gathered (4).

    Examples
    --------
    >>> [kernel.moved_bytes for kernel in merged_pairs(10, "new")]
    [2080.0, 560.0]
    """
    return elementwise(2 * count, 16 + 4 + 2 + 4, 4 + 1 + 1 + 2), exact(
        2 * count, selection, software
    )


def merged_by_omgs(
    buckets: Sequence[Bucket],
    select_s: Callable[[int], float],
    gather_s: Callable[[int], float],
) -> list[Bucket]:
    """Merge buckets by OMGS's rule, which looks one bucket ahead along the backward pass.

    The backward pass waits for each selection, and messages are sent one after another. A group of
    n values is merged with the next bucket of n' values if

        (backward of the next) + S(n + n') - S(n) - S(n') - (wait for the link) < T(n) + T(n') -
        T(n + n')

    S(n) is the time to select from n values, T(n) the time to gather the selected ones. The left
    side is the delay of the message, less its wait for the link without merging. The right side is
    the time that merging saves.

    References
    ----------
    Shi et al. 2020, INFOCOM (OMGS-SGD); code HKBU-HPML/OMGS-SGD@ac10b98
    hv_distributed_optimizer.py, ``_generate_groups_mgs``, which always merges the first two
    tensors.

    Examples
    --------
    >>> from perfsim.compute.profile import Gradient
    >>> each = [Bucket.of([Gradient(name, (9,), time, 0)]) for name, time in zip("ab", (1.0, 3.0))]
    >>> [len(merged_by_omgs(each, lambda n: 0.0, lambda n: alpha + n / 9)) for alpha in (0.5, 2.5)]
    [2, 1]
    """
    groups: list[list[Bucket]] = []
    elements, backward_s, begun_s, free_s, before_s = 0, 0.0, 0.0, 0.0, 0.0
    for bucket in buckets:
        next_s, before_s = bucket.ready_s - before_s, bucket.ready_s
        if groups:
            ready_s = begun_s + backward_s + select_s(elements)
            both = elements + bucket.elements
            later_s = next_s + select_s(both) - select_s(elements) - select_s(bucket.elements)
            sent_s = gather_s(elements)
            saved_s = sent_s + gather_s(bucket.elements) - gather_s(both)
            if later_s - max(0.0, free_s - ready_s) < saved_s:
                groups[-1].append(bucket)
                elements, backward_s = both, backward_s + next_s
                continue
            free_s = max(free_s, ready_s) + sent_s
            begun_s = ready_s
        groups.append([bucket])
        elements, backward_s = bucket.elements, next_s
    return [
        Bucket.of([gradient for bucket in group for gradient in bucket.gradients])
        for group in groups
    ]


def served(
    there_bytes: float, back_bytes: float, world: MethodContext, servers: int = 0
) -> list[Send]:
    """Return each rank's push to sharded servers and its pull of the result.

    Nothing is added up inside a node, so that its ranks share the NICs. A server runs on each
    node; ``servers`` is the number of machines with further servers.

    Examples
    --------
    >>> [(send.collective, send.group) for send in served(8.0, 8.0, MethodContext(8, 2, 4))]
    [('push', 'across'), ('pull', 'across')]
    """
    sizes = {"push": there_bytes, "pull": back_bytes}
    return [
        Send(name, size, group="across" if world.nodes > 1 else "all", servers=servers)
        for name, size in sizes.items()
    ]


SparseExchange = Literal["all_gather", "all_reduce"]
"""How pairs of value and index are exchanged. "all_gather": every rank gets all pairs.
"all_reduce": pairs are added up on the way, and their number doubles at every step."""

SparseSum = Literal["all_gather", "all_reduce", "all_reduce_union"]
"""As ``SparseExchange``. "all_reduce_union": pairs are added up on the way, and the ranks' indices
are assumed to be independent."""

Decoding = Literal["together", "one_by_one"]
"""How pairs become a gradient. "together": all ranks' pairs are added into one tensor (the codes of
HKBU and of DGC). "one_by_one": one tensor per rank, then their sum (GRACE,
grace_dl/dist/communicator/allgather.py at fd3a7f4; MergeComp)."""

ABOVE_PASSES = 1.75
"""Passes to find values above a threshold. Per element 4 bytes are read and a mask of 1 byte is
written; ``nonzero`` reads the mask twice, to count and to write indices."""

ABOVE_LAUNCHES = 5
"""Launches to find values above a threshold."""


def kept(elements: int, density: float) -> int:
    """Return how many of ``elements`` values a density keeps, rounded up and at least 1.

    Examples
    --------
    >>> kept(25557032, 0.001)
    25558
    >>> kept(64, 0.001)
    1
    """
    return max(1, math.ceil(elements * density)) if elements else 0


def above(elements: int, times: int = 1) -> Kernel:
    """Return ``times`` searches for values above a threshold: compare, then find indices.

    Each search takes five launches: one for the comparison, and in ``nonzero`` two for a sum and
    two for a selection (pytorch/pytorch@0358b9e9 aten/src/ATen/native/cuda/Nonzero.cu: CUB's
    DeviceReduce and DeviceSelect). The host's wait for the count between the two is left out.

    Examples
    --------
    >>> above(1000, times=3).moved_bytes, above(1000, times=3).launches
    (21000.0, 15)
    """
    return elementwise(elements, ABOVE_PASSES * times, ABOVE_LAUNCHES * times)


def decoded(
    tensors: Sequence[int], count: int, ranks: int, decoding: Decoding = "together"
) -> Kernels:
    """Return the kernels that make the mean gradient from ``count`` pairs of each rank.

    "together": the dense gradient is zeroed, the pairs of all ranks are scatter-added and the
    mean is taken (3 passes). "one_by_one": for each tensor one loop scatters each rank's pairs into
    a zeroed tensor; the points are those measured as ``dgc_decode`` (see
    `perfsim.methods.building.queued_kernels`). These tensors are then added and divided (3 P + 1
    passes).

    Examples
    --------
    >>> len(decoded([1000, 500], 15, ranks=4)), len(decoded([1000, 500], 15, 4, "one_by_one"))
    (2, 10)
    """
    if decoding == "together":
        return elementwise(sum(tensors), 3, 2), scatter_add(count * ranks)
    runs: list[tuple[tuple[Kernel, ...], int]] = []
    for elements in tensors:
        one = method_code("dgc_decode", elements, elementwise(elements, 1, 2))
        runs += in_turn([one], ranks).then(elementwise(elements, 3 * ranks + 1, ranks + 1)).runs
    return KernelLoop(runs)


def gathered(
    elements: int, count: int, ranks: int, value_bytes: int = FLOAT, index_bytes: int = INDEX
) -> list[JobStage]:
    """Return the exchange of ``count`` values and their indices, and the decoding to a gradient.

    One all-gather sends the values, another the indices. After the backward pass they are
    ``decoded`` together.

    Examples
    --------
    >>> [stage.size_bytes for stage in gathered(1000, 10, ranks=4)[:2]]
    [160.0, 160.0]
    """
    return exchanged([elements], count, MethodContext(ranks), value_bytes, index_bytes)


def exchanged(
    tensors: Sequence[int],
    count: int,
    world: MethodContext,
    value_bytes: int = FLOAT,
    index_bytes: int = INDEX,
    exchange: SparseSum = "all_gather",
    decoding: Decoding = "together",
) -> list[JobStage]:
    """Return the exchange of ``count`` values of some tensors, and the decoding.

    ``exchange`` and ``decoding`` may be any of `SparseSum` and `Decoding`.
    """
    if exchange != "all_gather":
        union = exchange == "all_reduce_union"
        return doubled(sum(tensors), count, world, value_bytes + index_bytes, union=union)
    kernels = decoded(tensors, count, world.ranks, decoding)
    return [
        Send("all_gather", float(value_bytes * count * world.ranks)),
        Send("all_gather", float(index_bytes * count * world.ranks)),
        Compute(kernels, "decompress", earliest="backward"),
    ]


def doubled(
    elements: int,
    count: int,
    world: MethodContext,
    pair_bytes: int = FLOAT + INDEX,
    *,
    union: bool = False,
) -> list[JobStage]:
    """Return an all-reduce of pairs whose number doubles at every step.

    This is the worst case, where no two ranks share an index. It is a recursive doubling over
    distances 1, 2, 4, ...: at step i < log2 P a rank sends min(2**i ``count`` pairs, the dense
    gradient) and adds the pairs it receives. If P is no power of two, each surplus rank sends its
    pairs to another rank first and gets the sum last.

    Lists are joined (each read and written) until the pairs would be larger than the dense
    gradient. Then they are scattered, and added dense (3 passes). Joining runs in parallel with the
    backward pass, decoding after it.

    ``union``: the sum of 2**i ranks has n (1 - (1 - count / n)**(2**i)) of the n values. This is
    the expected number if every rank draws its indices independently. It is derived here, not in
    the paper. It never exceeds the worst case, and is too high where gradients agree on indices.

    References
    ----------
    Lin et al. 2018, Deep Gradient Compression, ICLR, section 5: density doubles at every step in
    the worst case. The steps are those of Thakur, Rabenseifner & Gropp 2005, IJHPCA, section 4.5.

    Examples
    --------
    >>> stages = doubled(100, 10, MethodContext(8))
    >>> [stage.size_bytes for stage in stages if isinstance(stage, Send)]
    [80.0, 160.0, 320.0]
    >>> stages = doubled(100, 10, MethodContext(8), union=True)  # 10, 19, 34.4 expected
    >>> [stage.size_bytes for stage in stages if isinstance(stage, Send)]
    [80.0, 152.0, 280.0]
    """
    dense_bytes = float(FLOAT * elements)
    stages: list[JobStage] = []
    pairs, summed, several_nodes = count, 1, world.nodes > 1
    steps = world.ranks.bit_length() - 1
    surplus_group: Group = "across" if several_nodes else "node"
    groups: list[Group] = [surplus_group] if world.ranks > 2**steps else []
    for step in range(steps):
        inside = not several_nodes or world.gpus_per_node % 2 ** (step + 1) == 0
        groups.append("node" if inside else "across")
    for group in groups:
        sent_bytes = min(float(pair_bytes * pairs), dense_bytes)
        stages.append(Send("send_recv", sent_bytes, group=group))
        summed *= 2
        joined = _expected_indices(elements, count, summed) if union else count * summed
        stages.append(_joined(elements, pairs, joined, pair_bytes))
        pairs = joined
    sparse = pair_bytes * pairs < dense_bytes
    if world.ranks > 2**steps:
        stages.append(
            Send("send_recv", min(float(pair_bytes * pairs), dense_bytes), group=surplus_group)
        )
    kernels = decoded([elements], pairs, 1) if sparse else (elementwise(elements, 2),)
    return [*stages, Compute(kernels, "decompress", earliest="backward")]


def _expected_indices(elements: int, count: int, ranks: int) -> int:
    """Return the expected number of indices that ``ranks`` independent draws cover, rounded up.

    Each rank draws ``count`` of ``elements`` indices. A millionth is subtracted before rounding up,
    so that a rounding error does not count as an index.
    """
    return math.ceil(elements - elements * (1 - count / elements) ** ranks - 1e-6)


def _joined(elements: int, pairs: int, joined_pairs: int, pair_bytes: int) -> Compute:
    """Return the addition of received pairs to the rank's ``pairs`` (or to the dense gradient)."""
    kernels: tuple[Kernel, ...]
    if pair_bytes * pairs >= FLOAT * elements:
        kernels = (elementwise(elements, 3),)
    elif pair_bytes * joined_pairs < FLOAT * elements:
        moved = pair_bytes * (2 * pairs + joined_pairs) / (FLOAT * 2 * pairs)
        kernels = (elementwise(2 * pairs, moved, 2),)
    else:
        kernels = (elementwise(elements, 1), scatter_add(2 * pairs))
    return Compute(kernels, "decompress", stream="communication")


def worst_case(pair: str) -> str:
    """Return the bytes that a rank sends in ``doubled``, as a method's ``wire``.

    The formula holds where P is a power of two.
    """
    sparse = f"min(log2(P), max(0, ceil(log2(4 * n / ({pair} * k)))))"
    return f"(2 ** {sparse} - 1) * {pair} * k + (log2(P) - {sparse}) * 4 * n"


def union_estimate(pair: str) -> str:
    """Return the bytes that a rank sends in ``doubled`` with ``union``, as a method's ``wire``.

    The formula adds up the steps for at most 2**20 ranks.
    """
    indices = "ceil(n - n * (1 - k / n) ** {summed} - 1e-6)"
    return " + ".join(
        f"(P > {2**step}) * min(4 * n, {pair} * {indices.format(summed=2**step)})"
        for step in range(20)
    )


def hierarchical(
    elements: int,
    count: int,
    world: MethodContext,
    select: Sequence[Kernel],
    inside: Literal["pairs", "sums"] = "pairs",
) -> list[JobStage]:
    """Return an exchange in two levels that keeps ``count`` pairs of each rank's share.

    Inside the node the dense gradient is reduce-scattered, and ``select`` runs on each rank's
    share. Values and indices are all-gathered among ranks with the same local rank on all nodes.

    "pairs": they are then gathered inside the node. After the backward pass each share is zeroed,
    filled and concatenated (3 passes). "sums": each rank adds up its share, and the node gathers
    the dense shares. All of this runs on the communication stream.

    Examples
    --------
    >>> [stage.collective for stage in hierarchical(100, 5, MethodContext(4, 2, 2), [])
    ...  if isinstance(stage, Send)]
    ['reduce_scatter', 'all_gather', 'all_gather', 'all_gather', 'all_gather']
    """
    gpus, nodes = world.gpus_per_node, world.nodes
    stages: list[JobStage] = []
    if gpus > 1:
        stages.append(Send("reduce_scatter", float(FLOAT * elements), group="node"))
    if select:
        stages.append(Compute(tuple(select), "compress", stream="communication"))
    if nodes > 1:
        for size in (FLOAT, INDEX):
            stages.append(Send("all_gather", float(size * count * nodes), group="across"))
    if inside == "sums":
        share = math.ceil(elements / gpus)
        kernels = (elementwise(share, 3, 2), scatter_add(count * nodes))
        stages.append(Compute(kernels, "decompress", stream="communication"))
        if gpus > 1:
            stages.append(Send("all_gather", float(FLOAT * elements), group="node"))
        return stages
    if gpus > 1:
        for size in (FLOAT, INDEX):
            stages.append(Send("all_gather", float(size * count * world.ranks), group="node"))
    kernels = (elementwise(elements, 3, 2), scatter_add(count * world.ranks))
    return [
        *stages,
        Compute(kernels, "decompress", stream="communication", earliest="backward"),
    ]
