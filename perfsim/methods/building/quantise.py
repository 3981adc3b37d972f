"""Quantised messages: packed signs, the sum of every rank's message, and the two-step exchange.

Public implementations pack signs in three ways (``Packing``). "bits" uses cupy's packbits, measured
on a V100 under the names ``efsign_encode`` and ``efsign_decode``. "bit2byte" uses the extension of
signSGD's authors: 32 signs in an int32, by shifts and masks that are launched one by one. "bytes"
sends a whole byte per sign, as GRACE does. Passes are counted operation by operation: a byte read
or written is a quarter of a pass, a packed bit a 32nd.

After an all-gather all implementations decode in a Python loop over the messages, so that launches
grow with P. `perfsim.methods.building.queued_kernels` says what the measured points include there.
1-bit Adam's two steps unpack all pieces by one kernel.

References
----------
cupy: zhuangwang93/mergeComp@82bc96c3 mergeComp_dl/torch/util.py; bit2byte:
jiaweizzhao/signSGD-with-Majority-Vote@5bebcd0f main/bit2byte-extension/bit2byte.cpp and
main/compressor.py; bytes: sands-lab/grace@fd3a7f42 grace_dl/torch/compressor. Loops: grace
grace_dl/torch/communicator/allgather.py, mergeComp communicator/pool_allgather.py; one kernel:
deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/comm/nccl.py, compressed_allreduce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Literal

from perfsim.compute.kernel import FLOAT, Kernel, Kernels, elementwise, method_code
from perfsim.methods.base import Compute, JobStage, MethodContext, Moment, Send
from perfsim.methods.building.queued_kernels import in_turn

__all__ = [
    "SIGN_WIRE",
    "STREAM",
    "Packing",
    "QuantisedExchange",
    "between_nodes",
    "gathered_from_all",
    "majority",
    "sign_bytes",
    "sign_decode",
    "sign_encode",
    "sign_fusion",
    "summed",
    "summed_levels",
    "two_step",
]


def summed(elements: int, tensors: int) -> Kernel:
    """Return the kernel that adds up ``tensors`` tensors one after another, as Python's ``sum``.

    The first tensor is added to zero (2 passes), each other to the sum so far (3 passes).

    Examples
    --------
    >>> summed(1000, 4).moved_bytes / 4000, summed(1000, 4).launches
    (11.0, 4)
    """
    return elementwise(elements, 3 * tensors - 1, tensors)


Packing = Literal["bits", "bit2byte", "bytes"]
QuantisedExchange = Literal["all_gather", "two_step"]

STREAM = "communication"
"""The stream of the sends; kernels on it run in order with them."""

SIGN_WIRE = "(ceil(n / 8) if packing == 'bits' else n if packing == 'bytes' else 4 * ceil(n / 32))"
"""``sign_bytes`` as part of a method's ``wire``."""

_SIGN_ENCODE = {"bits": (1 + 17 / 32, 2), "bit2byte": (16 + 25 / 32, 160), "bytes": (1.75, 2)}
"""Passes and launches. "bits": compare (1.25) and pack booleans (9/32). "bit2byte": sign, pad and
cast (6), then 11 passes over a 32nd for 31 of 32 parts, and 4 more over a 32nd. "bytes": compare
(1.25) and cast booleans (0.5)."""

_SIGN_DECODE = {"bits": (5 + 17 / 32, 4), "bit2byte": (14.0, 100), "bytes": (5.25, 3)}
"""Passes and launches. Unpack ("bits": 9/32; "bit2byte": ones, then 7 passes over a 32nd for each
of 32 parts), cast to float (1.25; "bit2byte": 2), double and subtract one (4)."""

SCALE = (3.0, 2)
"""Passes and launches of the magnitude and its mean."""

SCALED = (2.0, 1)
"""Passes and launches of the signs times their scale."""


def sign_bytes(elements: int, packing: Packing = "bits") -> int:
    """Return the bytes of ``elements`` signs.

    Examples
    --------
    >>> [sign_bytes(1001, packing) for packing in ("bits", "bit2byte", "bytes")]
    [126, 128, 1001]
    """
    if packing == "bits":
        return ceil(elements / 8)
    return 4 * ceil(elements / 32) if packing == "bit2byte" else elements


def sign_encode(elements: int, packing: Packing = "bits", scaled: bool = False) -> Kernel:
    """Return the packing of signs, with the mean magnitude if they are ``scaled``.

    The measured kernel of "bits" always includes the mean.
    """
    passes, launches = _SIGN_ENCODE[packing]
    if scaled or packing == "bits":
        passes, launches = passes + SCALE[0], launches + SCALE[1]
    kernel = elementwise(elements, passes, launches)
    return method_code("efsign_encode", elements, kernel) if packing == "bits" else kernel


def sign_decode(elements: int, packing: Packing = "bits", scaled: bool = False) -> Kernel:
    """Return the unpacking of one message, times the scale if signs are ``scaled``.

    The measured kernel of "bits" always includes the scale.
    """
    passes, launches = _SIGN_DECODE[packing]
    if scaled or packing == "bits":
        passes, launches = passes + SCALED[0], launches + SCALED[1]
    kernel = elementwise(elements, passes, launches)
    return method_code("efsign_decode", elements, kernel) if packing == "bits" else kernel


def majority(elements: int) -> Kernel:
    """Return the sign of a sum of votes: compare (1.25), double (1.25), subtract one (2)."""
    return elementwise(elements, 4.5, 3)


def sign_fusion(exchange: str) -> str:
    """Return the fusion policy of the public code that exchanges signs in this way.

    GRACE and Espresso work tensor by tensor, and so does MergeComp unless its schedule fuses.
    DeepSpeed flattens all parameters before its two steps. The authors of signSGD flatten tensors
    up to 100 MB for their server, all after the backward pass.
    """
    return "whole" if exchange in ("server", "two_step") else "none"


def gathered_from_all(
    encode: Sequence[Kernel],
    sent_bytes: Sequence[float],
    decode: Sequence[Kernel],
    ranks: int,
    finish: Sequence[Kernel] = (),
) -> list[JobStage]:
    """Return the encoding in the hook, one all-gather per part of the message, and P decodings.

    ``sent_bytes`` are the sizes of the parts that one rank sends. After the backward pass
    ``decode`` runs for each rank's message in one loop, then ``finish`` runs once.

    Examples
    --------
    >>> one = sign_encode(1000)
    >>> stages = gathered_from_all([one], [125.0, 4.0], [one], ranks=4)
    >>> [stage.size_bytes for stage in stages[1:3]], len(stages[3].kernels)
    ([500.0, 16.0], 4)
    """
    return [
        Compute(tuple(encode), "compress"),
        *(Send("all_gather", float(part * ranks)) for part in sent_bytes),
        Compute(in_turn(decode, ranks).then(*finish), "decompress", earliest="backward"),
    ]


def two_step(
    encode: Sequence[Kernel],
    shared_bytes: Sequence[float],
    scales_bytes: float,
    middle: Kernels,
    decode: Kernels,
    ranks: int,
    earliest: Moment = "backward",
) -> list[JobStage]:
    """Return the two-step exchange, in which each rank adds up 1/P of every message.

    An all-to-all distributes the parts in ``shared_bytes`` (of the whole message), and an
    all-gather sends the scales to all. ``middle`` decodes the P pieces, adds them up and encodes
    the sum. All-gathers of the sums give every rank the whole, which ``decode`` unpacks. Each rank
    sends 2 (P-1)/P of a message in all, however many ranks there are. All of this runs after the
    backward pass, where the implementations call it, or after the update (``earliest``).

    Examples
    --------
    >>> one = sign_encode(1000)
    >>> stages = two_step([one], [125.0], 4.0, (one,), (one,), ranks=4)
    >>> [(stage.collective, stage.size_bytes) for stage in stages if isinstance(stage, Send)]
    [('all_to_all', 125.0), ('all_gather', 16.0), ('all_gather', 125.0), ('all_gather', 16.0)]
    """
    scales = [scales_bytes * ranks] if scales_bytes else []

    def sends(collective: str, sizes: Sequence[float]) -> list[JobStage]:
        return [Send(collective, float(size), earliest=earliest) for size in sizes]

    return [
        Compute(tuple(encode), "compress", earliest=earliest),
        *sends("all_to_all", shared_bytes),
        *sends("all_gather", scales),
        Compute(middle, "compress", earliest=earliest),
        *sends("all_gather", [*shared_bytes, *scales]),
        Compute(decode, "decompress", earliest=earliest),
    ]


def between_nodes(
    elements: int,
    world: MethodContext,
    sent_bytes: Callable[[int], Sequence[float]],
    encode: Callable[[int], Sequence[Kernel]],
    decode: Callable[[int], Kernel],
    min_values: int = 1,
) -> list[JobStage]:
    """Return an exchange that compresses between nodes only, on the communication stream.

    Fewer than ``min_values`` values are all-reduced dense. Otherwise each node reduce-scatters in
    fp32. Every GPU encodes its share of n / g values and gathers the shares of the same local rank
    on the other nodes. It decodes N messages and adds them up. Last, each node all-gathers in fp32.
    All of this runs in order on the communication stream.

    References
    ----------
    zhuangwang93/Espresso@a0294e3a byteps/torch/mergeComp/communicator/ddp_hipress.py.

    Examples
    --------
    >>> stages = between_nodes(
    ...     800, MethodContext(8, 2, 4), lambda n: [n / 8], lambda n: [sign_encode(n)], sign_decode
    ... )
    >>> [(one.collective, one.size_bytes) for one in stages if isinstance(one, Send)]
    [('reduce_scatter', 3200.0), ('all_gather', 50.0), ('all_gather', 3200.0)]
    """
    whole = float(FLOAT * elements)
    if elements < min_values:
        return [Send("all_reduce", whole)]
    share = -(-elements // world.gpus_per_node)
    inside = world.gpus_per_node > 1
    return [
        *([Send("reduce_scatter", whole, group="node")] if inside else []),
        Compute(tuple(encode(share)), "compress", STREAM),
        *(
            Send("all_gather", float(part * world.nodes), group="across")
            for part in sent_bytes(share)
        ),
        Compute(
            in_turn([decode(share)], world.nodes).then(summed(share, world.nodes)),
            "decompress",
            STREAM,
        ),
        *([Send("all_gather", whole, group="node")] if inside else []),
    ]


def summed_levels(
    elements: int, width: int, quantise: Kernel, two_scales: bool = False
) -> list[JobStage]:
    """Return the random rounding, the all-reduce of levels ``width`` bytes wide, and the scaling.

    The host waits for the values that the rounding needs. With two scales values are rounded at
    both. A mask of the values that every rank finds small (one byte per value) is all-reduced
    before the choice between both.

    Examples
    --------
    >>> sends = [stage for stage in summed_levels(1000, 1, sign_encode(1000), True)[1::2]]
    >>> [(stage.collective, stage.size_bytes) for stage in sends]
    [('all_reduce', 1000.0), ('all_reduce', 1000.0)]
    """
    share = width / FLOAT
    whole = Send("all_reduce", float(width * elements))
    if not two_scales:
        done = elementwise(elements, 1 + share)
        return [
            Compute((quantise,), "compress", blocks=True),
            whole,
            Compute((done,), "decompress", earliest="backward"),
        ]
    # Mask: compare and cast. Choice: two products, a difference, a sum. Decoding: two scalings
    # with their divisions, two products, a difference, a sum.
    mask = elementwise(elements, 1.75, 2)
    choice = elementwise(elements, 2 * (0.25 + 2 * share) + 0.5 + 3 * share, 4)
    done = elementwise(elements, 2 * (share + 1) + 8, 8)
    return [
        Compute((quantise, quantise, mask), "compress", blocks=True),
        Send("all_reduce", float(elements)),
        Compute((choice,), "compress", blocks=True),
        whole,
        Compute((done,), "decompress", earliest="backward"),
    ]
