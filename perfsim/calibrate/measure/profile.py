"""One model's step measured: whole without marks, then layer by layer, and the two compared."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.measure.launch import device_name, torch_device
from perfsim.calibrate.measure.repeats import half_width
from perfsim.calibrate.measure.subject import (
    Alone,
    CpuClock,
    CudaClock,
    DeviceClock,
    Ranks,
    Subject,
    find_ranks,
    find_subject,
    named_parts,
)
from perfsim.calibrate.traces.to_profile import (
    LayerTimes,
    between_moments,
    milliseconds,
    profile_csv,
)
from perfsim.compute.profile import POSITIONS_COLUMNS as POSITION_COLUMNS
from perfsim.compute.profile import POSITIONS_SCHEMA as POSITIONS
from perfsim.compute.profile import PRECISIONS, PROFILE_SCHEMA, read_profile
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import RequestError, unknown

__all__ = [
    "AGREES",
    "LayerTimes",
    "Marks",
    "MeasuredModel",
    "Moments",
    "Owner",
    "Profiled",
    "calibrate_compute",
    "layer_times",
    "measure_compute",
    "owners",
    "positions_text",
    "profile_text",
]


@dataclass(frozen=True, slots=True)
class Owner:
    """A module that holds parameters of its own, and their names."""

    name: str
    module: Any
    parameters: tuple[tuple[str, Any], ...]


def owners(model: Any) -> list[Owner]:
    """Return the modules that hold trained parameters, each parameter once, in definition order."""
    seen: set[int] = set()
    found = []
    for name, module in model.named_modules():
        own = []
        for short, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                own.append((f"{name}.{short}" if name else short, parameter))
        if own:
            found.append(Owner(name or "model", module, tuple(own)))
    return found


@dataclass
class Moments:
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
class Marks:
    """Hooks that mark moments; `remove` takes them away.

    Parameters
    ----------
    model : torch module
    clock : of its device
    """

    model: Any
    clock: DeviceClock
    positions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put hooks on every module that holds parameters, and on every parameter."""
        self.owners = owners(self.model)
        self._begun: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}
        self._hooks: list[Any] = []
        for owner in self.owners:
            self._hooks.append(owner.module.register_forward_pre_hook(self._begins(owner)))
            self._hooks.append(owner.module.register_forward_hook(self._ends(owner)))
            for name, parameter in owner.parameters:
                hook = parameter.register_post_accumulate_grad_hook(self._gradient(name))
                self._hooks.append(hook)

    def remove(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def step(
        self, loss: Callable[[], Any], back: Callable[[Any], None], update: Callable[[], None]
    ) -> Moments:
        """Run one step and return its moments."""
        self._begun.clear()
        self._ready.clear()
        clock = self.clock
        clock.wait()
        first = clock.mark()
        value = loss()
        turned = clock.mark()
        back(value)
        done = clock.mark()
        update()
        last = clock.mark()
        clock.wait()
        return Moments(
            {name: clock.between(first, mark) for name, mark in self._begun.items()},
            {name: clock.between(turned, mark) for name, mark in self._ready.items()},
            clock.between(first, turned),
            clock.between(turned, done),
            clock.between(done, last),
        )

    def _begins(self, owner: Owner) -> Callable[..., None]:
        def begins(*_: object) -> None:
            self._begun.setdefault(owner.name, self.clock.mark())

        return begins

    def _ends(self, owner: Owner) -> Callable[..., None]:
        def ends(module: Any, inputs: Any, output: Any) -> None:
            if owner.name not in self.positions:
                self.positions[owner.name] = _positions(module, inputs, output)

        return ends

    def _gradient(self, name: str) -> Callable[[Any], None]:
        def ready(_: Any) -> None:
            self._ready[name] = self.clock.mark()

        return ready


def _positions(module: Any, inputs: Any, output: Any) -> int:
    """Return the rows a sample of a layer's input matrix: places of a convolution, tokens, or 1."""
    import torch

    if not torch.is_tensor(output) or not inputs or not torch.is_tensor(inputs[0]):
        return 1
    samples = max(1, inputs[0].shape[0])
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        places = 1
        for side in output.shape[2:]:
            places *= int(side)
        return places
    if isinstance(module, torch.nn.Linear):
        return max(1, int(inputs[0].numel()) // int(module.in_features) // int(samples))
    return 1


AGREES = 0.03
"""The marked step may differ so much from the whole one before its marks are called too dear."""
WARM_UP = 5
TURNS = 4
OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class MeasuredModel:
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
) -> MeasuredModel:
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
        raise unknown("precision", precision, PRECISIONS)
    if device == "cpu" and precision in ("tf32", "amp-fp16"):
        raise RequestError("precision", f"{precision} needs a GPU; a CPU has fp32 and amp-bf16.")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    clock: DeviceClock = CudaClock() if device == "cuda" else CpuClock()
    try:
        subject = make()
        step = _Step(subject, precision, optimizer, device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        whole, taken, marks = _in_turn(step, subject, clock, repeats, ranks or Alone())
    except torch.OutOfMemoryError:
        raise RequestError(
            "batch", "the model does not fit into the GPU's memory; take a smaller batch."
        ) from None
    moments = _middle(taken)
    began = {name: place for place, name in enumerate(moments.begun_s)}
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
            raise unknown("optimizer", optimizer, OPTIMIZERS)
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
    step: _Step, subject: Subject, clock: DeviceClock, repeats: int, ranks: Ranks
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


def _whole(step: _Step, clock: DeviceClock, repeats: int) -> list[float]:
    """Return the seconds of whole steps, one after another as a training loop runs them."""
    marks = []
    for _ in range(WARM_UP + repeats):
        marks.append(clock.mark())
        step.back(step.loss())
        step.update()
    marks.append(clock.mark())
    clock.wait()
    return [clock.between(one, two) for one, two in pairwise(marks[WARM_UP:])]


def _abreast(step: _Step, clock: DeviceClock, repeats: int, ranks: Ranks) -> list[float]:
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


WORDS = {
    "Conv": "conv",
    "BatchNorm": "batchnorm",
    "Linear": "linear",
    "LayerNorm": "layernorm",
    "Embedding": "embedding",
    "LSTM": "lstm",
}
"""Words of a module's class, and the kind of layer that it is; anything else is a parameter."""


def layer_times(measured: MeasuredModel) -> list[LayerTimes]:
    """Return a step's layers in forward order, scaled so that all of it adds up to the whole step.

    What counts with which layer is said at `between_moments`.
    """
    scale = measured.iteration_s / measured.moments.step_s
    moments = measured.moments
    held = _held(measured)
    kinds = {owner.name: _kind(owner.module) for owner in measured.owners}
    return between_moments(
        moments.begun_s, held, kinds, moments.forward_s, moments.backward_s, scale
    )


def profile_text(measured: MeasuredModel, about: Mapping[str, str]) -> str:
    """Return the profile's file.

    Parameters
    ----------
    measured : the step
    about : model, gpu, precision, framework, source, licence, date, and notes if there are any
    """
    scale = measured.iteration_s / measured.moments.step_s
    subject = measured.subject
    kinds = "; ".join(f"{column}=measured" for column in KINDS)
    notes = [about["notes"]] if about.get("notes") else []
    slowest = f", the slowest of {measured.ranks} ranks that begin together"
    notes.append(
        f"median of {len(measured.whole_s)} whole steps without hooks"
        f"{slowest if measured.ranks > 1 else ''} (+-{measured.spread:.1%});"
        f" layers by marks at each module's beginning and each gradient's accumulation, whose steps"
        f" took {measured.marked:.3f} times as long and are scaled to the whole"
        + ("" if abs(measured.marked - 1) <= AGREES else ": more than the 3 % that is usual")
    )
    if measured.peak_bytes is not None:
        notes.append(f"peak memory {measured.peak_bytes / 2**30:.2f} GiB")
    header = {
        "schema": PROFILE_SCHEMA,
        "model": about["model"],
        "gpu": about["gpu"],
        "precision": about["precision"],
        "batch": str(subject.samples),
        "framework": about["framework"],
        "iteration_ms": milliseconds(measured.iteration_s),
        "optimizer_ms": milliseconds(measured.moments.update_s * scale),
        "kind": kinds,
        "source": about["source"],
        "licence": about["licence"],
        "date": about["date"],
        "notes": "; ".join(notes),
    }
    if subject.sequence is not None:
        header["sequence"] = str(subject.sequence)
    return profile_csv(header, layer_times(measured))


def positions_text(measured: MeasuredModel, model: str, source: str) -> str:
    """Return the file of positions: rows a sample of each convolution's and dense layer's input."""
    text = io.StringIO()
    for key, value in (("schema", POSITIONS), ("model", model), ("source", source)):
        text.write(f"# {key}: {value}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(POSITION_COLUMNS)
    for layer in layer_times(measured):
        if layer.kind in ("conv", "linear"):
            table.writerow((layer.name, measured.positions.get(layer.name, 1)))
    return text.getvalue()


KINDS = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms", "optimizer_ms")


def _held(measured: MeasuredModel) -> dict[str, list[tuple[str, tuple[int, ...], float]]]:
    """Return layer -> its gradients; of a module never called they are its parent's."""
    moments = measured.moments
    held: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for name in moments.begun_s:
        held[name] = []
    for owner in measured.owners:
        home = owner.name
        while home not in held and "." in home:
            home = home.rpartition(".")[0]
        home = home if home in held else next(iter(held))
        held[home] += [
            (name, tuple(int(axis) for axis in parameter.shape), moments.ready_s[name])
            for name, parameter in owner.parameters
            if name in moments.ready_s
        ]
    return {name: of for name, of in held.items() if of}


def _kind(module: Any) -> str:
    word = type(module).__name__
    return next((kind for part, kind in WORDS.items() if part in word), "parameter")


CALIBRATE_COMPUTE_SCHEMA = "perfsim/calibrate-compute/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Profiled:
    """The files written, and what was measured."""

    profile: Path
    positions: Path
    measured: MeasuredModel

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate compute --json`` prints."""
        measured = self.measured
        return {
            "schema": CALIBRATE_COMPUTE_SCHEMA,
            "profile": str(self.profile),
            "positions": str(self.positions),
            "iteration_s": measured.iteration_s,
            "iteration_relative_half_width": measured.spread,
            "ranks": measured.ranks,
            "samples_per_s": measured.subject.samples / measured.iteration_s,
            "marked_over_whole": measured.marked,
            "forward_s": measured.moments.forward_s,
            "backward_s": measured.moments.backward_s,
            "optimizer_s": measured.moments.update_s,
            "gradients": len(measured.moments.ready_s),
            "without_gradient": list(measured.unused),
            "peak_memory_bytes": measured.peak_bytes,
        }


def calibrate_compute(
    model: str,
    batch: int,
    *,
    precision: str = "fp32",
    sequence: int | None = None,
    optimizer: str = "sgd",
    repeats: int = 20,
    device: str | None = None,
    gpu: str | None = None,
    name: str | None = None,
    folder: Path = Path("profiles"),
    force: bool = False,
) -> Profiled | None:
    """Measure a model on this machine and write its profile and positions.

    As a job of several ranks (torchrun, srun, mpirun) all of them train side by side without
    exchanging anything, and the whole step is the slowest rank's: what a synchronous step waits
    for. Rank 0 writes; the others return None.

    Parameters
    ----------
    model : torchvision:resnet50, transformers:bert-base-uncased, timm:..., module:factory
    batch, sequence : samples, and tokens a sample where it has any
    precision, optimizer, repeats : see `measure_compute`
    device : cuda or cpu; None is a GPU if there is one
    gpu : name of the device in perfsim's words; None is found from what the driver says
    name : of the model in perfsim's words; None is made of ``model``
    folder : of profiles; files go below its models/
    force : replace a profile that is there

    Raises
    ------
    RequestError
        If the request cannot be met; nothing is written then.
    """
    torch, device = torch_device("calibrate compute", device)
    if batch < 1 or repeats < 3:
        raise RequestError("`batch` must be at least 1 and `repeats` at least 3.")
    ranks = find_ranks(os.environ)
    if device == "cuda":
        torch.cuda.set_device(ranks.local_rank % torch.cuda.device_count())
    word = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    gpu = gpu or device_name(word, Catalog().files("devices"))
    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", named_parts(model)[1])
    if not NAME.fullmatch(name):
        raise RequestError("name", f"{name!r} is no name; letters, digits, '_' and '-'.")
    parts = [name, gpu, precision, f"b{batch}", *([f"s{sequence}"] if sequence else [])]
    path = folder / "models" / f"{'.'.join(parts)}.csv"
    if path.exists() and not force:
        raise RequestError("out", f"{str(path)!r} is there already; `force` replaces it.")
    measured = measure_compute(
        lambda: find_subject(model, batch, sequence, device),
        precision,
        optimizer,
        repeats,
        device,
        ranks,
    )
    ranks.close()
    if ranks.rank:
        return None
    about = {
        "model": name,
        "gpu": gpu,
        "precision": precision,
        "framework": _framework(torch, device),
        "source": f"perfsim calibrate compute --model {model} --optimizer {optimizer} on {word}",
        "licence": "the measurer's own",
        "date": date.today().isoformat(),
    }
    text = profile_text(measured, about)
    positions = folder / "models" / f"{name}.positions.csv"
    _write(path, text, positions, positions_text(measured, name, about["source"]))
    return Profiled(path, positions, measured)


def _write(path: Path, text: str, positions: Path, positions_csv: str) -> None:
    """Write both files whole, the profile only if it reads back."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError("out", f"{str(path.parent)!r}: {error.strerror}.") from None
    with TemporaryDirectory() as work:
        trial = Path(work) / path.name
        trial.write_text(text, encoding="utf-8")
        read_profile(trial)
    write_text(path, text)
    write_text(positions, positions_csv)


def _framework(torch: Any, device: str) -> str:
    parts = [f"PyTorch {torch.__version__}"]
    if device == "cuda":
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(parts)
