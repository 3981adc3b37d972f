"""The model to measure, by name: of torchvision, transformers or timm, or the user's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from perfsim.calibrate.measure.launch import LAUNCHERS, find_launch
from perfsim.errors import RequestError, unknown

__all__ = [
    "LIBRARIES",
    "Alone",
    "CpuClock",
    "CudaClock",
    "DeviceClock",
    "Ranks",
    "RanksInStep",
    "Subject",
    "find_ranks",
    "find_subject",
    "named_parts",
]


class DeviceClock(Protocol):
    """Marks moments without waiting for the device; reads them once all is done."""

    def mark(self) -> Any:
        """Return a mark of now, on the device's own time line."""
        ...

    def wait(self) -> None:
        """Wait until the device has done everything."""
        ...

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two marks, after `wait` [s]."""
        ...


class CpuClock:
    """The processor's clock: work is done when the call returns."""

    def mark(self) -> float:
        """Return the clock's reading [s]."""
        return time.perf_counter()

    def wait(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def between(self, first: float, last: float) -> float:
        """Return the time between two marks [s]."""
        return last - first


class CudaClock:
    """CUDA events on the current stream; recording one takes microseconds of the host."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda

    def mark(self) -> Any:
        """Record an event."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize()

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two events [s]."""
        return float(first.elapsed_time(last)) / 1e3


PATIENCE_S = 300.0


class Ranks(Protocol):
    """Who measures beside this process."""

    rank: int
    local_rank: int
    count: int

    def begin(self) -> None:
        """Return on every rank at once."""
        ...

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the longest of the ranks' times, each by itself."""
        ...

    def close(self) -> None:
        """Leave in good order."""
        ...


class Alone:
    """One process by itself."""

    rank, local_rank, count = 0, 0, 1

    def begin(self) -> None:
        """Begin at once."""

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the times."""
        return list(seconds)

    def close(self) -> None:
        """Do nothing."""


class RanksInStep:
    """The ranks of a job; they meet over gloo, whatever computes."""

    def __init__(self, wire: Any, local_rank: int, count: int) -> None:
        self._wire, self.rank, self.local_rank, self.count = wire, wire.rank, local_rank, count

    def begin(self) -> None:
        """Wait for all."""
        self._wire.barrier()

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the longest of the ranks' times, each by itself."""
        return [max(of) for of in zip(*self._wire.gather(list(seconds)), strict=True)]

    def close(self) -> None:
        """Leave the job."""
        self._wire.close()


def find_ranks(environ: Mapping[str, str]) -> Ranks:
    """Return the ranks of this job, or this process alone where it is none.

    Raises
    ------
    RequestError
        If the job cannot be joined.
    """
    sizes = (environ.get(names[1], "") for names in LAUNCHERS.values())
    if all(size in ("", "1") for size in sizes):
        return Alone()
    from perfsim.calibrate.measure.torch_wire import TorchWire

    launch = find_launch(environ)
    return RanksInStep(TorchWire(launch, "gloo", PATIENCE_S), launch.local_rank, launch.world_size)


LIBRARIES = ("torchvision", "transformers", "timm")
SIDE = {"inception_v3": 299}
"""Image sides that are not 224: the model's own paper and torchvision's documentation."""
SIDE_USUAL = 224
CLASSES = 1000


@dataclass
class Subject:
    """A model with fake data: ``loss()`` runs its forward pass and returns a scalar.

    Parameters
    ----------
    name : as asked for
    model : the torch module, on the device
    loss : forward pass and loss
    samples : in a batch
    sequence : tokens a sample, None for images
    """

    name: str
    model: Any
    loss: Callable[[], Any]
    samples: int
    sequence: int | None = None


def find_subject(name: str, batch: int, sequence: int | None, device: str) -> Subject:
    """Return a model by name, with random weights and fake data.

    ``module:factory`` is called with ``batch`` and ``device`` (and ``sequence`` where it was given)
    as keywords; it returns a module and a function without arguments that gives the loss.

    Raises
    ------
    RequestError
        If the library is not installed, or has no such model.
    """
    library, model = named_parts(name)
    if library not in LIBRARIES:
        return _own(name, library, model, batch, sequence, device)
    try:
        found = import_module(library)
    except ImportError:
        raise RequestError("model", f"{library} is not installed; pip install {library}.") from None
    if library == "transformers":
        return _language(name, found, model, batch, sequence or 128, device)
    return _images(name, found, model, batch, device)


def named_parts(name: str) -> tuple[str, str]:
    """Return library or module, and the model in it.

    Raises
    ------
    RequestError
        If there is no colon between two words.

    Examples
    --------
    >>> named_parts("torchvision:resnet50")
    ('torchvision', 'resnet50')
    """
    library, _, model = name.partition(":")
    if not library or not model:
        raise RequestError(
            "model",
            f"{name!r} is no model to measure; write torchvision:resnet50,"
            " transformers:bert-base-uncased, timm:vit_base_patch16_224 or module:factory.",
        )
    return library, model


def _own(
    name: str, module: str, factory: str, batch: int, sequence: int | None, device: str
) -> Subject:
    # The user's folder comes first, as for `python -m`.
    sys.path.insert(0, "")
    try:
        made = getattr(import_module(module), factory)
    except ImportError as error:
        raise RequestError("model", f"{module!r} cannot be imported: {error}.") from None
    except AttributeError:
        raise unknown("model", factory, dir(import_module(module))) from None
    finally:
        sys.path.remove("")
    given = {"batch": batch, "device": device}
    if sequence is not None:
        given["sequence"] = sequence
    try:
        model, loss = made(**given)
    except (TypeError, ValueError) as error:
        raise RequestError(
            "model",
            f"{name} must take batch and device and return a module and a function that"
            f" gives its loss: {error}.",
        ) from None
    return Subject(name, model, loss, batch, sequence)


def _images(name: str, library: Any, model: str, batch: int, device: str) -> Subject:
    import torch

    known = library.models.list_models() if library.__name__ == "torchvision" else []
    known = known or library.list_models()
    if model not in known:
        raise unknown("model", model, known)
    side = SIDE.get(model, SIDE_USUAL)
    if library.__name__ == "torchvision":
        made = library.models.get_model(model, weights=None, num_classes=CLASSES)
    else:
        made = library.create_model(model, pretrained=False, num_classes=CLASSES)
        side = made.default_cfg["input_size"][-1]
    made = made.to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    entropy = torch.nn.CrossEntropyLoss()

    def loss() -> Any:
        out = made(images)
        # Networks with side exits (GoogLeNet, Inception v3) return a tuple; the main exit is first.
        return entropy(out if torch.is_tensor(out) else out[0], labels)

    return Subject(name, made, loss, batch)


def _language(
    name: str, library: Any, model: str, batch: int, sequence: int, device: str
) -> Subject:
    import torch

    try:
        config = library.AutoConfig.from_pretrained(model)
    except (OSError, ValueError):
        config = _known_config(library, model)
    causal = config.model_type.startswith("gpt")
    kind = library.AutoModelForCausalLM if causal else library.AutoModelForMaskedLM
    made = kind.from_config(config).to(device)
    tokens = torch.randint(config.vocab_size, (batch, sequence), device=device)
    return Subject(name, made, lambda: made(tokens, labels=tokens).loss, batch, sequence)


def _known_config(library: Any, model: str) -> Any:
    """Return a published model's sizes where its files cannot be downloaded."""
    large = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    # Devlin et al. 2019, section 3; Radford et al. 2019, table 2: base sizes are the defaults.
    known = {
        "bert-base-uncased": library.BertConfig,
        "bert-large-uncased": lambda: library.BertConfig(**large),
        "gpt2": library.GPT2Config,
    }
    if model not in known:
        raise unknown("model", model, known)
    return known[model]()
