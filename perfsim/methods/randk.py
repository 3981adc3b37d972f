"""Random-k sparsification with a shared seed."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, Kernel, elementwise, method_code, scatter_add
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, OnlyWith, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD, CodeBase
from perfsim.methods.building.sparsify import Decoding, exchanged, kept, permutation


class Randk(Method):
    """Sends k values at random indices; with a shared seed all ranks choose the same ones.

    In the hook, on the compute stream, indices are drawn and k values gathered, residual included.
    With ``shared_seed`` only the values are all-reduced, since all ranks know the indices. Their
    mean is taken before they are put back (2 passes over k). Without it values and indices are
    all-gathered. After the backward pass the gradient is zeroed and filled. Without the seed
    indices may coincide: the other ranks' pairs are added to it and the mean is taken (2 passes).
    The kernels' measured points hold at density 1 %; they are taken for every density, since
    drawing and clearing touch the whole bucket. Bytes a rank: 2 (P-1)/P x 4 k, or (P-1) x 8 k.
    Memory: the residual. Left out: the exchange of the seed, which is done once.

    ``decoding`` (without the seed): "one_by_one" makes a dense tensor a rank in a loop and adds
    these, as GRACE and MergeComp do; "together" is one call, as Cupcake and Espresso do. Messages:
    buckets, as for topk; GRACE and MergeComp work tensor by tensor (`fusion` none).

    ``draw``: "randint" draws k indices, as Cupcake and Espresso do. "randperm" shuffles all n and
    takes the first k, as GRACE and MergeComp do. PyTorch shuffles fewer than 30,000 on the CPU, for
    which the host waits, and sorts more by random keys. The residual then takes MergeComp's
    operations (copy, scale, add; clear by a mask, copy: 11 passes, 5 launches).
    """

    summary: ClassVar[str] = "k random values of each bucket; all-reduce with a shared seed"
    citation: ClassVar[str] = (
        "Stich et al. 2018, Sparsified SGD with Memory, NeurIPS, section 2; code"
        " sands-lab/grace@fd3a7f4 grace_dl/dist compressor/randomk.py, communicator/allreduce.py"
        " (seed); zhuangwang93/mergeComp@82bc96c3 compressor/poolrandomk.py (without; randperm),"
        " memory/dgc.py; Cupcake@799d1611 compressor/poolrandomk.py (randint)"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * k if shared_seed else (P - 1) * 8 * k"

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    draw: Literal["randint", "randperm"] = Field(
        "randint", description="k indices drawn, or all of them shuffled"
    )
    shared_seed: bool = Field(True, description="all ranks draw the same indices")
    decoding: Annotated[Decoding, OnlyWith(shared_seed=False)] = Field(
        "together", description="all ranks' pairs, or a tensor a rank"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return draw and gather, the exchange, and the scatter."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        encode = Compute(self._encoded(n, k), "compress")
        # Clear the dense target, write k values.
        decode = method_code("randk_decode", n, elementwise(n, 1, 2))
        if self.shared_seed:
            return [
                encode,
                Send("all_reduce", float(FLOAT * k)),
                Compute((elementwise(k, 2), decode), "decompress", earliest="backward"),
            ]
        *sends, apart = exchanged([n], k, world, decoding=self.decoding)
        if self.decoding == "one_by_one":
            return [encode, *sends, apart]
        kernels = (decode, scatter_add(k * (world.ranks - 1)), elementwise(n, 2))
        return [encode, *sends, Compute(kernels, "decompress", earliest="backward")]

    def _encoded(self, elements: int, count: int) -> tuple[Kernel, ...]:
        """Return the kernels of drawing and gathering, residual included."""
        if self.draw == "randint":
            return (method_code("randk_encode", elements, elementwise(elements, 3, 4)),)
        return (elementwise(elements, 11, 5), permutation(elements), elementwise(count, 3, 3))

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank sends for one gradient."""
        each = FLOAT if self.shared_seed else FLOAT + INDEX
        return float(each * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
