"""From a trace of training to a profile, and to a table of the collectives that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfsim.calibrate.traces.training_trace import TensorShape, TracedLayer, TracedStep
from perfsim.calibrate.write_profile import milliseconds, profile_csv, split_passes
from perfsim.compute.profile import PROFILE_SCHEMA
from perfsim.errors import DataError
from perfsim.models import build_model, model_names

__all__ = ["profile_of_trace", "with_known_names"]


Tensor = tuple[str, TensorShape]


def with_known_names(step: TracedStep, model: str) -> TracedStep | None:
    """Return a step with the names, and missing shapes, of a model's definition.

    None where perfsim has no such model, or its layers are not these in this order.
    """
    if model not in model_names():
        return None
    defined = [layer for layer in build_model(model) if layer.tensors]
    if len(defined) != len(step.layers):
        return None
    begun, ready, layers = {}, {}, []
    for traced, known in zip(step.layers, defined, strict=True):
        pairs = _paired(traced, known.tensors)
        if pairs is None:
            return None
        begun[known.name] = step.begun_s[traced.name]
        for name, (own, _) in pairs:
            ready[own] = step.ready_s[name]
        layers.append(TracedLayer(known.name, known.kind, tuple(own for _, own in pairs)))
    return replace(step, layers=tuple(layers), begun_s=begun, ready_s=ready)


def _paired(traced: TracedLayer, tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]] | None:
    """Return (traced name, defined tensor) in the definition's order, None if they differ."""
    if len(tensors) != len(traced.gradients):
        return None
    left = list(traced.gradients)
    if all(shape is None for _, shape in left):
        if traced.kind == "linear":
            # The bias is a result of the product's node itself, the weight of a later node.
            left.reverse()
        return [(name, own) for (name, _), own in zip(left, tensors, strict=True)]
    pairs = []
    for tensor in tensors:
        found = next((one for one in left if one[1] == tuple(tensor[1])), None)
        if found is None:
            return None
        left.remove(found)
        pairs.append((found[0], tensor))
    return pairs


IDLE = 0.9
"""Below this share of a busy device the passes hold launches, waits or the profiler's own work."""


def profile_of_trace(step: TracedStep, about: Mapping[str, str], path: Path) -> str:
    """Return the file of the profile that a trace shows.

    The iteration is that of the trace without the time in which only collectives ran: a profile
    is of one device alone. Layers take the names of perfsim's definition of the model if it has
    the same ones.

    Parameters
    ----------
    step : medians of the trace
    about : model, gpu, precision, batch, framework, source, licence, date, maybe sequence
    path : of the trace, for the error

    Raises
    ------
    DataError
        If the trace does not say the gradients' shapes, and no definition does.
    """
    known = with_known_names(step, about["model"])
    named = known or step
    held: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for layer in named.layers:
        held[layer.name] = []
        for tensor, shape in layer.gradients:
            if shape is None:
                raise DataError(
                    "does not say the shapes of its gradients: record it with"
                    " record_shapes=True, or give a --model that perfsim knows and whose layers"
                    " are these",
                    path=path,
                )
            held[layer.name].append((tensor, shape or (1,), named.ready_s[tensor]))
    kinds = {layer.name: layer.kind for layer in named.layers}
    layers = split_passes(named.begun_s, held, kinds, step.forward_s, step.backward_s)
    passes_s = step.forward_s + step.backward_s + step.update_s
    iteration_s = max(step.whole_s - step.waiting_s, passes_s * (1 + 1e-9))
    told = "derived" if step.waiting_s else "measured"
    kind = {"forward_ms": "measured", "backward_ms": "measured", "ready_ms": "measured"}
    kind |= {"iteration_ms": told, "optimizer_ms": "measured"}
    header = {
        "schema": PROFILE_SCHEMA,
        **{key: about[key] for key in ("model", "gpu", "precision", "batch", "framework")},
        "iteration_ms": milliseconds(iteration_s),
        "optimizer_ms": milliseconds(step.update_s),
        "kind": "; ".join(f"{column}={word}" for column, word in kind.items()),
        **{key: about[key] for key in ("source", "licence", "date")},
        "notes": "; ".join(_notes(step, known is not None, about["model"])),
    }
    if "sequence" in about:
        header["sequence"] = about["sequence"]
    return profile_csv(header, layers)


def _notes(step: TracedStep, known: bool, model: str) -> list[str]:
    notes = [f"median of {step.count} traced steps; the profiler's own cost is in all times"]
    if known:
        notes.append(f"layers named as in perfsim's definition of {model}")
    else:
        notes.append("layers and tensors named after the trace's modules or operators")
    if step.waiting_s:
        notes.append(
            f"iteration without the {milliseconds(step.waiting_s)} ms in which only collectives ran"
        )
    if step.busy < IDLE:
        notes.append(
            f"the device was busy in {step.busy:.0%} of the passes: the rest is launches, waits"
            " or the profiler"
        )
    return notes
