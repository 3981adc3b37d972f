"""Fusion by rule: one message a tensor, one for all, or buckets by size, time, count or block."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError, shown
from perfsim.fusion import policy
from perfsim.fusion.buckets import Bucket, FusionContext, fill, fill_up
from perfsim.quantity import NumberLimit
from perfsim.sums import sum_in_order
from perfsim.units import parse_bytes, parse_seconds

__all__ = [
    "DDP_BUCKET_BYTES",
    "DDP_FIRST_BUCKET_BYTES",
    "block_units",
    "blocks_of",
    "dear_groups",
    "fuse_as_dear",
    "fuse_as_hybrid_zero",
    "fuse_as_megatron",
    "fuse_as_zero",
    "fuse_by_block",
    "fuse_by_compressed_size",
    "fuse_by_cycle",
    "fuse_by_sent_size",
    "fuse_by_size",
    "fuse_in_groups",
    "fuse_nothing",
    "fuse_whole",
    "layer_bytes",
    "layer_ranges",
]


def _limit(context: FusionContext, usual_bytes: float) -> float:
    """Return the bucket size asked for, else a policy's own [B]."""
    return usual_bytes if context.limit_bytes is None else context.limit_bytes


@policy("none", summary="one message a tensor")
def fuse_nothing(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Make every gradient a message of its own, sent as soon as it is ready.

    This is wait-free backpropagation as Zhang et al. describe it.

    References
    ----------
    Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning
    on GPU Clusters", USENIX ATC 2017, section 3.1.
    """
    return context.sent_of(gradients).ready.buckets(
        "a message a tensor", lambda: [Bucket.of([gradient]) for gradient in gradients]
    )


@policy("whole", summary="one message for the whole model, after the backward pass")
def fuse_whole(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Put all gradients in one message, sent when the last is ready.

    Nothing overlaps the backward pass: synchronous SGD without wait-free backpropagation, the
    baseline that MG-WFBP calls SyncEASGD.

    References
    ----------
    Shi, Chu & Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
    Algorithms", INFOCOM 2019 (arXiv 1811.11141), section III.
    """
    return [Bucket.of(gradients)] if gradients else []


DDP_BUCKET_BYTES = 25 * 2.0**20
DDP_FIRST_BUCKET_BYTES = 2.0**20


@policy(
    "size",
    summary="PyTorch DDP: a bucket closes with the tensor that reaches 25 MiB (the first: 1 MiB)",
    options={
        "first_bucket": "limit of the first bucket (a size; default 1MiB, or `bucket` where given)"
    },
    limit_bytes=DDP_BUCKET_BYTES,
)
def fuse_by_size(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill PyTorch DistributedDataParallel's buckets: in ready order, closed at the limit.

    A gradient is added first and the bucket closed when it holds at least the limit, so that the
    gradient that crosses the limit stays in. Sizes are those of the fp32 gradients, whatever a
    communication hook makes of the bucket.

    Without a `bucket` the limit is 25 MiB and that of the first bucket 1 MiB, so that
    communication starts early. A limit that the user gives holds for the first bucket too;
    versions of PyTorch before the cap's default became ``None`` began with 1 MiB in any case
    (the option first_bucket=1MiB).

    Raises
    ------
    RequestError
        If the option ``first_bucket`` is not a size.

    References
    ----------
    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
    section 3.2.3. Code: pytorch/pytorch, torch/csrc/distributed/c10d/reducer.cpp,
    ``compute_bucket_assignment_by_size`` and ``rebuild_buckets`` (ready order from the second
    iteration on); reducer.hpp, ``kDefaultFirstBucketBytes`` and ``kDefaultBucketBytesCap``;
    torch/nn/parallel/distributed.py, ``bucket_bytes_cap_default``.
    """
    if context.limit_bytes is None:
        limit, first = DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES
    else:
        limit = first = context.limit_bytes
    if "first_bucket" in context.options:
        first = parse_bytes(context.options["first_bucket"], "fusion_options.first_bucket")
    return context.sent_of(gradients).ready.buckets(
        ("buckets of DDP", limit, first),
        lambda: fill_up(gradients, lambda gradient: gradient.size_bytes, limit, first),
    )


ZERO_BUCKET_BYTES = 4 * 5e8


@policy("zero", summary="DeepSpeed ZeRO: filled up to 5e8 values", limit_bytes=ZERO_BUCKET_BYTES)
def fuse_as_zero(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill DeepSpeed ZeRO's buckets in ready order, never above 5e8 values.

    A gradient that would take the bucket above the limit (``reduce_bucket_size``; `bucket` gives
    it in bytes of fp32) closes it first; one that is above the limit by itself goes alone. The
    limit counts values: those sent in 16 bits fill a bucket no later.

    References
    ----------
    Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
    2020 (arXiv 1910.02054). Code: microsoft/DeepSpeed at 38327e07,
    deepspeed/runtime/zero/config.py, ``reduce_bucket_size``; stage_1_and_2.py,
    ``reduce_independent_p_g_buckets_and_remove_grads``.
    """

    def values_bytes(gradient: Gradient) -> float:
        return context.message_bytes(gradient) * (4.0 / gradient.value_bytes)

    return fill(gradients, values_bytes, _limit(context, ZERO_BUCKET_BYTES))


MEGATRON_BUCKET = 40_000_000
"""Least values of a bucket of Megatron-LM's (bucket_size where none is given)."""
MEGATRON_RANK = 1_000_000
"""Values of a bucket for each rank that shares it: large groups have large buckets."""


@policy("megatron", summary="Megatron-LM: closed at max(4e7, 1e6 x ranks) values")
def fuse_as_megatron(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill Megatron-LM's buckets in ready order: closed with the tensor that reaches the limit.

    The limit is the larger of 4e7 values and 1e6 a rank, so that the message of a ring's step stays
    long; `bucket` is not used. Megatron-LM has buckets only where gradients are reduced beside the
    backward pass; else all are one (the policy whole).

    References
    ----------
    Code: NVIDIA/Megatron-LM at d98e8a64, megatron/core/distributed/distributed_data_parallel.py
    (bucket_size) and param_and_grad_buffer.py.
    """
    limit = 4.0 * max(MEGATRON_BUCKET, MEGATRON_RANK * context.count_ranks())
    return fill_up(gradients, lambda gradient: 4.0 * gradient.elements, limit)


HYBRID_ZERO_BUCKET_BYTES = 4 * 512 * 2.0**20


@policy(
    "hybrid_zero",
    summary="InternEvo: filled up to 512 Mi values",
    limit_bytes=HYBRID_ZERO_BUCKET_BYTES,
)
def fuse_as_hybrid_zero(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill InternEvo's buckets in ready order, never above 512 Mi values.

    A bucket goes when a gradient comes that would take it above the limit (``reduce_bucket_size``
    of its configurations; `bucket` gives it in bytes of fp32), so that it waits for that one. The
    last goes with the step, after the backward pass.

    References
    ----------
    Code: InternLM/InternEvo at c628a8c8, internlm/solver/optimizer/hybrid_zero_optim.py,
    ``_store_and_try_reduce_grads_by_bucket``; configs/7B_sft.py.
    """
    limit = _limit(context, HYBRID_ZERO_BUCKET_BYTES)
    buckets = fill(gradients, lambda gradient: 4.0 * gradient.elements, limit)
    sent_s = [*(bucket.gradients[0].ready_s for bucket in buckets[1:]), context.backward_s]
    return [
        Bucket(bucket.gradients, max(bucket.ready_s, sent_s[place]))
        for place, bucket in enumerate(buckets)
    ]


ACPSGD_BUCKET_BYTES = 25 * 2.0**20


@policy(
    "compressed",
    summary="ACP-SGD: filled by what is sent, 25 MiB x (compressed / full size)",
    limit_bytes=ACPSGD_BUCKET_BYTES,
)
def fuse_by_compressed_size(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill ACP-SGD's buckets by what is sent, to a limit that shrinks as the model's message does.

        limit = `bucket` x (bytes sent for the model / bytes of its gradients)

    so that there are about as many buckets as without compression. A bucket closes before it would
    exceed the limit. ACP-SGD sends a P and a Q factor in turn and has buckets for each: the sizes
    are what ``message_bytes`` says for the step in question. The default of 25 MB is 25 x 1024 x
    1024 bytes in the authors' code.

    References
    ----------
    Zhang, Shi, Wang & Li, "Evaluation and Optimization of Gradient Compression for Distributed Deep
    Learning", ICDCS 2023 (arXiv 2306.08881). Code: lzhangbv/acpsgd at ec75a2a9, acpsgd.py,
    ``_generate_groups_with_threshold``.
    """
    if not gradients:
        return []
    limit = _limit(context, ACPSGD_BUCKET_BYTES)
    sent_bytes = sum_in_order(map(context.message_bytes, gradients))
    full_bytes = sum_in_order(gradient.size_bytes for gradient in gradients)
    return fill(gradients, context.message_bytes, limit * sent_bytes / full_bytes)


@policy(
    "sent",
    summary="MS-AMP: a bucket closes with the tensor that takes what is sent to 25 MiB",
    limit_bytes=DDP_BUCKET_BYTES,
)
def fuse_by_sent_size(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill buckets in ready order by what the method sends, closed at the limit as DDP's are.

    A value that is sent in one byte takes one byte of the limit, DDP's bucket_cap_mb, so that
    buckets hold more values than those of the policy size. The first has no limit of its own.

    References
    ----------
    Code: Azure/MS-AMP at 9746ea85, msamp/nn/distributed.py, ``_build_buckets``.
    """
    return fill_up(gradients, context.message_bytes, _limit(context, DDP_BUCKET_BYTES))


DEAR_GROUP_BYTES = 25 * 2.0**20


@policy(
    "dear",
    summary="DeAR: whole layers, filled below 25 MiB from the first layer on",
    limit_bytes=DEAR_GROUP_BYTES,
)
def fuse_as_dear(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fill DeAR's groups with whole layers in forward order, from the first layer on.

    A layer joins the group before it while the group stays below the limit (25 MiB unless `bucket`
    says otherwise); a layer is never cut. Since the groups fill from the front, the last one, which
    may stay small, holds the last layers, whose gradients come first. DeAR's search for a better
    limit is the policy dear_tuned.

    References
    ----------
    Zhang et al., "Decoupling the All-Reduce Primitive for Accelerating Distributed Deep Learning",
    2023 (arXiv 2302.12445). Code: lzhangbv/dear_pytorch at 43138d8b, dear/dear_dopt.py,
    ``_generate_groups_with_threshold``; dear/dopt_rsag_bo.py and dear/tuner.py.
    """
    sent, limit = context.sent_of(gradients), _limit(context, DEAR_GROUP_BYTES)
    ranges = layer_ranges([gradient.layer for gradient in gradients])
    return sent.buckets(dear_groups(ranges, layer_bytes(ranges, sent.sizes_bytes), limit))


def layer_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the gradients of each layer begin and end, by the number of each one's layer.

    Examples
    --------
    >>> layer_ranges([1, 1, 0])
    [(0, 2), (2, 3)]
    """
    counts = [len(list(layer)) for _, layer in groupby(numbers)]
    return list(pairwise(accumulate(counts, initial=0)))


def layer_bytes(layers: Sequence[tuple[int, int]], sizes_bytes: Sequence[float]) -> list[float]:
    """Return what is sent for each layer, by what is sent for each gradient [B]."""
    return [sum_in_order(sizes_bytes[first:end]) for first, end in layers]


def dear_groups(
    layers: Sequence[tuple[int, int]], layers_bytes: Sequence[float], limit_bytes: float
) -> list[tuple[int, int]]:
    """Return where DeAR's groups begin and end, in ready order.

    Parameters
    ----------
    layers : where the gradients of each layer begin and end, in ready order
    layers_bytes : what is sent for each layer
    """
    groups: list[tuple[int, int]] = []
    total_bytes = 0.0
    for (first, end), size_bytes in zip(reversed(layers), reversed(layers_bytes), strict=True):
        if groups and total_bytes + size_bytes < limit_bytes:
            groups[-1] = first, groups[-1][1]
            total_bytes += size_bytes
        else:
            groups.append((first, end))
            total_bytes = size_bytes
    return groups[::-1]


BLOCK_NAME = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.[^.]+\.)")
FLAT_BLOCK_NAME = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.)")
"""A block in a model whose numbered layers hold nothing but their own tensors."""


def blocks_of(names: Sequence[str]) -> list[str]:
    """Return the block that each tensor belongs to, or "".

    Examples
    --------
    >>> blocks_of(["bert.encoder.layer.3.output.dense.weight", "conv1.weight", "fc.0.bias"])
    ['bert.encoder.layer.3', '', '']
    >>> blocks_of(["embedding.weight", "layers.0.weight", "layers.1.weight"])
    ['', 'layers.0', 'layers.1']
    """
    nested = any(map(BLOCK_NAME.match, names))
    matches = map((BLOCK_NAME if nested else FLAT_BLOCK_NAME).match, names)
    return [match.group() if match else "" for match in matches]


@policy("block", summary="FSDP: the layers of one repeated block (encoder.layer.3, layer2.0)")
def fuse_by_block(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Put the layers of one repeated block together, as FSDP's wrapping by block class does.

    A block is a tensor's name up to its first number that is followed by more (``encoder.layer.3``,
    ``layer2.0``). Where no number is, it is a numbered layer (``layers.0``). What lies between
    blocks, such as embeddings or a head, is a unit wherever it comes; in PyTorch all of it belongs
    to one unit, that of the model itself. `bucket` is not used.

    References
    ----------
    Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023
    (arXiv 2304.11277). Code: pytorch/pytorch, torch/distributed/fsdp/wrap.py,
    ``transformer_auto_wrap_policy``.
    """
    return block_units(gradients)


def block_units(gradients: Sequence[Gradient]) -> list[Bucket]:
    """Return the units of `fuse_by_block`: runs of gradients of one block, or of none."""
    named = zip(blocks_of([one.name for one in gradients]), gradients, strict=True)
    return [
        Bucket.of([gradient for _, gradient in members])
        for _, members in groupby(named, lambda pair: pair[0])
    ]


HOROVOD_BUFFER_BYTES = 128 * 2.0**20
HOROVOD_CYCLE = "1ms"
CYCLE_LIMITS = NumberLimit(1e-6, 100.0, "1us to 100s, or 0s for no cycle")
HOROVOD_HOOK = "0.2ms"
SAME_CYCLE = 1e-9
"""A hook that runs within this part of a cycle after its start still makes that cycle."""


@policy(
    "threshold",
    timed=True,
    summary="Horovod: every cycle (1 ms) the ready tensors go out in buffers up to 128 MiB",
    options={
        "cycle_time": "time between two cycles (default 1ms)",
        "hook": "time from one tensor's hook to the next on the host (default 0.2ms)",
        "ahead": "how long before the GPU the host begins the backward pass (default 0s)",
    },
    limit_bytes=HOROVOD_BUFFER_BYTES,
)
def fuse_by_cycle(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Fuse as Horovod's background thread does: a cycle at a time, it takes what was pushed.

    A cycle starts ``cycle_time`` after the one before, or when that one is over. It takes the
    tensors whose hooks have run and waits until all ranks have negotiated them (``negotiation_s``
    of the method). It fuses them in order into buffers that never exceed the threshold (`bucket`;
    a tensor larger than the threshold goes alone). Buffer by buffer, it waits until the GPU has the
    last of its gradients before it hands the buffer to NCCL. It does not wait for NCCL, so that a
    slow network does not make buffers larger; late gradients and a long negotiation do, since
    nothing is taken meanwhile. A bucket is ready when it is handed over. Sizes are those of what is
    sent, since Horovod compresses before it fuses.

    A hook runs when the host issues that part of the backward pass, which may be long before the
    GPU is there: every ``hook`` the host comes to the next tensor, but not after the gradient is
    there. The host begins ``ahead`` of the GPU: not at all where the loss is read before the
    backward pass, as in Horovod's ImageNet example. With hook=1s every hook runs when its gradient
    is there, so that no buffer is waited for. The default is what an iteration of PyTorch takes a
    tensor where the host sets the pace (random data, batch 12, on an A100: 0.22 ms for ResNet-50 of
    161 tensors, 0.20 to 0.26 for five more nets; at batch 256 the GPU needs a third of that a
    sample): forward and update are in it, and Horovod's part of a hook is not.

    Defaults: cycle 1 ms and threshold 128 MiB, Horovod's since 0.21.0 (5 ms and 64 MiB before,
    which Horovod's own page on tensor fusion still names). The phase of the cycles is not known in
    a real run: here they count from the start of the backward pass.

    Raises
    ------
    RequestError
        If the option ``cycle_time`` is not a time or outside its limits, or ``hook`` or ``ahead``
        is no time.

    References
    ----------
    Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
    arXiv 1802.05799, section 4. Code: horovod/horovod@2626dc87, horovod/common/operations.cc,
    ``RunLoopOnce`` and ``PerformOperation``; controller.cc, ``ComputeResponseList`` and
    ``FuseResponses``; ops/collective_operations.cc, ``WaitForData`` (in ``PerformOperation`` in
    v0.16.4, v0.19.5 and v0.21.3); torch/mpi_ops_v2.cc, ``DoAllreduce``; CHANGELOG 0.21.0 (pull
    request 2468). Hooks: horovod/horovod issue 665 (all at nearly the same time); examples/pytorch/
    pytorch_imagenet_resnet50.py; ryujaehun/pytorch-gpu-benchmark@3f47a9e2 results/dgx-a100.
    """
    cycle_s = _cycle_s(context.options.get("cycle_time", HOROVOD_CYCLE))
    hook_s = parse_seconds(context.options.get("hook", HOROVOD_HOOK), "fusion_options.hook")
    ahead_s = parse_seconds(context.options.get("ahead", "0s"), "fusion_options.ahead")
    limit = _limit(context, HOROVOD_BUFFER_BYTES)
    pushed_s = [
        min(gradient.ready_s, number * hook_s - ahead_s)
        for number, gradient in enumerate(gradients, start=1)
    ]
    buckets: list[Bucket] = []
    start_s, first = -ahead_s, 0
    while first < len(gradients):
        start_s = _next_cycle_s(start_s, cycle_s, pushed_s[first])
        stop = first + 1
        while stop < len(gradients) and pushed_s[stop] <= start_s + SAME_CYCLE * cycle_s:
            stop += 1
        end_s = start_s + context.negotiation_s(stop - first)
        for bucket in fill(gradients[first:stop], context.message_bytes, limit):
            end_s = max(end_s, bucket.ready_s)
            buckets.append(Bucket(bucket.gradients, end_s))
        start_s, first = max(start_s + cycle_s, end_s), stop
    return buckets


def _next_cycle_s(start_s: float, cycle_s: float, pushed_s: float) -> float:
    """Return when the first cycle starts that finds a tensor: cycles with none go by."""
    if pushed_s <= start_s + SAME_CYCLE * cycle_s:
        return start_s
    if cycle_s == 0:
        return pushed_s
    cycles = math.ceil((pushed_s - start_s) / cycle_s - SAME_CYCLE)
    return max(start_s + cycles * cycle_s, pushed_s)


def _cycle_s(text: str) -> float:
    cycle_s = parse_seconds(text, "fusion_options.cycle_time")
    if cycle_s and not CYCLE_LIMITS.holds(cycle_s):
        raise RequestError(
            "fusion_options.cycle_time",
            f"{shown(text)} is not allowed: it must be {CYCLE_LIMITS.words}.",
            value=text,
        )
    return cycle_s


@policy(
    "groups",
    summary="Horovod's groups: a fixed number of messages, of as many tensors each",
    options={
        "count": "groups (default 1)",
        "cycle_time": "time between two cycles of Horovod's thread (default 0s: it waits for"
        " nothing)",
        "sizes": "tensors of each group, from the first that is ready, as 3/21/57; the rest is one",
    },
)
def fuse_in_groups(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Send the gradients in Horovod's groups: a fixed number of messages, by their count.

    The gradients, in the order of registration, are cut into ``count`` lists of as many tensors
    each (the first lists take one more where it does not come out even). A list goes as one message
    once its last gradient is there: no cycle fills it further, and none splits it. The tensors that
    are registered last are ready first. ``sizes`` states the tensors of each list instead, from the
    first that is ready. One group is one message for the whole model, after the backward pass (as
    policy whole). With a ``cycle_time`` a group waits for Horovod's thread to wake; cycles count
    from the start of the backward pass. MXNet hands a gradient over once the GPU has made it, so
    that nothing is pushed ahead.

    Raises
    ------
    RequestError
        If ``count`` or ``sizes`` are not whole numbers above zero, or both are given, or
        ``cycle_time`` is no time.

    References
    ----------
    Code: horovod/horovod@0051b897, horovod/mxnet/__init__.py (``DistributedOptimizer``,
    num_groups), horovod/common/util.py (``split_list``); in NVIDIA's MXNet container before that:
    mlcommons/training_results_v0.6@f312518c NVIDIA/benchmarks/resnet/implementations/mxnet,
    Dockerfile (HOROVOD_GROUPED_ALLREDUCES, MXNET_HOROVOD_NUM_GROUPS). There MXNet groups tensors of
    one type at a time; here batch normalisation's fp32 tensors are among the others.
    """
    cycle_s = parse_seconds(context.options.get("cycle_time", "0s"), "fusion_options.cycle_time")
    if "sizes" in context.options and "count" in context.options:
        raise RequestError(
            "fusion_options.sizes",
            "leave out `fusion_options.count`, which it replaces.",
            value=context.options["sizes"],
        )
    if "sizes" in context.options:
        sizes = [_whole_number(part, "sizes") for part in context.options["sizes"].split("/")]
    else:
        count = _whole_number(context.options.get("count", "1"), "count")
        each, more = divmod(len(gradients), count)
        sizes = [each] * (count - more) + [each + 1] * more
    buckets, first = [], 0
    for size in [*sizes, len(gradients)]:
        if gradients[first : first + size]:
            buckets.append(_woken(Bucket.of(gradients[first : first + size]), cycle_s))
        first += size
    return buckets


def _woken(bucket: Bucket, cycle_s: float) -> Bucket:
    """Return a bucket as the thread finds it: at the first cycle after its last gradient."""
    if cycle_s <= 0:
        return bucket
    cycles = math.floor(bucket.ready_s / cycle_s) + 1
    return Bucket(bucket.gradients, cycles * cycle_s)


def _whole_number(text: str, option: str) -> int:
    text = str(text).strip()
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(
            f"fusion_options.{option}",
            f"{shown(text)} is not allowed: it must be a whole number, 1 or more.",
            value=text,
        )
    return int(text)
