"""0/1 Adam: gradients in one bit, then local steps with accumulated updates in one bit."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import HeldState, Job, JobStage, MethodContext, PassPoint, Round
from perfsim.methods.building.averaging import NOTHING_BETWEEN, by_share
from perfsim.methods.building.one_bit_optimizer import (
    DENSE,
    DENSE_WIRE,
    ONE_BIT,
    ONE_BIT_WIRE,
    OneBitOptimizer,
    on_compute,
    one_bit_all_reduce,
)

LOCAL, SYNCHRONISED = 2, 3
"""Iterations after the variance is frozen: nothing is exchanged; accumulated updates are."""

_ACCUMULATED = (5.0, 2)
"""Passes and launches: the update times the learning rate (2), added to the accumulated (3)."""

_BEFORE = (5.0 + 12, 2 + 5)
"""Passes and launches: the same; what is accumulated taken off the parameters (5 in 2) and
multiplied by the denominator (root, plus epsilon, product: 7 in 3)."""

_AFTER = (19.0, 9)
"""Passes and launches: result copied back (2), momentum cleared (1) and set (5 in 2), result
divided by the denominator and added to the parameters (10 in 4), buffer cleared (1)."""


def variance_steps(first: int, last: int, every: int) -> int:
    """Count the steps that update the variance: multiples of an interval that doubles.

    It doubles whenever ``every`` steps have done so.

    Examples
    --------
    >>> variance_steps(2, 20, 4)  # 2, 3, 4, 5; 6, 8, 10, 12; 16, 20
    10
    """
    count, interval, step = 0, 1, first - 1
    while (reached := last // interval - step // interval) > every:
        step = (step // interval + every) * interval
        count, interval = count + every, 2 * interval
    return count + reached


def synchronised_steps(first: int, last: int, every: int, longest: int) -> int:
    """Count the steps that synchronise: multiples of an interval that doubles up to ``longest``.

    It doubles after ``every`` steps.

    Examples
    --------
    >>> synchronised_steps(1, 16, 4, 4)  # 1, 2, 3, 4; 6, 8; 12; 16
    8
    """
    count, interval, step = 0, 1, first - 1
    while step < last:
        end = last if interval == longest else min(last, step + every)
        count += end // interval - step // interval
        step, interval = end, min(longest, 2 * interval)
    return count


class ZeroOneAdam(OneBitOptimizer):
    """Sends gradients in one bit a value, later only what several local steps accumulate.

    Up to ``var_freeze_step`` the variance is updated in some steps, by gradients that are
    all-reduced dense after the backward pass, as in `onebit_adam`. The interval between such steps
    doubles after each ``var_update_scaler`` of them. All other steps exchange the gradient by the
    compressed all-reduce of `onebit_adam`, after the backward pass.

    Then every step is local: the update is added up (5 passes). When a step's number is a multiple
    of an interval, the sum is taken off the parameters, exchanged by the compressed all-reduce
    after the update, and gives new momentum and parameters (31 passes more). The next forward pass
    waits for it. The interval doubles after each ``local_step_scaler`` steps, up to
    ``local_step_clipper``. Iterations of all kinds are counted over ``steps`` steps.

    The defaults are those of the authors' BERT-Large pre-training at sequences of 128 tokens.
    DeepSpeed's own var_freeze_step is 100000. Messages: one, or a tensor each in fp32, as
    `onebit_adam` says.

    Bytes a rank: 2 (P-1)/P x 4 a parameter in dense steps (``dense_share`` of all; half of it in
    half precision), 2 (P-1)/P x 1/8 a parameter and 8 (P-1) in compressed and synchronised ones
    (``one_bit_share``), none in local ones.
    Memory: the worker's error and the accumulated update, 4 bytes a parameter each, and the
    server's error, 1/P of one.
    Left out: what `onebit_adam` leaves out; errors cleared once when the variance is frozen.
    """

    summary: ClassVar[str] = "gradients in one bit, then local steps synchronised in one bit"
    citation: ClassVar[str] = (
        "Lu et al. 2023, Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam,"
        " ICLR, arXiv 2202.06009; code deepspeedai/DeepSpeed@edaa7221"
        " deepspeed/runtime/fp16/onebit/zoadam.py, runtime/comm/nccl.py; defaults:"
        " deepspeedai/DeepSpeedExamples@45b4b715 training/bing_bert/01_adam/nccl/"
        "deepspeed_bsz4k_01adam_config_seq128_nccl.json, bert_large.json"
    )
    levels: ClassVar[str] = NOTHING_BETWEEN
    wire: ClassVar[str] = f"dense_share * {DENSE_WIRE} + one_bit_share * ({ONE_BIT_WIRE})"
    buffers: ClassVar[int] = 1
    interval_option: ClassVar[str] = "local_step_clipper"

    steps: int = Field(125_000, ge=1, le=10**9, description="steps of the training")
    var_freeze_step: int = Field(
        12_500, ge=1, le=10**9, description="last step that may update the variance"
    )
    var_update_scaler: int = Field(
        16, ge=1, le=10**9, description="updates of the variance until their interval doubles"
    )
    local_step_scaler: int = Field(
        32_678, ge=1, le=10**9, description="steps until the interval of synchronisations doubles"
    )
    local_step_clipper: int = Field(
        16, ge=1, le=10**9, description="longest interval between synchronisations"
    )

    def counts(self) -> dict[int, int]:
        """Return how many steps there are of each kind.

        Steps are numbered from 2: making the optimizer's state counts as one.
        """
        last = self.steps + 1
        frozen = min(last, self.var_freeze_step + 1)
        dense = variance_steps(2, frozen, self.var_update_scaler)
        synchronised = synchronised_steps(
            frozen + 1, last, self.local_step_scaler, self.local_step_clipper
        )
        return {
            DENSE: dense,
            ONE_BIT: frozen - 1 - dense,
            LOCAL: last - frozen - synchronised,
            SYNCHRONISED: synchronised,
        }

    @property
    def between(self) -> int:
        """Number of the steps that exchange nothing after the variance is frozen."""
        return LOCAL

    def interval_rounds(self) -> list[Round]:
        """Return the steps from one synchronisation to the next, on average; none without one."""
        counts = self.counts()
        if not counts[SYNCHRONISED]:
            return []
        return by_share({LOCAL: counts[LOCAL] / counts[SYNCHRONISED], SYNCHRONISED: 1})

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return the accumulated update and the errors of workers and servers."""
        if world.profile is None:
            return []
        ranks = world.gpus_per_node
        update = float(FLOAT * world.profile.elements)
        errors = self.memory_in(world) - update
        kept = {"accumulated update": update, "errors": errors}
        return [HeldState(what, held, ranks=ranks) for what, held in kept.items() if held]

    def rounds(self) -> list[Round]:
        """Return the steps of each kind, weighted by their number."""
        return by_share(self.counts())

    def wire_names(self) -> dict[str, float]:
        """Return the share of dense steps, and of those that send one bit a value."""
        counts = self.counts()
        one_bit = counts[ONE_BIT] + counts[SYNCHRONISED]
        return {"dense_share": counts[DENSE] / self.steps, "one_bit_share": one_bit / self.steps}

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the exchange of gradients, or what follows the update."""
        if iteration == DENSE:
            return [self.dense(buckets, world)]
        if iteration == ONE_BIT:
            return [Job("gradients", tuple(self.compressed(buckets, world)), PassPoint("backward"))]
        stages: list[JobStage] = []
        for bucket in buckets:
            n = bucket.elements
            if iteration == LOCAL:
                stages.append(on_compute(elementwise(n, *_ACCUMULATED), "compress", "update"))
                continue
            stages += [
                on_compute(elementwise(n, *_BEFORE), "compress", "update"),
                *one_bit_all_reduce(n, world.ranks, earliest="update"),
                on_compute(elementwise(n, *_AFTER), "decompress", "update"),
            ]
        return [Job("accumulated", tuple(stages), PassPoint("backward"), PassPoint("next"))]
