"""THC: four-bit table indices that servers look up and add without decompressing."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, MethodContext, OptionError, PassPoint, Send
from perfsim.methods.building.code_bases import BYTEPS, CodeBase
from perfsim.methods.building.cpu_offload import busiest_server, cpu_sum, to_gpu, to_host
from perfsim.methods.building.in_step import InStep
from perfsim.methods.building.tensor_slices import each_way, split_whole, too_many
from perfsim.methods.byteps import Byteps

_UPDATE = (6.0, 4)
"""Passes and launches: the gradient copied, the error added, its norm."""
_ROTATE = (9.0, 4)
"""Passes and launches: a copy for the error, random signs, the transform, its scale."""
_COMPRESS = (71.25, 33)
"""Passes and launches of the rounding to the fine grid, of two look-ups in the sender's tables, of
the look-up and rotation that give the error, and of the casts."""
_DECOMPRESS = (19.25, 3)
"""Passes and launches without those that go once for each GPU of the node (``_TURNED``)."""
_TURNED = 6
_NORM_VALUES = 8 * 8 + 8
"""Values in a slice's part of the message of norms: a place for each of 8 nodes and local ranks."""
_MAX_NODES = 8
"""Bytes that hold sums of up to 30 a node overflow with more; and so does the message of norms."""


class Thc(InStep):
    """Pushes four bits a value to servers, which look them up and add bytes; bytes are pulled.

    All of it runs after the backward pass, over BytePS. Gradients are joined in one buffer (2
    passes, and 2 where it is padded) and cut into slices of ``slice_values``, the last one padded
    to a power of two. The error is added and each slice's norm taken (6 passes). The norms are
    pushed and pulled in one message; meanwhile slices are multiplied by random signs and
    Hadamard-transformed in blocks of 1024 (9). Then slice by slice: values are rounded at random to
    a grid and to one of 16 table indices, and what is lost is computed by transforming back (71
    passes). Its indices are copied to the host, a byte each, and packed. The node pushes four bits
    a value. The servers look each up and add bytes, which the node pulls: one byte a value. They
    are copied to the GPU. When all slices are back they are decoded (19 passes), joined (2) and
    become the gradients. Slices overlap among each other, compression with messages too.

    Inside a node the code adds nothing up: each GPU sends indices for its share of the slice, made
    with its own norm, and the pulled shares are all-gathered. One node runs that gather alone. Each
    node has a server; ``servers`` are further ones on machines without GPUs, whose NICs receive
    pushes while they send pulls.

    Bytes a rank, one GPU a node: (P-1)/P x (0.5 + 1) a padded value, and 0.0005 for the norms.
    Memory: error and rotated gradient in fp32, a buffer of one byte a value, random signs.
    Left out: the packing of two indices in a byte by one thread of the host; the host's waits for
    each norm; the gathers of the tables are priced as streams; the sums of bytes as those of as
    many bytes of fp32; switches that add (the public code has none). The transform's extension is
    not in the repository: it counts as one pass in and one out. The code adds up on at most eight
    nodes.
    """

    summary: ClassVar[str] = "table indices of 4 bits, looked up and added by servers (THC)"
    citation: ClassVar[str] = (
        "Li et al. 2024, THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic"
        " Compression, NSDI, arXiv 2302.08545; code SophiaLi06/BytePS_THC@a6af970c"
        " byteps/torch/__init__.py (synchronize), compression.py (NewINCACompressor; operations"
        " traced in PyTorch 2.13), common/core_loops.cc, common/operations.cc, server/server.cc"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        "inside a node nothing is added up, and pulled shares are all-gathered; across nodes each"
        " GPU pushes and pulls its share"
    )
    wire: ClassVar[str] = (
        "(1 - max(P - servers, 0) / (P * P + min(servers, P) * (P - 2)))"
        " * ((n // slice_values * slice_values + 2 ** ceil(log2(n % slice_values))) / 2"
        " + ceil(n / slice_values) * 288)"
        " + (P - 1) * max(P - servers, 0) / (P * P + min(servers, P) * (P - 2))"
        " * (n // slice_values * slice_values + 2 ** ceil(log2(n % slice_values))"
        " + ceil(n / slice_values) * 288)"
    )
    fusion: ClassVar[str] = "whole"
    runs_in: ClassVar[CodeBase] = BYTEPS
    order: ClassVar[Literal["issue", "priority"]] = "priority"

    slice_values: int = Field(
        2**20, ge=1024, le=2**30, description="values of a slice, a power of two"
    )
    servers: int = Field(0, ge=0, le=10**5, description="server machines without GPUs")

    @field_validator("slice_values")
    @classmethod
    def _whole_power(cls, value: int) -> int:
        if value != _power_of_two(value):
            raise OptionError("slice_values", value, "is not a power of two")
        return value

    def refusal(self, world: MethodContext) -> str:
        """Return why sums would overflow, or there would be too many slices, or ""."""
        if world.nodes > _MAX_NODES:
            return f"adds up bytes on {_MAX_NODES} nodes at most, not on {world.nodes}"
        elements = world.profile.elements if world.profile else 0
        return too_many(elements, self.slice_values, "slice_values")

    def slices(self, elements: int) -> list[int]:
        """Return the values of each slice, the last one padded to a power of two."""
        parts = split_whole(elements, self.slice_values)
        return [*parts[:-1], _power_of_two(parts[-1])]

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the norms, the rotation, a job for each slice, and the decoding of all."""
        elements = sum(bucket.elements for bucket in buckets)
        slices = self.slices(elements)
        padded, count, inside = sum(slices), len(slices), world.gpus_per_node
        joined = elementwise(padded, 4.0 if padded > elements else 2.0, 2)
        norms = elementwise(padded, _UPDATE[0], _UPDATE[1] * count)
        chosen = elementwise(_MAX_NODES, 1, (_MAX_NODES - 1) * inside * count)
        rotated = elementwise(padded, _ROTATE[0], _ROTATE[1] * count)
        turned = (_DECOMPRESS[1] + _TURNED * inside) * count
        decoded = elementwise(padded, _DECOMPRESS[0], turned), elementwise(padded, 2)
        byteps = Byteps.model_validate({"servers": self.servers})
        about_norms = byteps.way(FLOAT * _NORM_VALUES * count, world)
        ready = Job("norms", (_after((joined, norms)), *about_norms), _BEGINS)
        turn = Job("rotation", (_after((rotated,)),), _BEGINS)
        sent = [
            Job(
                f"{number}",
                tuple(self.way(size, world, (chosen,) if number == 0 else ())),
                _BEGINS,
                needs=("norms", "rotation"),
            )
            for number, size in enumerate(slices)
        ]
        back = Compute(decoded, "decompress", earliest="backward")
        names = tuple(job.name for job in sent)
        return [ready, turn, *sent, Job("gradients", (back,), _BEGINS, needs=names)]

    def way(
        self, values: int, world: MethodContext, before: tuple[Kernel, ...] = ()
    ) -> list[JobStage]:
        """Return the stages of one slice: compression, push, sums, pull, and the gather inside."""
        inside, nodes = world.gpus_per_node, world.nodes
        stages: list[JobStage] = [_after((*before, elementwise(values, *_COMPRESS)))]
        if nodes > 1:
            share = values / inside
            copied = ceil(share / FLOAT)
            summed = busiest_server(ceil(values / FLOAT), nodes, self.servers)
            push, pull = each_way(
                *(
                    Send(name, size, "backward", group="across", servers=self.servers)
                    for name, size in (("push", share / 2), ("pull", share))
                )
            )
            stages += [
                Compute((to_host(copied),), "compress", "to host"),
                push,
                Compute((cpu_sum(summed),), "decompress", "servers"),
                pull,
                Compute((to_gpu(copied),), "decompress", "to GPU"),
            ]
        if inside > 1:
            stages.append(
                Send("all_gather", float(values), "backward", group="node", stream="NCCL")
            )
        return stages

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return what a gradient adds to push and pull."""
        return 1.5 * gradient.elements

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of errors, rotated gradients, indices and random signs."""
        padded = sum(self.slices(sum(gradient.elements for gradient in gradients)))
        return (2.0 * FLOAT + 1) * padded + FLOAT * min(_power_of_two(padded), _MAX_SIGNS)


_MAX_SIGNS = 8 * 2**20
"""Random signs kept at most: the code has one compressor for each 8 Mi values."""
_BEGINS = PassPoint("backward")


def _after(kernels: tuple[Kernel, ...]) -> Compute:
    """Return kernels on the compute stream, after the backward pass."""
    return Compute(kernels, "compress", earliest="backward")


def _power_of_two(value: int) -> int:
    """Return the smallest power of two that is no less.

    Examples
    --------
    >>> [_power_of_two(value) for value in (1, 3, 64, 65)]
    [1, 4, 64, 128]
    """
    return 1 << (value - 1).bit_length()
