"""One model's step measured: whole without marks, then layer by layer, and the two compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from perfsim.calibrate.compute.clock import Clock, CpuClock, CudaClock
from perfsim.calibrate.compute.moments import Marks, Moments, Owner
from perfsim.calibrate.compute.ranks import Alone, Ranks
from perfsim.calibrate.compute.subject import Subject
from perfsim.calibrate.sweep.steady import half_width
from perfsim.errors import RequestError, unknown
from perfsim.profile import PRECISIONS

__all__ = ["AGREES", "Measured", "measure_compute"]

AGREES = 0.03
"""The marked step may differ so much from the whole one before its marks are called too dear."""
WARM_UP = 5
TURNS = 4
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class Measured:
    """What one model's step takes [s].

    Parameters
    ----------
    subject : the model
    owners : its layers with parameters, in the order that they began
    moments : medians over the marked steps
    whole_s : whole steps without marks
    positions : rows a sample of each layer's input matrix
    peak_bytes : of device memory; None on a CPU
    unused : parameters that got no gradient
    ranks : that trained side by side; ``whole_s`` are then the slowest's
    """

    subject: Subject
    owners: tuple[Owner, ...]
    moments: Moments
    whole_s: tuple[float, ...]
    positions: dict[str, int]
    peak_bytes: int | None
    unused: tuple[str, ...]
    ranks: int = 1

    @property
    def iteration_s(self) -> float:
        """The median whole step, no mark in it [s]."""
        return median(self.whole_s)

    @property
    def marked(self) -> float:
        """The marked step over the whole one: 1 where marks cost nothing."""
        return self.moments.step_s / self.iteration_s

    @property
    def spread(self) -> float:
        """Half the 90 % interval of the median whole step over it."""
        return half_width(self.whole_s)


def measure_compute(
    make: Callable[[], Subject],
    precision: str,
    optimizer: str,
    repeats: int,
    device: str,
    ranks: Ranks | None = None,
) -> Measured:
    """Measure a model's training step.

    Parameters
    ----------
    make : gives the model with its fake data
    precision : fp32, tf32, amp-fp16, amp-bf16
    optimizer : sgd (momentum 0.9), adam, adamw, as PyTorch runs them by default
    repeats : steps of each kind, after as many as `WARM_UP` to warm up
    device : "cuda" or "cpu"
    ranks : who trains beside this process; the whole step is then the slowest rank's

    Raises
    ------
    RequestError
        If precision or optimizer is not known, or the model does not fit the device.
    """
    import torch

    if precision not in PRECISIONS:
        raise unknown("--precision", precision, PRECISIONS)
    if device == "cpu" and precision in ("tf32", "amp-fp16"):
        raise RequestError(f"--precision: {precision} needs a GPU; a CPU has fp32 and amp-bf16.")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    clock: Clock = CudaClock() if device == "cuda" else CpuClock()
    try:
        subject = make()
        step = _Step(subject, precision, optimizer, device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        whole, taken, marks = _in_turn(step, subject, clock, repeats, ranks or Alone())
    except torch.OutOfMemoryError:
        raise RequestError(
            "--batch: the model does not fit into the GPU's memory; take a smaller batch."
        ) from None
    moments = _middle(taken)
    began = {name: place for place, name in enumerate(moments.begun_s)}
    parameters = [name for owner in marks.owners for name, _ in owner.parameters]
    return Measured(
        subject,
        tuple(sorted(marks.owners, key=lambda owner: began.get(owner.name, len(began)))),
        moments,
        tuple(whole),
        dict(marks.positions),
        torch.cuda.max_memory_allocated() if device == "cuda" else None,
        tuple(name for name in parameters if name not in moments.ready_s),
        1 if ranks is None else ranks.count,
    )


class _Step:
    """Forward, backward and update of one subject at one precision."""

    def __init__(self, subject: Subject, precision: str, optimizer: str, device: str) -> None:
        import torch

        self._subject, self._device = subject, device
        kinds: dict[str, Callable[..., Any]] = {
            "sgd": lambda of: torch.optim.SGD(of, lr=1e-4, momentum=0.9),
            "adam": lambda of: torch.optim.Adam(of, lr=1e-5),
            "adamw": lambda of: torch.optim.AdamW(of, lr=1e-5),
        }
        if optimizer not in kinds:
            raise unknown("--optimizer", optimizer, OPTIMIZERS)
        subject.model.train()
        self._optimizer = kinds[optimizer](subject.model.parameters())
        types = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
        self._type = types.get(precision)
        self._scaler = torch.amp.GradScaler(device, enabled=precision == "amp-fp16")

    def _cast(self) -> AbstractContextManager[Any]:
        import torch

        return nullcontext() if self._type is None else torch.autocast(self._device, self._type)

    def loss(self) -> Any:
        self._optimizer.zero_grad(set_to_none=True)
        with self._cast():
            return self._subject.loss()

    def back(self, loss: Any) -> None:
        self._scaler.scale(loss).backward()

    def update(self) -> None:
        self._scaler.step(self._optimizer)
        self._scaler.update()


def _in_turn(
    step: _Step, subject: Subject, clock: Clock, repeats: int, ranks: Ranks
) -> tuple[list[float], list[Moments], Marks]:
    """Measure steps without and with marks in turn, so that a drift of the clocks meets both."""
    whole: list[float] = []
    taken: list[Moments] = []
    positions: dict[str, int] = {}
    for _ in range(TURNS):
        each = -(-repeats // TURNS)
        alone = ranks.count == 1
        whole += _whole(step, clock, each) if alone else _abreast(step, clock, each, ranks)
        marks = Marks(subject.model, clock, positions)
        steps = [marks.step(step.loss, step.back, step.update) for _ in range(WARM_UP + each)]
        taken += steps[WARM_UP:]
        marks.remove()
    return whole, taken, marks


def _whole(step: _Step, clock: Clock, repeats: int) -> list[float]:
    """Return the seconds of whole steps, one after another as a training loop runs them."""
    marks = []
    for _ in range(WARM_UP + repeats):
        marks.append(clock.mark())
        step.back(step.loss())
        step.update()
    marks.append(clock.mark())
    clock.wait()
    return [clock.between(one, two) for one, two in pairwise(marks[WARM_UP:])]


def _abreast(step: _Step, clock: Clock, repeats: int, ranks: Ranks) -> list[float]:
    """Return the seconds of the slowest rank's steps; all begin each step together."""
    seconds = []
    for _ in range(WARM_UP + repeats):
        ranks.begin()
        first = clock.mark()
        step.back(step.loss())
        step.update()
        last = clock.mark()
        clock.wait()
        seconds.append(clock.between(first, last))
    return ranks.slowest(seconds[WARM_UP:])


def _middle(taken: Sequence[Moments]) -> Moments:
    """Return the median of every moment."""
    first = taken[0]
    return Moments(
        {name: median(one.begun_s[name] for one in taken) for name in first.begun_s},
        {name: median(one.ready_s[name] for one in taken) for name in first.ready_s},
        median(one.forward_s for one in taken),
        median(one.backward_s for one in taken),
        median(one.update_s for one in taken),
    )
