"""Distributed Muon: hidden matrices dealt out to ranks, which orthogonalise and gather them."""

from collections.abc import Sequence
from typing import ClassVar

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.kernel_time import UPDATE_PASSES, newton_schulz_flops
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, JobStage, MethodContext, PassPoint, Send
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.tensor_lists import gathered_in_list
from perfsim.sums import sum_in_order


class DistributedMuon(DdpBuckets, DenseBuckets):
    """All-reduces gradients as `ssgd`; each rank updates some matrices, which are all-gathered.

    Muon's matrices are those outside embeddings and the last layer; each rank updates the rest
    itself. They are sorted by shape, the largest first axis first, and dealt out in turn, P at a
    time. Of each P a rank orthogonalises its own by Newton-Schulz and updates it. One all-gather
    then brings all P updated ones to all ranks, into a list that is copied (2 passes, P launches).
    The next P follow. So an update takes the sum of the slowest of each P, and the gathers add to
    it: nothing overlaps, and the next forward pass waits. The last all-gather is padded to P of its
    smallest shape. Where shapes differ among the P, each is broadcast, all at once; that is priced
    as one all-gather of as many bytes. All ranks are one group.

    Set `optimizer` muon. With another, which a prediction says, its step is shared out as if what
    passes over the parameters do not explain were Newton-Schulz.

    Bytes a rank: 2 (P-1)/P x 4 a parameter for gradients, and (P-1)/P x 4 a value of Muon's
    matrices, padding included.
    Memory: DDP's buckets (see `ssgd`); momentum of the matrices that a rank owns, and of what all
    update.
    Left out: AdamW's second moment and its passes for what is not Muon's (`optimizer` muon has
    neither); conversion to bf16 and back.
    """

    summary: ClassVar[str] = "matrices orthogonalised by their owners, then gathered (Muon)"
    citation: ClassVar[str] = (
        "Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks; code"
        " KellerJordan/Muon@857d1adc muon.py (MuonWithAuxAdam.step)"
    )
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n + (P - 1) * 4 * n"
    needs: ClassVar[str] = "`optimizer` muon"
    owns_whole_tensors: ClassVar[bool] = True

    def caution(self, optimizer: str, inside: str) -> str:
        """Return that the update is not Muon's, if so."""
        if optimizer == "muon":
            return ""
        return (
            "distributed_muon divides the step of Muon among the GPUs, and this update is that of"
            f" {optimizer}; give `optimizer` muon."
        )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the all-reduces, and the gathers after the update."""
        jobs = super().jobs(buckets, world, iteration)
        stages: list[JobStage] = []
        for group in muon_groups(world) if world.ranks > 1 else []:
            stages += _gathered(group, world.ranks)
        if not stages:
            return jobs
        gathers = Job("gathers", tuple(stages), PassPoint("backward"), PassPoint("next"))
        return [*jobs, gathers]

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return the optimizer's share of the rank that owns most."""
        share = 1.0
        if world.profile is not None:
            groups = muon_groups(world)
            owned = max(
                (sum(one.elements for one in dealt) for dealt in _dealt(groups, world.ranks)),
                default=0,
            )
            share = (world.profile.elements - _elements(groups) + owned) / world.profile.elements
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": share}

    def update_share(self, world: MethodContext) -> float:
        """Return the share of the step: passes by values, the rest by Newton-Schulz's operations.

        Of each group the slowest counts.
        """
        profile = world.profile
        if profile is None or not profile.optimizer_s:
            return 1.0
        groups = muon_groups(world)
        flops = [[newton_schulz_flops(_stacked(one)) for one in group] for group in groups]
        passes = elementwise(profile.elements, UPDATE_PASSES["muon"], 0)
        passes_s = min(world.kernel_s(passes), profile.optimizer_s)
        others = profile.elements - _elements(groups)
        longest = sum(max(one.elements for one in group) for group in groups)
        total_flops = sum_in_order(map(sum_in_order, flops))
        products = sum_in_order(map(max, flops)) / total_flops if total_flops else 1.0
        streamed = (others + longest) / profile.elements
        products_s = profile.optimizer_s - passes_s
        return (streamed * passes_s + products * products_s) / profile.optimizer_s


def muon_groups(world: MethodContext) -> list[list[Gradient]]:
    """Return Muon's matrices in groups of P, the largest first axis first.

    Raises
    ------
    ValueError
        If the context has no profile.
    """
    profile = world.given_profile()
    layers = profile.layers
    last = len(layers) - 1 if len(layers) > 1 else len(layers)
    hidden = [
        gradient
        for gradient in profile.gradients
        if len(gradient.shape) > 1
        and gradient.layer != last
        and layers[gradient.layer].kind != "embedding"
    ]
    hidden.sort(key=lambda gradient: gradient.shape, reverse=True)
    return [hidden[first : first + world.ranks] for first in range(0, len(hidden), world.ranks)]


def _stacked(gradient: Gradient) -> tuple[int, ...]:
    """Return a matrix's shape: a convolution's as a matrix, of three axes a stack of matrices."""
    return gradient.matrix if len(gradient.shape) > _STACK_AXES else gradient.shape


_STACK_AXES = 3


def _elements(groups: Sequence[Sequence[Gradient]]) -> int:
    return sum(one.elements for group in groups for one in group)


def _dealt(groups: Sequence[Sequence[Gradient]], ranks: int) -> list[list[Gradient]]:
    """Return what each rank owns: one of each group."""
    return [[group[rank] for group in groups if rank < len(group)] for rank in range(ranks)]


def _gathered(group: Sequence[Gradient], ranks: int) -> list[JobStage]:
    """Return the gather of one group, padded by its last shape."""
    if len({gradient.shape for gradient in group}) == 1:
        return gathered_in_list(float(FLOAT * group[0].elements), ranks, "update")
    padding = (ranks - len(group)) * group[-1].elements
    size = FLOAT * (sum(gradient.elements for gradient in group) + padding)
    return [Send("all_gather", float(size), "update")]
