"""Measuring a model's training step: whole, without hooks, and layer by layer, by marks.

Both kinds of step are measured in turn and compared: the marks cost time, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from statistics import median
from typing import Any, Protocol

from perfsim.calibrate.measure.device import (
    CpuClock,
    CudaClock,
    DeviceClock,
    waited_for_core_s,
)
from perfsim.calibrate.measure.launch import LAUNCHERS, find_launch
from perfsim.calibrate.measure.repeats import half_width
from perfsim.calibrate.measure.subject import Subject
from perfsim.calibrate.measure.watch import BrokenOffError, why_broken
from perfsim.errors import PerfsimError, RequestError, unknown

__all__ = [
    "JobRanks",
    "MeasuredModel",
    "OneProcess",
    "ParameterOwner",
    "Peers",
    "StepMarks",
    "StepMoments",
    "TrainingStep",
    "find_ranks",
    "measure_compute",
    "parameter_owners",
    "whole_steps",
]

WARM_UP_STEPS, WARM_UP_AGAIN = 5, 2
"""Steps thrown away at the beginning, where kernels load and are chosen and memory is taken, and
before each later turn of either kind. No source: chosen."""
TURNS = 4
"""Turns of whole and marked steps, so that a drift of the clocks meets both. No source: chosen."""
MEASURED_OPTIMIZERS = ("sgd", "adam", "adamw")
MEASURED_PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16")
"""Precisions that PyTorch alone trains in; fp8 takes a library of its own."""
JOIN_PATIENCE_S = 300.0
"""How long other ranks may take to answer [s]. No source: chosen."""


# Who trains beside this process


class Peers(Protocol):
    """The processes that measure beside this one."""

    rank: int
    local_rank: int
    count: int

    def begin(self) -> None:
        """Return on every rank at once."""
        ...

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the slowest rank's time of each repeat."""
        ...

    def close(self) -> None:
        """Leave in good order."""
        ...


class OneProcess:
    """One process that is part of no job."""

    rank, local_rank, count = 0, 0, 1

    def begin(self) -> None:
        """Begin at once."""

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the times."""
        return list(seconds)

    def close(self) -> None:
        """Do nothing."""


class JobRanks:
    """The ranks of a job; they meet over gloo, whatever device computes."""

    def __init__(self, wire: Any, local_rank: int, count: int) -> None:
        self._wire, self.rank, self.local_rank, self.count = wire, wire.rank, local_rank, count

    def begin(self) -> None:
        """Wait for all."""
        with _broken_off_named():
            self._wire.barrier()

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the slowest rank's time of each repeat."""
        with _broken_off_named():
            return [max(repeat) for repeat in zip(*self._wire.gather(list(seconds)), strict=True)]

    def close(self) -> None:
        """Leave the job."""
        self._wire.close()


@contextmanager
def _broken_off_named() -> Iterator[None]:
    """Let what the library says of a rank that has left be one sentence.

    Raises
    ------
    BrokenOffError
        If it breaks off.
    """
    try:
        yield
    except RuntimeError as error:
        why = f"{why_broken(error)}; nothing was written"
        raise BrokenOffError(f"calibrate compute: {why}.") from None


def find_ranks(environ: Mapping[str, str]) -> Peers:
    """Return the ranks of this job, or this process alone if it is part of none.

    Raises
    ------
    RequestError
        If the job cannot be joined.
    """
    sizes = (environ.get(names[1], "") for names in LAUNCHERS.values())
    if all(size in ("", "1") for size in sizes):
        return OneProcess()
    from perfsim.calibrate.measure.torch_wire import TorchWire

    launch = find_launch(environ)
    wire = TorchWire(launch, "gloo", JOIN_PATIENCE_S)
    return JobRanks(wire, launch.local_rank, launch.world_size)


# Moments of one step


@dataclass(frozen=True, slots=True)
class ParameterOwner:
    """A module that holds parameters of its own, and their names."""

    name: str
    module: Any
    parameters: tuple[tuple[str, Any], ...]


def parameter_owners(model: Any) -> list[ParameterOwner]:
    """Return the modules that hold trained parameters, each parameter once, in definition order."""
    seen: set[Any] = set()  # a parameter is equal to itself alone
    owners = []
    for name, module in model.named_modules():
        own = []
        for short, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                own.append((f"{name}.{short}" if name else short, parameter))
        if own:
            owners.append(ParameterOwner(name or "model", module, tuple(own)))
    return owners


@dataclass
class StepMoments:
    """One step's moments [s]: layers from the start of forward, gradients from that of backward.

    ``begun_s`` holds the modules that ran, in the order that they began; ``ready_s`` the
    parameters by name. ``forward_s`` and ``backward_s`` are whole passes.
    """

    begun_s: dict[str, float]
    ready_s: dict[str, float]
    forward_s: float
    backward_s: float
    update_s: float

    @property
    def step_s(self) -> float:
        """The whole step [s]."""
        return self.forward_s + self.backward_s + self.update_s


@dataclass
class StepMarks:
    """Hooks of a model that mark the moments of a step; `remove` takes them away.

    Parameters
    ----------
    model : torch module
    clock : of its device
    positions : takes the rows a sample of each layer's input matrix
    """

    model: Any
    clock: DeviceClock
    positions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put hooks on every module that holds parameters, and on every parameter."""
        self.owners = parameter_owners(self.model)
        self._begun: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}
        self._hooks: list[Any] = []
        for owner in self.owners:
            self._hooks.append(owner.module.register_forward_pre_hook(self._on_begin(owner)))
            self._hooks.append(owner.module.register_forward_hook(self._on_end(owner)))
            for name, parameter in owner.parameters:
                hook = parameter.register_post_accumulate_grad_hook(self._on_gradient(name))
                self._hooks.append(hook)

    def remove(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def step(
        self, loss: Callable[[], Any], back: Callable[[Any], None], update: Callable[[], None]
    ) -> StepMoments:
        """Run one step and return its moments.

        Parameters
        ----------
        loss, back, update : forward pass, backward pass and optimizer of the step
        """
        self._begun.clear()
        self._ready.clear()
        clock = self.clock
        clock.wait()
        first = clock.mark()
        value = loss()
        forward_done = clock.mark()
        back(value)
        backward_done = clock.mark()
        update()
        last = clock.mark()
        clock.wait()
        return StepMoments(
            {name: clock.between(first, mark) for name, mark in self._begun.items()},
            {name: clock.between(forward_done, mark) for name, mark in self._ready.items()},
            clock.between(first, forward_done),
            clock.between(forward_done, backward_done),
            clock.between(backward_done, last),
        )

    def _on_begin(self, owner: ParameterOwner) -> Callable[..., None]:
        def mark(*_: object) -> None:
            self._begun.setdefault(owner.name, self.clock.mark())

        return mark

    def _on_end(self, owner: ParameterOwner) -> Callable[..., None]:
        def note_positions(module: Any, inputs: Any, output: Any) -> None:
            if owner.name not in self.positions:
                self.positions[owner.name] = _positions(module, inputs, output)

        return note_positions

    def _on_gradient(self, name: str) -> Callable[[Any], None]:
        def mark(_: Any) -> None:
            self._ready[name] = self.clock.mark()

        return mark


def _positions(module: Any, inputs: Any, output: Any) -> int:
    """Return the rows a sample of a layer's input matrix: a convolution's pixels, tokens, or 1."""
    import torch

    if not torch.is_tensor(output) or not inputs or not torch.is_tensor(inputs[0]):
        return 1
    samples = max(1, inputs[0].shape[0])
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        pixels = 1
        for side in output.shape[2:]:
            pixels *= int(side)
        return pixels
    if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D":
        return max(1, int(inputs[0].numel()) // int(inputs[0].shape[-1]) // int(samples))
    return 1


# Steps, whole and marked


@dataclass(frozen=True)
class MeasuredModel:
    """The measured times of one model's training step [s].

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
    waited : share of the whole steps' time in which this process was ready but had no core; None
        where the system does not tell it
    """

    subject: Subject
    owners: tuple[ParameterOwner, ...]
    moments: StepMoments
    whole_s: tuple[float, ...]
    positions: dict[str, int]
    peak_bytes: int | None
    unused: tuple[str, ...]
    ranks: int = 1
    waited: float | None = None

    @property
    def iteration_s(self) -> float:
        """The median whole step, without marks [s]."""
        return median(self.whole_s)

    @property
    def marked(self) -> float:
        """The marked step over the whole one: 1 if marks cost nothing."""
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
    ranks: Peers | None = None,
) -> MeasuredModel:
    """Measure a model's training step: whole steps and marked steps in turn.

    Parameters
    ----------
    make : gives the model with its fake data
    precision : fp32, tf32, amp-fp16, amp-bf16
    optimizer : sgd (momentum 0.9), adam, adamw, as PyTorch runs them by default
    repeats : steps of each kind that count, after those that warm up in each turn
    device : "cuda" or "cpu"
    ranks : who trains beside this process; the whole step is then the slowest rank's

    Raises
    ------
    RequestError
        If precision or optimizer is not known, or the model does not fit the device.
    """
    import torch

    if precision not in MEASURED_PRECISIONS:
        raise unknown("precision", precision, MEASURED_PRECISIONS)
    if device == "cpu" and precision in ("tf32", "amp-fp16"):
        why = f"{precision} needs a GPU; a CPU has fp32 and amp-bf16."
        raise RequestError("precision", why, value=precision)
    clock: DeviceClock = CudaClock() if device == "cuda" else CpuClock()
    try:
        subject = make()
        step = TrainingStep(subject, precision, optimizer, device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        whole, marked, marks, waited = _in_turn(
            step, subject, clock, repeats, ranks or OneProcess()
        )
    except torch.OutOfMemoryError:
        raise RequestError(
            "batch", "the model does not fit into the GPU's memory; take a smaller batch."
        ) from None
    moments = _medians(marked)
    began = {name: index for index, name in enumerate(moments.begun_s)}
    parameters = [name for owner in marks.owners for name, _ in owner.parameters]
    return MeasuredModel(
        subject,
        tuple(sorted(marks.owners, key=lambda owner: began.get(owner.name, len(began)))),
        moments,
        tuple(whole),
        dict(marks.positions),
        torch.cuda.max_memory_allocated() if device == "cuda" else None,
        tuple(name for name in parameters if name not in moments.ready_s),
        1 if ranks is None else ranks.count,
        waited,
    )


def _names_the_model(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let what a user's model raises in a method of `TrainingStep` be an error of the request."""

    @wraps(method)
    def run(self: TrainingStep, *given: Any) -> Any:
        try:
            return method(self, *given)
        except Exception as error:
            import torch

            if isinstance(error, PerfsimError | torch.OutOfMemoryError):
                raise
            first = (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
            why = f"its training step failed: {type(error).__name__}: {first}.".replace("`", "'")
            raise RequestError("model", f"{self.subject.name}: {why}") from error

    return run


class TrainingStep:
    """Forward, backward and update of one subject at one precision, which the libraries are told.

    Parameters
    ----------
    subject : the model
    precision, optimizer : see `measure_compute`
    device : "cuda" or "cpu"
    """

    def __init__(self, subject: Subject, precision: str, optimizer: str, device: str) -> None:
        import torch

        self.subject, self._device = subject, device
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        makers: dict[str, Callable[..., Any]] = {
            "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9),
            "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-5),
            "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-5),
        }
        if optimizer not in makers:
            raise unknown("optimizer", optimizer, MEASURED_OPTIMIZERS)
        self._optimizer = self._begin(makers[optimizer])
        types = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
        self._type = types.get(precision)
        self._scaler = torch.amp.GradScaler(device, enabled=precision == "amp-fp16")

    @_names_the_model
    def _begin(self, make: Callable[..., Any]) -> Any:
        """Let the model train, and return the optimizer of its parameters."""
        self.subject.model.train()
        return make(self.subject.model.parameters())

    def _cast(self) -> AbstractContextManager[Any]:
        import torch

        return nullcontext() if self._type is None else torch.autocast(self._device, self._type)

    @_names_the_model
    def loss(self) -> Any:
        """Run the forward pass and return the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        with self._cast():
            return self.subject.loss()

    @_names_the_model
    def back(self, loss: Any) -> None:
        """Run the backward pass."""
        self._scaler.scale(loss).backward()

    @_names_the_model
    def update(self) -> None:
        """Update the parameters."""
        self._scaler.step(self._optimizer)
        self._scaler.update()


def _in_turn(
    step: TrainingStep, subject: Subject, clock: DeviceClock, repeats: int, ranks: Peers
) -> tuple[list[float], list[StepMoments], StepMarks, float | None]:
    """Measure steps without and with marks in turn, so that a drift of the clocks meets both.

    The last value is the share of the former's time in which this thread had no core.
    """
    whole: list[float] = []
    marked: list[StepMoments] = []
    positions: dict[str, int] = {}
    per_turn = -(-repeats // TURNS)
    waits_s: list[float] = []
    spent_s = 0.0
    for turn in range(TURNS):
        begun_s, waited_s = time.perf_counter(), waited_for_core_s()
        warm_up = WARM_UP_AGAIN if turn else WARM_UP_STEPS
        if ranks.count == 1:
            whole += whole_steps(step, clock, per_turn, warm_up)
        else:
            whole += _whole_steps_of_slowest(step, clock, per_turn, warm_up, ranks)
        spent_s += time.perf_counter() - begun_s
        now_s = waited_for_core_s()
        if waited_s is not None and now_s is not None:
            waits_s.append(now_s - waited_s)
        marks = StepMarks(subject.model, clock, positions)
        count = WARM_UP_AGAIN + per_turn
        steps = [marks.step(step.loss, step.back, step.update) for _ in range(count)]
        marked += steps[WARM_UP_AGAIN:]
        marks.remove()
    return whole, marked, marks, sum(waits_s) / spent_s if waits_s else None


def whole_steps(
    step: TrainingStep, clock: DeviceClock, repeats: int, warm_up: int = WARM_UP_STEPS
) -> list[float]:
    """Return the seconds of whole steps, one after another as a training loop runs them."""
    marks = []
    for _ in range(warm_up + repeats):
        marks.append(clock.mark())
        step.back(step.loss())
        step.update()
    marks.append(clock.mark())
    clock.wait()
    return [clock.between(begun, done) for begun, done in pairwise(marks[warm_up:])]


def _whole_steps_of_slowest(
    step: TrainingStep, clock: DeviceClock, repeats: int, warm_up: int, ranks: Peers
) -> list[float]:
    """Return the seconds of the slowest rank's steps; all ranks begin each step together."""
    seconds = []
    for _ in range(warm_up + repeats):
        ranks.begin()
        first = clock.mark()
        step.back(step.loss())
        step.update()
        last = clock.mark()
        clock.wait()
        seconds.append(clock.between(first, last))
    return ranks.slowest(seconds[warm_up:])


def _medians(steps: Sequence[StepMoments]) -> StepMoments:
    """Return the median of every moment."""
    first = steps[0]
    return StepMoments(
        {name: median(step.begun_s[name] for step in steps) for name in first.begun_s},
        {name: median(step.ready_s[name] for step in steps) for name in first.ready_s},
        median(step.forward_s for step in steps),
        median(step.backward_s for step in steps),
        median(step.update_s for step in steps),
    )
