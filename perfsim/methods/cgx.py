"""CGX: a torch.distributed backend whose all-reduce sends quantised layers."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from perfsim.compute.kernel import Kernel, KernelLoop, Kernels, moved
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Group, JobStage, MethodContext, OnlyWith, Send
from perfsim.methods.building.compressed_collectives import inside_collective
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.two_level import uneven_nodes

FUSION_BYTES = 64 * 2**20
"""Bytes that one all-reduce takes at most, for which buffers stay allocated
(FUSION_SIZE_DEFAULT_MB in common.h)."""

RANDOM_STATE_BYTES = 16
"""Bytes of a value's random state (xorshift128p_state in gpu_def.h). The default build, which
rounds to the nearest level, allocates them too (MaxMinQuantizer::Init in compressor.cc)."""

MIN_CODED = 17
"""Values from which a layer is coded whatever is asked for (isEnabled in compressor.cc)."""

ALIGNED = 8
"""Bytes that packed levels and messages are multiples of (ALIGNMENT_UNIT in utils.h)."""


class Cgx(DdpBuckets):
    """Quantises layers to ``bits`` between least and largest value of a group, in the all-reduce.

    It takes DDP's buckets during the backward pass. The hook divides a bucket by P on the compute
    stream (2 passes). A thread then queues all else on one stream of its own, where kernels and
    messages take turns, a bucket at a time. Layers of one dimension and those below ``min_size``
    values go whole, in a second all-reduce after the first (copied together and back, if they are
    several). Without ``hook`` a bucket is one layer, coded whole.

    Scatter-reduce, all-gather ("sra") cuts the layers of a bucket into P chunks. A layer's piece is
    coded by itself: one kernel finds the bounds of each group (1 pass), another packs levels (1
    pass and their bytes). Each rank sends each other one its chunk, and adds up P-1 messages as
    they come, each by a kernel a piece (2 passes and their bytes). It codes and decodes its sum,
    sends that to all others, and decodes P-1 chunks (1 pass and their bytes). "ring" codes, sends
    and adds a chunk P-1 times, then passes P-1 coded sums on, and decodes them.

    Inside a node ``inner`` "shm", the code's default, copies a message to memory of the host and
    the receiver copies it from there, all on that one stream. So a GPU first writes all that it
    sends and then reads, where NCCL does both at once: a message takes the link twice. "nccl" sends
    between GPUs, and sums by its own all-reduce what goes whole. Across nodes the first rank of
    each goes round a ring by MPI. It then codes the sum once more and sends it to the others of its
    node one by one (by NCCL's broadcast uncoded). Without ``broadcast`` the ranks with the same
    local rank do so, all at once.

    Bytes a rank: 2 (P-1)/P of a message (bits/8 a value and 2 values a group); on nodes of g GPUs
    2 (g-1)/g inside, and the first rank 2 (N-1)/N across and g-1 messages inside.
    Memory: DDP's buckets (see `ssgd`); buffers of (2 - 1/P) x 64 MiB inside nodes and again across;
    16 bytes for each of the 16 Mi values that 64 MiB hold, for random numbers.
    Left out: NVLink, which the copies of "shm" do not take (there set ``inner`` nccl); kernels that
    fall short of memory bandwidth; the host's waits for messages of MPI; the cut of buckets into
    pieces of 64 MiB; the first iterations, which send all layers whole; host memory (P x 64 MiB a
    rank); bf16 gradients, which it sums by MPI.

    ``bits`` and ``group`` are those of its authors' benchmarks and of its hook; the code quantises
    nothing until bits are given, and takes groups of 512 without the hook.
    """

    summary: ClassVar[str] = "all-reduce of quantised layers as a backend of DDP (CGX)"
    citation: ClassVar[str] = (
        "Markov, Ramezanikebrya & Alistarh 2022, CGX: Adaptive System Support for"
        " Communication-Efficient Deep Learning, Middleware, arXiv 2111.08617 (abstract); code"
        " IST-DASLab/torch_cgx@fa9116c1 cgx_utils/allreduce_hooks.py,"
        " src/mpi_allreduce_operations.cc, src/ProcessGroupCGX.cc, src/common"
        " scatter_reduce_allgather.cc, ring.cc, reducer.cc, nccl_reduce.cc, shm_communicator.cc,"
        " compressor.cc, compression/cuda_compression_operations.cu; bits and groups:"
        " pytorch-cgx/pytorch-cgx.github.io@1ce509ee benchmarks.md"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        "inside a node ranks exchange coded chunks with each other; across nodes the first rank of"
        " each passes chunks round a ring, then sends the sum to the others inside its node;"
        " without broadcast the ranks with the same local rank do, each for itself"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) * 8 * (ceil(ceil(n / P) / group) + ceil(ceil(n / P) * bits / 64))"
        " if not hook or n >= min_size else 2 * (P - 1) / P * 4 * n"
    )
    needs: ClassVar[str] = "Open MPI with GPU support, and mpirun"
    holds_gathers: ClassVar[bool] = False

    bits: int = Field(4, ge=1, le=8, description="bits a level")
    group: int = Field(
        1024, ge=1, le=2**24, description="values that share bounds (CGX_COMPRESSION_BUCKET_SIZE)"
    )
    hook: bool = Field(True, description="whether cgx_hook tells it of layers")
    min_size: Annotated[int, OnlyWith(hook=True)] = Field(
        1024, ge=0, le=2**31, description="values from which a layer is coded (layer_min_size)"
    )
    inner: Literal["shm", "nccl", "mpi"] = Field(
        "shm", description="how messages go inside a node (CGX_INNER_COMMUNICATOR_TYPE)"
    )
    inner_reduction: Annotated[Literal["sra", "ring"], OnlyWith(inner=("shm", "mpi"))] = Field(
        "sra", description="the all-reduce inside a node (CGX_INNER_REDUCTION_TYPE)"
    )
    compress_inside: bool = Field(
        True, description="whether layers are coded inside a node (CGX_INTRA_COMPRESS)"
    )
    cross: Literal["mpi", "nccl"] = Field(
        "mpi", description="how messages go across nodes (CGX_CROSS_COMMUNICATOR_TYPE)"
    )
    cross_reduction: Annotated[Literal["sra", "ring"], OnlyWith(cross="mpi")] = Field(
        "ring", description="the all-reduce across nodes (CGX_CROSS_REDUCTION_TYPE)"
    )
    broadcast: bool = Field(
        True, description="whether one rank a node goes across (CGX_INTRA_BROADCAST)"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the division, the all-reduce of coded layers, and that of the others."""
        n, value = bucket.elements, bucket.size_bytes / bucket.elements
        if not self.hook:
            bits = self.bits if n >= MIN_CODED else 0
            return self._all_reduced(_Layers((n,), value, bits, self.group), world)
        coded = tuple(one.elements for one in bucket.gradients if self._codes(one))
        whole = tuple(one.elements for one in bucket.gradients if not self._codes(one))
        found: list[JobStage] = [Compute((moved(n, 2 * value * n),), "compress")]
        if coded:
            found += self._all_reduced(_Layers(coded, value, self.bits, self.group), world)
        if whole:
            found += self._all_reduced(_Layers(whole, value, 0, self.group), world)
        return found

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a gradient's levels and bounds, or of its values."""
        if self.hook and not self._codes(gradient):
            return gradient.size_bytes
        return _Layers((), gradient.value_bytes, self.bits, self.group).packed(gradient.elements)

    def refusal(self, world: MethodContext) -> str:
        """Return why ranks that go across by themselves need nodes of one size, or ""."""
        return "" if self.broadcast else uneven_nodes(world)

    def caution(self, optimizer: str, inside: str) -> str:
        """Return that copies through the host do not take NVLink, if that joins the GPUs."""
        if self.inner != "shm" or not inside.startswith("nvlink"):
            return ""
        return (
            "cgx with `inner` shm copies messages through the host over PCIe, and is priced here at"
            f" the rate of {inside}: longer than that, or set `inner` nccl."
        )

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffers of one level, and of the random states."""
        return _buffer_bytes(ranks) + RANDOM_STATE_BYTES * FUSION_BYTES / 4

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the buffers of both levels, and of the random states."""
        inside = world.ranks if world.nodes == 1 else world.gpus_per_node
        levels = [_buffer_bytes(ranks) for ranks in (inside, world.nodes) if ranks > 1]
        return sum(levels) + RANDOM_STATE_BYTES * FUSION_BYTES / 4

    def _codes(self, gradient: Gradient) -> bool:
        least = max(self.min_size, MIN_CODED)
        return len(gradient.shape) > 1 and gradient.elements >= least

    def _all_reduced(self, layers: "_Layers", world: MethodContext) -> list[JobStage]:
        """Return an all-reduce inside nodes, one across them, and the way back inside."""
        inside, nodes = world.gpus_per_node, world.nodes
        if nodes == 1:
            return self._inside(layers, world.ranks, "all")
        by = self.cross if self.cross == "nccl" else self.cross_reduction
        if inside == 1:
            return _reduced(layers, nodes, "all", by)
        found = self._inside(layers, inside, "node")
        found += _reduced(layers, nodes, "leaders" if self.broadcast else "across", by)
        return found + self._spread(layers, inside) if self.broadcast else found

    def _inside(self, layers: "_Layers", ranks: int, group: Group) -> list[JobStage]:
        """Return the all-reduce inside a node."""
        sent = layers if self.compress_inside else layers._replace(bits=0)
        by = self.inner if self.inner == "nccl" else self.inner_reduction
        return _reduced(sent, ranks, group, by, through_host=self.inner == "shm")

    def _spread(self, layers: "_Layers", ranks: int) -> list[JobStage]:
        """Return how the first rank of a node sends the sum to the other ``ranks`` - 1."""
        if self.inner == "nccl" or not layers.bits:
            size, before, after = layers.size_bytes, layers.joined(), layers.joined()
        else:
            every = layers.cut(1)
            size, before, after = every.packed, (every.encode,), (every.decode,)
        if self.inner == "nccl":
            sends = [Send("broadcast", size, group="node")]
        else:
            one = Send("send_recv", size, group="node")
            sends = [one._replace(repeats=float(ranks - 1))]
            sends += [one._replace(counted=False)] if self.inner == "shm" else []
        return [*_run(before), *sends, *_run(after, undo=True)]


class _Part(NamedTuple):
    """What a rank codes or decodes at once: values, their bytes coded, and pieces of layers."""

    values: float
    value_bytes: float
    packed: float
    pieces: int

    @property
    def encode(self) -> Kernel:
        """The search for bounds and the packing of each piece."""
        return self._kernel(passes=2, launches=2)

    @property
    def add(self) -> Kernel:
        """The decoding of each piece, added to values."""
        return self._kernel(passes=2, launches=1)

    @property
    def decode(self) -> Kernel:
        """The decoding of each piece."""
        return self._kernel(passes=1, launches=1)

    def share(self, ranks: int) -> "_Part":
        """Return the chunk of one rank."""
        pieces = -(-self.pieces // ranks)
        return _Part(self.values / ranks, self.value_bytes, self.packed / ranks, pieces)

    def others(self, ranks: int) -> "_Part":
        """Return the chunks of all other ranks."""
        own = self.share(ranks)
        return _Part(
            self.values - own.values,
            self.value_bytes,
            self.packed - own.packed,
            self.pieces - own.pieces,
        )

    def _kernel(self, passes: int, launches: int) -> Kernel:
        bytes_moved = passes * self.value_bytes * self.values + self.packed
        return moved(self.values, bytes_moved, launches * self.pieces)


class _Layers(NamedTuple):
    """Layers that one all-reduce takes: their values, bytes a value, and how they are coded.

    ``bits`` is 0 where they go whole.
    """

    sizes: tuple[int, ...]
    value_bytes: float
    bits: int
    group: int

    @property
    def values(self) -> int:
        """Number of all values."""
        return sum(self.sizes)

    @property
    def size_bytes(self) -> float:
        """Bytes of all values as they are."""
        return self.value_bytes * self.values

    def packed(self, values: int) -> float:
        """Return the bytes of a coded piece: levels, and two bounds a group."""
        levels = ceil(values * self.bits / 8)
        return 2 * self.value_bytes * ceil(values / self.group) + _aligned(levels)

    def cut(self, ranks: int) -> _Part:
        """Return all pieces that cutting the layers into a chunk a rank makes, together."""
        chunks = chunks_of(self.sizes, ranks, 8 if self.value_bytes == 2 else 4)
        sent = sum(_aligned(sum(map(self.packed, chunk))) for chunk in chunks)
        return _Part(self.values, self.value_bytes, sent, sum(map(len, chunks)))

    def joined(self) -> tuple[Kernel, ...]:
        """Return the copies of several layers into one buffer, or back out of it."""
        if len(self.sizes) == 1:
            return ()
        return (moved(self.values, 2 * self.size_bytes, len(self.sizes)),)


def chunks_of(sizes: Sequence[int], ranks: int, unit: int) -> list[list[int]]:
    """Return the pieces of layers in each rank's chunk, all chunks about equally large.

    A chunk that ends inside a layer ends at a multiple of ``unit`` values of that layer.

    References
    ----------
    IST-DASLab/torch_cgx@fa9116c1 src/common/compressor.cc, Quantizer::GetSizesAndOffsets.

    Examples
    --------
    >>> chunks_of([10, 6], 2, 4), chunks_of([3], 2, 4)
    ([[8], [2, 6]], [[3], []])
    """
    rest, left = list(reversed(sizes)), sum(sizes)
    chunks = []
    for rank in range(ranks):
        share, chunk = left // (ranks - rank), list[int]()
        missing = share
        while missing > 0 and rest:
            piece = rest.pop()
            if piece > missing:
                taken = min(-(-missing // unit) * unit, piece)
                rest += [piece - taken] if piece > taken else []
                piece = taken
            chunk.append(piece)
            missing -= piece
        left -= sum(chunk)
        chunks.append(chunk)
    return chunks


def _reduced(
    layers: _Layers,
    ranks: int,
    group: Group,
    by: Literal["sra", "ring", "nccl"],
    through_host: bool = False,
) -> list[JobStage]:
    """Return one all-reduce of layers among the ``ranks`` of a group.

    The hops of a ring follow each other, and so do their kernels, which are counted together.
    """
    peers = ranks - 1
    first: Kernels = ()
    last: Kernels = ()
    if not layers.bits:
        size, first, last = layers.size_bytes, layers.joined(), layers.joined()
        if by == "nccl":
            whole = Send("all_reduce", size, group=group)
            return [*_run(first), whole, *_run(last, undo=True)]
        added = KernelLoop([((moved(layers.values / ranks, 3 * size / ranks),), peers)])
    else:
        every = layers.cut(ranks)
        own, others, size = every.share(ranks), every.others(ranks), every.packed
        again = (own.encode, own.decode)
        if by == "ring":
            added = KernelLoop([((own.encode, own.add), peers), (again, 1)])
            last = KernelLoop([((own.decode,), peers)])
        else:
            first, last = (others.encode,), (others.decode,)
            added = KernelLoop([((own.add,), peers), (again, 1)])
    if by == "ring":
        way = Send("send_recv", size / ranks, group=group, repeats=float(peers))
    else:
        way = Send("all_to_all", size, group=group)
    legs = [way, way._replace(counted=False)] if through_host else [way]
    return [*_run(first), *legs, *_run(added), *legs, *_run(last, undo=True)]


def _run(kernels: Kernels, undo: bool = False) -> list[JobStage]:
    """Return a stage of kernels on the stream of the messages; none without kernels."""
    return [inside_collective(kernels, undo)] if kernels else []


def _aligned(size_bytes: float) -> float:
    return float(ceil(size_bytes / ALIGNED) * ALIGNED)


def _buffer_bytes(ranks: int) -> float:
    """Return the bytes of one level's buffers: P chunks to send, P - 1 to receive."""
    return (2 * ranks - 1) * _aligned(ceil(FUSION_BYTES / ranks))
