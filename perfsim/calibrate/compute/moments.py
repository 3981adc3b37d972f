"""When each layer begins and each gradient is ready, in one training step with marks in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perfsim.calibrate.compute.clock import Clock

__all__ = ["Marks", "Moments", "Owner", "owners"]


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
    clock: Clock
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
