"""Power-SGD: low-rank factors by one power iteration, two all-reduces in sequence."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient
from perfsim.compute.software import software_era
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext, OptionError, Round
from perfsim.methods.building.averaging import by_share, fp32_bytes
from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.ddp_hooks import dense_hook
from perfsim.methods.building.low_rank import (
    RANK_OVER_TEXT,
    Orthogonaliser,
    batched_powersgd_hook,
    factor_rank,
    factored_matrices,
    powersgd_hook,
    powersgd_package,
    powersgd_paper_code,
)
from perfsim.sums import sum_in_order

HOOKS = ("hook", "batched_hook")

_QR_SINCE = (1, 11)
"""The first PyTorch of the era whose hooks may orthogonalise by QR (pytorch/pytorch pull request
72043, of January 2022): before it they had Gram-Schmidt at any rank."""

DENSE = 2
"""An iteration before a hook compresses; others are numbered 0 and 1."""

ONLY = {
    "buffers_mib": HOOKS,
    "dense_share": HOOKS,
    "min_compression_rate": ("hook", "package"),
    "same_shape": ("hook",),
    "warm_start": ("after_backward",),
}
"""Variants in which an option may differ from its default."""


def _without_qr(software: str) -> bool:
    """Tell whether a software era is of PyTorch whose hooks know Gram-Schmidt alone."""
    era = software_era(software)
    return era.framework == "pytorch" and era.first < _QR_SINCE


class Powersgd(DdpBuffers):
    """Sends P = M Q, then Q = M^T P, of every matrix; what is not compressed goes dense.

    The residual is added and P = M Q computed; all P are all-reduced. P is orthonormalised and Q =
    M^T P computed; all Q are all-reduced. P Q^T is rebuilt and the difference kept.
    `perfsim.methods.building.low_rank` counts each variant's kernels.

    ``variant`` "hook" is PyTorch's DDP hook, bucket by bucket. What is not compressed goes before
    P. Q of the last iteration is orthonormalised before P = M Q. A matrix is compressed only if
    that shrinks it more than ``min_compression_rate`` times. The hook's last callback synchronises
    the device: the host waits in every bucket's hook, and nothing of it overlaps the backward pass.
    PyTorch's default is rank 1. ``dense_share`` of the iterations come before its hooks compress
    (start_powerSGD_iter, 1000 of them): buckets are divided by P (2 passes) and all-reduced, and
    the host does not wait. Hook and DDP's buckets are Power-SGD with WFBP and tensor fusion,
    which ACP-SGD's authors run beside theirs as Power-SGD (buckets of 25 MB). They call it
    "Power-SGD*" where "Power-SGD" is the paper's code. ``same_shape``
    (batch_tensors_with_same_shape, off in PyTorch too) stacks matrices of one shape in a bucket.
    "batched_hook" is PyTorch's other hook: it compresses a bucket, vectors included, as one square.
    "after_backward" is the paper's code: one packed P, one packed Q and one buffer of vectors (sent
    after P, waited for at the end). All run on the compute stream once the backward pass is over;
    ``warm_start`` off draws Q anew. "package" is the authors' later package, after the backward
    pass too. Each step is half a power iteration: even steps send Q, odd steps send P, with
    matrices of one shape stacked. One all-reduce of what is not compressed follows.

    Bytes a rank: 2 (P-1)/P x 4 (n + m) r a matrix ("package": half of it on average;
    "batched_hook": the bucket's square). Memory: DDP's buckets (see `ssgd`) of hooks, residual of
    every gradient, P and Q of every matrix ("after_backward": a send buffer too; "package" keeps
    residuals in the gradients; "batched_hook": factors of a square a tensor, more than of a
    bucket's). Left out: the GPU idling while launches catch up after each synchronisation, the Q
    that a hook without warm start draws on the CPU, half-precision gradients (Gram-Schmidt at any
    rank).
    """

    summary: ClassVar[str] = "rank-r factors P and Q, two all-reduces in sequence (Power-SGD)"
    citation: ClassVar[str] = (
        "Vogels et al. 2019, PowerSGD, NeurIPS, Algorithm 1; code epfml/powersgd@f07be924"
        " paper-code/gradient_reducers.py, RankKReducer, and powersgd/powersgd.py;"
        " pytorch/pytorch@00c22ce5 torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py"
        " and pulls 72043, 75157; as a rival: lzhangbv/acpsgd@ec75a2a9 README.md and benckmark/"
    )
    family: ClassVar[str] = "low rank"
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (dense_share * n + (1 - dense_share) * (rows + columns) * r)"
    )

    over_text: ClassVar[Mapping[str, Any]] = RANK_OVER_TEXT

    rank: int = Field(4, ge=1, description="rank of the factors; 32 for models over text")
    variant: Literal["hook", "batched_hook", "after_backward", "package"] = Field(
        "hook", description="PyTorch's hooks by bucket; the paper's code or package after backward"
    )
    orthogonalisation: Orthogonaliser = Field(
        "auto",
        description="auto: Gram-Schmidt in the paper's code and in PyTorch's hooks before 1.11, the"
        " library's choice elsewhere",
    )
    min_compression_rate: float = Field(
        2.0,
        ge=1,
        description="hook and package: a matrix that shrinks no more than this goes dense",
    )
    warm_start: bool = Field(True, description="after_backward: start from Q of the last step")
    same_shape: bool = Field(False, description="hook: matrices of one shape in one product")
    dense_share: float = Field(
        0.0, ge=0, le=1, description="hooks: share of iterations before they compress"
    )

    @model_validator(mode="after")
    def _known_in_the_variant(self) -> Self:
        for name, variants in ONLY.items():
            value = getattr(self, name)
            changed = value != type(self).model_fields[name].default
            if changed and self.variant not in variants:
                raise OptionError(name, value, f"is only for variant {' or '.join(variants)}")
        return self

    def runs_in_ddp(self, world: MethodContext) -> bool:
        """Tell whether it is one of PyTorch's hooks."""
        return self.variant in HOOKS

    def default_fusion(self) -> str:
        """Return DDP buckets for the hooks, and one buffer for the other variants."""
        return "size" if self.variant in HOOKS else "whole"

    def rounds(self) -> list[Round]:
        """Return one iteration; for the package one that sends Q and one that sends P.

        Where hooks start dense, both kinds of iterations are weighted by their share.
        """
        if self.variant == "package":
            return [Round((0, 1))]
        return by_share({DENSE: self.dense_share, 0: 1 - self.dense_share})

    def compressed(self, gradient: Gradient) -> bool:
        """Tell whether a gradient is factored."""
        if len(gradient.shape) == 1 or self.variant == "after_backward":
            return len(gradient.shape) > 1
        # The package counts one factor, its mean, as sent.
        sent = sum(gradient.matrix) * factor_rank(gradient, self.rank)
        sent_share = 0.5 if self.variant == "package" else 1.0
        return self.min_compression_rate * sent_share * sent < gradient.elements

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the exchanges of the factors and of the rest, and their products."""
        if iteration == DENSE:
            return dense_hook(bucket)
        kernel = self.orthogonalisation
        if kernel == "auto" and self.variant in HOOKS and _without_qr(world.software):
            kernel = "gram_schmidt"
        if self.variant == "batched_hook":
            return batched_powersgd_hook(bucket.elements, self.rank, kernel)
        chosen = [gradient for gradient in bucket.gradients if self.compressed(gradient)]
        together = self.same_shape or self.variant == "package"
        matrices = factored_matrices(chosen, self.rank, together=together)
        vectors = len(bucket.gradients) - len(chosen)
        dense = bucket.elements - sum(gradient.elements for gradient in chosen)
        if self.variant == "package":
            return powersgd_package(matrices, dense, vectors, kernel, sends_q=iteration % 2 == 0)
        if self.variant == "after_backward":
            kernel = "gram_schmidt" if kernel == "auto" else kernel
            return powersgd_paper_code(matrices, dense, vectors, kernel, warm_start=self.warm_start)
        return powersgd_hook(matrices, dense, vectors, kernel)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a matrix's factors in this iteration, or those of the vector."""
        if iteration == DENSE:
            return gradient.size_bytes
        if self.variant == "batched_hook":
            side = ceil(sqrt(gradient.elements))
            return float(FLOAT * 2 * side * min(self.rank, side))
        if not self.compressed(gradient):
            return gradient.size_bytes
        n, m = gradient.matrix
        sides = (m, n)[iteration % 2] if self.variant == "package" else n + m
        return float(FLOAT * sides * factor_rank(gradient, self.rank))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of all factors, and of each residual (and send buffer)."""
        copies = {"package": 0, "after_backward": 2}.get(self.variant, 1)
        turns = (0, 1) if self.variant == "package" else (0,)
        square_too = self.variant == "batched_hook"
        chosen = [each for each in gradients if square_too or self.compressed(each)]
        factors = sum_in_order(self.message_bytes(each, turn) for each in chosen for turn in turns)
        return copies * fp32_bytes(gradients) + factors
