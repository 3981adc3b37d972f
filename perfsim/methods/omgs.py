"""OMGS-SGD: exact Top-k of tensors, merged so that selection and gathers overlap best."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, Method, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import Selection, exact, gathered, kept, merged_by_omgs
from perfsim.sums import sum_in_order


class Omgs(Method):
    """Merges neighbouring tensors, and selects and gathers the Top-k of each merged one.

    A tensor is merged into the next one of the backward pass where that saves more latency than it
    costs in waiting and selecting. The rule takes what selection and all-gathers cost on this GPU
    and network (see `merged_by_omgs` in `perfsim.methods.building.sparsify`). When the last tensor
    of a group is ready, the hook selects on the compute stream, so the backward pass waits: the
    residual is added (3 passes), magnitudes are taken (2), the k largest are selected exactly, and
    the residual is copied with what is sent cleared (2). Then one all-gather of the values and one
    of the indices run beside the backward pass. After it the gradient is zeroed, P k pairs are
    scatter-added and the mean is taken.

    Bytes a rank: (P-1) x 8 k. Memory: the residual, 4 bytes a parameter. Left out: the copies into
    merged buffers and out of them; the merging of the authors' code, which fits both costs on its
    own cluster (2.19e-10 s x n log2 n; all-gathers on 1 GbE for 2, 4, 8, 16 ranks), and only with
    ADAPTIVE_MERGE set: else it closes groups at 8192 elements.

    The rule is the authors' and weighs only when the messages end. Where the backward pass hides
    the messages anyway, merging gains nothing by the rule, and it stops. Fewer selections and
    scatter-adds would still shorten the iteration. So a network of less latency can be slower, with
    more and smaller groups. On 8 nodes of a V100, from 50 to 5 us a hop, ResNet-50 is slower by 6 %
    and DenseNet-201 by 9 %; both are still faster than with ``merge`` False.

    ``merge``: False sends each tensor alone, the paper's layer-wise Top-k (LAGS). The rule merges
    the buckets of the `fusion` policy, single tensors by default.
    """

    summary: ClassVar[str] = "Top-k of tensors merged by the cost of selection and latency (OMGS)"
    citation: ClassVar[str] = (
        "Shi et al. 2020, Communication-Efficient Distributed Deep Learning with Merged Gradient"
        " Sparsification on GPUs, INFOCOM; code HKBU-HPML/OMGS-SGD@ac10b98"
        " hv_distributed_optimizer.py, _generate_groups_mgs; compression.py; utils.py"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    wire: ClassVar[str] = "(P - 1) * 8 * k"
    fusion: ClassVar[str] = "none"
    decides: ClassVar[bool] = True

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")
    merge: bool = Field(True, description="merge tensors by the rule, or send each alone")

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job for each merged group of buckets."""
        if self.merge:

            def select_s(elements: int) -> float:
                return sum_in_order(map(world.kernel_s, self._selected(elements, world.software)))

            def gather_s(elements: int) -> float:
                count = kept(elements, self.density) * world.ranks
                return sum_in_order(
                    world.collective_s("all_gather", float(size * count), "all")
                    for size in (FLOAT, INDEX)
                )

            buckets = merged_by_omgs(buckets, select_s, gather_s)
        return super().jobs(buckets, world, iteration)

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the selection, the two all-gathers and the scatter-add."""
        n = bucket.elements
        return [
            Compute(self._selected(n, world.software), "compress"),
            *gathered(n, kept(n, self.density), world.ranks),
        ]

    def _selected(self, elements: int, software: str) -> tuple[Kernel, ...]:
        """Return the kernels of the residual, of exact Top-k, and of gathering and clearing."""
        count = kept(elements, self.density)
        select = exact(elements, self.kernel, software)
        return elementwise(elements, 7, 3), select, elementwise(count, 2)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the kept values: 8 each."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
