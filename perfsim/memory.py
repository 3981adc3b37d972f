"""What one GPU holds in training, by part; whether it fits, and the largest batch that does.

`perfsim.compute.memory` has the physics of each part; here a setup is put into its words.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from perfsim.compute.device import Device
from perfsim.compute.execution import execution_of
from perfsim.compute.memory import (
    Activations,
    Recompute,
    Sharding,
    State,
    activation_bytes,
    fsdp_sharding,
    largest_batch,
    overhead_bytes,
    state_bytes,
    usable_bytes,
)
from perfsim.compute.profile import Profile, matches_definition
from perfsim.compute.software import software_era
from perfsim.errors import RequestError
from perfsim.models import build_model, takes_tokens
from perfsim.resolve import Setup, kernel_era
from perfsim.schedule.costs import Costs
from perfsim.units import format_bytes

__all__ = ["UNFIT", "MemoryUse", "check_fits", "fitting_batch", "memory_note", "memory_use"]

_OF_PROFILE = {"plain-sgd": "sgd", "sgd": "momentum", "adamw-by-operation": "adamw"}
"""What a profile calls its optimizer -> its name for memory, where that differs."""
_NEW_GRADIENTS = 2023
"""From software of this year on gradients are set to none between iterations (PyTorch 2.0's
zero_grad)."""


UNFIT = "It does not fit into memory"
"""How the note begins that says so."""


class MemoryUse(NamedTuple):
    """Bytes on one GPU at the worst moment of an iteration, by part, and what may be used.

    ``whole`` says whether activations are among the parts: not for a model without layers.
    """

    parts: dict[str, float]
    usable: float
    whole: bool

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether the GPU has as much."""
        return self.total <= self.usable


def memory_use(setup: Setup, gathered_bytes: float = 0.0, batch: int | None = None) -> MemoryUse:
    """Return what one GPU holds.

    Parameters
    ----------
    gathered_bytes : messages of other ranks that are held until they are decoded
    batch : samples of a micro-batch; None for the setup's own
    """
    defined = matches_definition(setup.profile)
    precision, era = _regime(setup), kernel_era(setup.scenario)
    state = _state(setup, precision, defined=defined)
    overhead = overhead_bytes(era, setup.cluster.gpus)
    works = setup.cluster.gpus > 1 or setup.method.works_alone
    method = 0.0
    if works and not setup.method.shards_parameters:
        scenario = setup.scenario
        costs = Costs(setup.device, setup.cluster, scenario.algorithm, scenario.protocol)
        method = setup.method.memory_in(costs.context(setup.profile))
    parts = {"parameters": state.parameters, "gradients": state.gradients}
    parts |= {"optimizer": state.optimizer, "activations": 0.0, "logits": 0.0}
    parts |= {"copies": state.copies, "method": method}
    parts |= {"messages": gathered_bytes + state.messages, "step": 0.0}
    if defined:
        _add_activations(parts, setup, precision, state, batch or setup.profile.batch)
    tensors = sum(parts.values())
    parts["overhead"] = (
        tensors * (overhead.reserve - 1.0) + overhead.context + overhead.communicator
    )
    return MemoryUse(parts, usable_bytes(_smallest(setup).memory_bytes), defined)


def _add_activations(
    parts: dict[str, float],
    setup: Setup,
    precision: str,
    state: State,
    batch: int,
) -> None:
    """Add activations; of the passes and the update, the moment that needs more counts."""
    profile, era = setup.profile, setup.carried.era
    again = setup.scenario.recompute
    one = _activations(profile.model, _tokens(profile), precision, era, again)
    found = Activations(*(batch * part for part in one))
    old = software_era(era).year < _NEW_GRADIENTS or setup.scenario.accumulate > 1
    during = found.peak + state.copies + (state.gradients if old else 0.0)
    after = state.gradients + max(found.working + state.copies, state.step)
    if during >= after:
        parts["logits"] = min(found.logits, found.peak - found.kept)
        parts["activations"] = found.peak - parts["logits"]
        parts["gradients"] = state.gradients if old else 0.0
    elif state.step > found.working + state.copies:
        parts["step"], parts["copies"] = state.step, 0.0
    else:
        parts["activations"] = found.working


def _smallest(setup: Setup) -> Device:
    """Return the type of GPU with the least memory."""
    devices = [setup.device, *(part.device for part in setup.parts)]
    return min(devices, key=lambda device: device.memory_bytes)


def _tokens(profile: Profile) -> int | None:
    """Return the tokens a sample that choose a model's layers."""
    return profile.sequence if takes_tokens(profile.model) else None


@cache
def _activations(
    model: str, tokens: int | None, precision: str, era: str, recompute: Recompute
) -> Activations:
    """Return the activations of one sample; they grow with the batch."""
    return activation_bytes(build_model(model, tokens), 1, precision, execution_of(era), recompute)


@cache
def _units(model: str, tokens: int | None) -> tuple[float, float] | None:
    """Return the parameters of the largest unit and of what is in none; None without blocks."""
    layers = build_model(model, tokens)
    if not any(layer.kind == "attention" for layer in layers):
        return None
    found = fsdp_sharding(layers, 1)
    return found.unit, found.root


def _regime(setup: Setup) -> str:
    """Return how half precision is kept: by autocast, or as 16-bit parameters where sharded."""
    precision = setup.profile.precision
    if setup.method.shards_parameters and precision.startswith("amp-"):
        return precision.removeprefix("amp-")
    return precision


def _state(setup: Setup, precision: str, *, defined: bool) -> State:
    """Return the state of parameters, gradients and optimizer, as the method shares it."""
    method, profile = setup.method, setup.profile
    shares = method.kept_share(setup.cluster.gpus)
    kept = shares["parameters"], shares["gradients"], shares["optimizer"]
    sharding = Sharding(*kept)
    if method.shards_parameters and defined:
        units = _units(profile.model, _tokens(profile))
        if units is not None:
            whole = shares["parameters"] == 1.0
            root = float(profile.elements) if whole else units[1]
            sharding = Sharding(*kept, unit=units[0], root=root)
    asked = setup.scenario.optimizer or _OF_PROFILE.get(profile.optimizer, profile.optimizer)
    return state_bytes(profile.elements, precision, asked, sharding)


def fitting_batch(setup: Setup, gathered_bytes: float = 0.0) -> int | None:
    """Return the largest micro-batch that fits, 0 if none does; None where it is not known."""
    if not matches_definition(setup.profile):
        return None
    return largest_batch(lambda batch: memory_use(setup, gathered_bytes, batch).fits)


def memory_note(setup: Setup, use: MemoryUse, gathered_bytes: float = 0.0) -> str:
    """Say that a model does not fit, and what would; "" where it fits."""
    if use.fits:
        return ""
    without = "" if use.whole else " without activations"
    note = (
        f"{UNFIT}: {format_bytes(use.total)}{without},"
        f" {_smallest(setup).name} has {format_bytes(use.usable)} for it."
    )
    batch = fitting_batch(setup, gathered_bytes)
    if batch:
        return f"{note} The largest `batch` that fits is {batch}."
    if batch == 0:
        ways = [] if setup.method.shards_parameters else ["`method` fsdp"]
        ways += [] if setup.scenario.recompute == "full" else ["`recompute` full"]
        ways += ["more GPUs"] if setup.method.shards_parameters else []
        return f"{note} No batch does; {' or '.join(ways)} would need less."
    return note


def check_fits(setup: Setup, use: MemoryUse) -> None:
    """Refuse what does not fit.

    Raises
    ------
    RequestError
        If it needs more memory than the GPU has.
    """
    note = memory_note(setup, use)
    if note:
        raise RequestError("", f"{note} `ignore_memory` takes it nevertheless.")
