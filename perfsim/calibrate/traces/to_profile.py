"""From the training step of a trace to the text of a profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfsim.calibrate.traces.training_trace import TensorShape, TracedLayer, TracedStep
from perfsim.calibrate.write_profile import milliseconds, profile_csv, split_passes
from perfsim.compute.profile import PROFILE_SCHEMA
from perfsim.errors import DataError
from perfsim.models import build_model, defined_models

__all__ = ["of_another_network", "profile_of_trace", "with_known_names"]

USUAL_BUSY_SHARE = 0.9
"""Below this share of a busy device a note says that passes hold launches, waits or the profiler's
own work. No source: chosen."""

_Tensor = tuple[str, TensorShape]


def profile_of_trace(step: TracedStep, about: Mapping[str, str], path: Path) -> str:
    """Return the text of the profile that a trace shows.

    The iteration is the trace's without the time in which only collectives ran: a profile is of
    one device alone. Layers take the names of perfsim's definition of the model if it has the same
    layers.

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
    kinds = {layer.name: layer.kind for layer in named.layers}
    gradients = _gradients_by_layer(named, path)
    layers = split_passes(named.begun_s, gradients, kinds, step.forward_s, step.backward_s)
    passes_s = step.forward_s + step.backward_s + step.update_s
    iteration_s = max(step.whole_s - step.waiting_s, passes_s * (1 + 1e-9))
    kind = {"forward_ms": "measured", "backward_ms": "measured", "ready_ms": "measured"}
    kind |= {"iteration_ms": "derived" if step.waiting_s else "measured"}
    kind |= {"optimizer_ms": "measured"}
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


def _gradients_by_layer(
    step: TracedStep, path: Path
) -> dict[str, list[tuple[str, TensorShape, float]]]:
    gradients: dict[str, list[tuple[str, TensorShape, float]]] = {}
    for layer in step.layers:
        gradients[layer.name] = []
        for tensor, shape in layer.gradients:
            if shape is None:
                raise DataError(
                    "does not say the shapes of its gradients: record it with"
                    " record_shapes=True, or give a model that perfsim knows and whose layers"
                    " are these",
                    path=path,
                )
            gradients[layer.name].append((tensor, shape or (1,), step.ready_s[tensor]))
    return gradients


def _notes(step: TracedStep, known: bool, model: str) -> list[str]:
    notes = [f"median of {step.count} traced steps; the profiler's own cost is in all times"]
    if known:
        notes.append(f"layers named as in perfsim's definition of {model}")
    else:
        notes.append("layers and tensors named after the trace's modules or operators")
    if other := of_another_network(step, model):
        notes.append(other)
    if step.waiting_s:
        notes.append(
            f"iteration without the {milliseconds(step.waiting_s)} ms in which only collectives ran"
        )
    if step.busy < USUAL_BUSY_SHARE:
        notes.append(
            f"the device was busy in {step.busy:.0%} of the passes: the rest is launches, waits"
            " or the profiler"
        )
    return notes


def of_another_network(step: TracedStep, model: str) -> str:
    """Say that a trace has other parameters than perfsim's definition of the model it is called.

    "" where they are as many, or where trace or perfsim do not know them.
    """
    shapes = [shape for layer in step.layers for _, shape in layer.gradients]
    if model not in defined_models() or None in shapes:
        return ""
    traced = sum(math.prod(shape) for shape in shapes if shape is not None)
    known = sum(layer.elements for layer in build_model(model))
    if traced == known:
        return ""
    return (
        f"the trace has {traced:,} parameters and perfsim's {model} {known:,}: it is another"
        " network, and nothing known of that one is used for it"
    )


def with_known_names(step: TracedStep, model: str) -> TracedStep | None:
    """Return a step with the names, and missing shapes, of a model's definition.

    None if perfsim has no such model, or if its layers are not these in this order.
    """
    if model not in defined_models():
        return None
    defined = [layer for layer in build_model(model) if layer.tensors]
    if len(defined) != len(step.layers):
        return None
    begun, ready, layers = {}, {}, []
    for traced, known in zip(step.layers, defined, strict=True):
        pairs = _paired_tensors(traced, known.tensors)
        if pairs is None:
            return None
        begun[known.name] = step.begun_s[traced.name]
        for name, (known_name, _) in pairs:
            ready[known_name] = step.ready_s[name]
        layers.append(TracedLayer(known.name, known.kind, tuple(tensor for _, tensor in pairs)))
    return replace(step, layers=tuple(layers), begun_s=begun, ready_s=ready)


def _paired_tensors(
    traced: TracedLayer, tensors: Sequence[_Tensor]
) -> list[tuple[str, _Tensor]] | None:
    """Return (traced name, defined tensor) in the definition's order, None if they differ."""
    if len(tensors) != len(traced.gradients):
        return None
    left = list(traced.gradients)
    if all(shape is None for _, shape in left):
        if traced.kind == "linear":
            # The bias is a result of the product's node itself, the weight of a later node.
            left.reverse()
        return [(name, tensor) for (name, _), tensor in zip(left, tensors, strict=True)]
    pairs = []
    for tensor in tensors:
        match = next((gradient for gradient in left if gradient[1] == tuple(tensor[1])), None)
        if match is None:
            return None
        left.remove(match)
        pairs.append((match[0], tensor))
    return pairs
