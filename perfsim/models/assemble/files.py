"""Writes a profile as text in the format that ``perfsim.compute.profile`` reads."""

from __future__ import annotations

import csv
import io
import math
from itertools import accumulate

from perfsim.compute.profile import PROFILE_COLUMNS, PROFILE_SCHEMA
from perfsim.models.assemble.anchors import OPTIMIZER_PASSES, AnchorRow
from perfsim.models.assemble.shapes import CALIBRATED_ON
from perfsim.models.assemble.times import Times

__all__ = ["profile_text"]

DIGITS = 4
"""Decimals of a millisecond; sums are kept by rounding running totals, not single times."""

SHAPES = {
    "trace": "ready_ms and backward_ms are the gradient-ready moments of a trace of one iteration"
    " plus a derived {start:.3f} ms before its first gradient (loss and output layer)",
    "scaled-trace": "ready_ms and backward_ms are the gradient-ready moments of a trace, with a"
    " derived time before its first gradient, all scaled to the total",
    "modules": "layer times are module times scaled to the total (the source synchronises around"
    " every module); a gradient is ready when its layer ends",
    "work": "layer times are work (FLOPs, bytes) at the rate that layers of the same class have in"
    " a measured {network}, scaled to the total; a gradient is ready when its layer ends",
}
TRACE = "zhuangwang93/Espresso@a0294e3 model_tensor.py ({source}, Apache-2.0, one V100-32GB)"
MODULES = "msr-fiddle/pipedream@7db6a1c profiler graph ({source}, MIT)"


def _layer_source(shape: tuple[str, str]) -> str:
    _, source = shape
    return (TRACE if source.startswith("espresso") else MODULES).format(source=source)


def _sources(anchor: AnchorRow) -> str:
    parts = [f"total: {anchor.source}", f"layers: {_layer_source(anchor.shape)}"]
    if anchor.forward_shape and anchor.forward_shape[1] != anchor.shape[1]:
        parts.append(f"forward shape: {_layer_source(anchor.forward_shape)}")
    return "; ".join(parts)


def _licences(anchor: AnchorRow) -> str:
    layers = "Apache-2.0" if anchor.shape[1].startswith("espresso") else "MIT"
    if anchor.forward_shape and anchor.forward_shape[1].startswith("pipedream"):
        layers = f"{layers}, MIT"
    return f"total: {anchor.licence}; layers: {layers}"


def _split(anchor: AnchorRow) -> str:
    if anchor.shape[0] == "modules" and not anchor.split:
        return ""
    if anchor.forward_ms is not None:
        given = "forward and backward totals are" if anchor.backward_ms else "forward total is"
        return f"the {given} the source's own"
    if anchor.split == "gemm":
        return "the forward pass is taken as half of the backward pass"
    if anchor.split:
        return f"forward to backward is as in {anchor.split}"
    return "the forward total is the iteration less backward and optimizer"


def _notes(anchor: AnchorRow, times: Times) -> str:
    kind, source = anchor.shape
    network = CALIBRATED_ON.get(source, "")
    parts = [SHAPES[kind].format(source=source, start=times.start_ms, network=network)]
    if anchor.forward_shape:
        how = "module times" if anchor.forward_shape[0] == "modules" else "work"
        parts.append(f"forward_ms is the forward total spread by relative {how}")
    parts.append(_split(anchor))
    if times.kinds["iteration_ms"] == "derived":
        parts.append("iteration_ms is the sum of forward, backward and optimizer")
    parts.append(
        f"optimizer_ms is {OPTIMIZER_PASSES[anchor.optimizer]} fp32 passes over the parameters"
        f" ({anchor.optimizer}) at the GPU's memory bandwidth"
    )
    text = "; ".join(part for part in parts if part) + "."
    return f"{text} {anchor.notes}".strip()


def _running(values: list[float]) -> list[str]:
    ends = [round(total, DIGITS) for total in accumulate(values)]
    starts = [0.0, *ends]
    return [f"{end - start:.{DIGITS}f}" for start, end in zip(starts, ends, strict=False)]


def _backward(times: Times) -> list[str]:
    done, cells = 0.0, []
    for group in reversed(times.model):
        end = max(round(times.ready_ms[tensor], DIGITS) for tensor, _ in group.tensors)
        cells.append(f"{end - done:.{DIGITS}f}")
        done = end
    return cells[::-1]


def profile_text(anchor: AnchorRow, times: Times) -> str:
    """Return the text of one profile file."""
    forward, backward = _running(times.forward_ms), _backward(times)
    optimizer = math.floor(times.optimizer_ms * 10**DIGITS) / 10**DIGITS
    parts = round(sum(map(float, forward)) + sum(map(float, backward)) + optimizer, DIGITS)
    figure = times.kinds["iteration_ms"] == "published"
    iteration = max(times.iteration_ms, parts) if figure else parts
    header = {
        "schema": PROFILE_SCHEMA,
        "model": anchor.model,
        "gpu": anchor.gpu,
        "precision": anchor.precision,
        "batch": str(anchor.batch),
        "sequence": anchor.sequence,
        "framework": anchor.framework,
        "iteration_ms": f"{iteration:.{DIGITS}f}",
        "optimizer_ms": f"{optimizer:.{DIGITS}f}",
        "kind": "; ".join(f"{column}={kind}" for column, kind in times.kinds.items()),
        "source": _sources(anchor),
        "licence": _licences(anchor),
        "date": anchor.date or "not stated",
        "notes": _notes(anchor, times),
    }
    out = io.StringIO()
    for key, value in header.items():
        if value:
            out.write(f"# {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PROFILE_COLUMNS)
    for group, ahead, back in zip(times.model, forward, backward, strict=True):
        for place, (tensor, shape) in enumerate(group.tensors):
            own = (ahead, back) if not place else ("", "")
            axes = "x".join(map(str, shape))
            ready = f"{times.ready_ms[tensor]:.{DIGITS}f}"
            writer.writerow((group.name, group.kind, tensor, axes, math.prod(shape), *own, ready))
    return out.getvalue()
