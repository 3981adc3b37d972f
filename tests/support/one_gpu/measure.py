"""Time single kernels and whole iterations on the GPU at hand.

A kernel's time is that of one of several in a CUDA graph: the host's launches do not count. Inputs
are the same in each call, so that small ones come out of the cache, as they do in training.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.measure.device import CudaClock
from perfsim.calibrate.measure.profile import calibrate_compute
from perfsim.calibrate.measure.repeats import half_width
from perfsim.calibrate.measure.subject import Subject, find_subject
from perfsim.calibrate.measure.training_step import TrainingStep, whole_steps
from support.one_gpu.settings import Iteration

__all__ = ["compiled_iteration", "kernel_seconds", "kernels_of_step", "plain_iteration"]

_CALLS, _REPEATS, _SHORT_S = 10, 10, 2e-3
"""Calls in a graph (one of a kernel that takes longer than the time below), and its replays."""
_PROFILED_STEPS = 2
Call = Callable[[], Any]


def kernel_seconds(kernel: str, shape: dict[str, Any]) -> tuple[float, float]:
    """Return the median seconds of one call, and half its 90 % interval over it."""
    import torch

    forward, inputs = _KERNELS[kernel](torch, shape)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # A backward pass runs on the stream of its forward pass.
        call = _backward(torch, forward, inputs) if shape.get("backward") else forward
        for _ in range(3):
            call()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    calls = _CALLS if first.elapsed_time(last) < _SHORT_S * 1e3 else 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    graph.replay()
    seconds = []
    for _ in range(_REPEATS):
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        seconds.append(first.elapsed_time(last) / 1e3 / calls)
    return median(seconds), half_width(seconds)


def _backward(torch: Any, forward: Call, inputs: Any) -> Call:
    """Return a backward pass that can run again and adds to nothing."""
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _product(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    precision = shape["precision"]
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kind = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision, torch.float32)
    rows = torch.randn(shape["m"], shape["k"], device="cuda", dtype=kind)
    weight = torch.randn(shape["n"], shape["k"], device="cuda", dtype=kind)
    return lambda: torch.nn.functional.linear(rows, weight), None


def _attention(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
    size = (shape["batch"], shape["heads"], shape["tokens"], shape["head_dim"])
    backward = shape["backward"]
    heads = [
        torch.randn(*size, device="cuda", dtype=torch.bfloat16, requires_grad=backward)
        for _ in range(3)
    ]

    def attend() -> Any:
        with sdpa_kernel(backend[shape["kernel"]]):
            return torch.nn.functional.scaled_dot_product_attention(
                *heads, is_causal=shape["causal"]
            )

    return attend, heads


def _norm(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    width, backward = shape["width"], shape["backward"]
    made = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": backward}
    rows = torch.randn(shape["rows"], width, **made)
    weight, bias = torch.ones(width, **made), torch.zeros(width, **made)

    def norm(rows: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.layer_norm(rows, (width,), weight, bias)

    run = torch.compile(norm) if shape["kernel"] == "compiled" else norm
    return lambda: run(rows, weight, bias), (rows, weight, bias)


def _softmax(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    size = (shape["rows"], shape["width"])
    logits = torch.randn(*size, device="cuda", requires_grad=shape["backward"])
    labels = torch.randint(shape["width"], (shape["rows"],), device="cuda")
    return lambda: torch.nn.functional.cross_entropy(logits, labels), [logits]


def _embedding(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    size = (shape["vocabulary"], shape["width"])
    table = torch.randn(*size, device="cuda", requires_grad=shape["backward"])
    tokens = torch.randint(shape["vocabulary"], (shape["tokens"],), device="cuda")
    return lambda: torch.nn.functional.embedding(tokens, table), [table]


def _stream(torch: Any, shape: dict[str, Any]) -> tuple[Call, Any]:
    a, b, out = (torch.randn(shape["elements"], device="cuda") for _ in range(3))
    if shape["op"] == "add":
        return lambda: torch.add(a, b, out=out), None
    return lambda: torch.nn.functional.gelu(a), None


_KERNELS: dict[str, Callable[[Any, dict[str, Any]], tuple[Call, Any]]] = {
    "product": _product,
    "attention": _attention,
    "norm": _norm,
    "softmax": _softmax,
    "embedding": _embedding,
    "stream": _stream,
}


def plain_iteration(setting: Iteration, out: Path, repeats: int) -> dict[str, Any]:
    """Return what ``perfsim calibrate compute`` says of a setting; its profile goes below out."""
    measured = calibrate_compute(
        setting.makes,
        setting.batch,
        precision=setting.precision,
        sequence=setting.sequence,
        optimizer=setting.optimizer,
        repeats=repeats,
        name=setting.profile,
        folder=out / "profiles",
        force=True,
    )
    assert measured is not None
    return measured.to_dict()


def _step_of(setting: Iteration) -> tuple[Subject, TrainingStep]:
    subject = find_subject(setting.makes, setting.batch, setting.sequence, "cuda")
    return subject, TrainingStep(subject, setting.precision, setting.optimizer, "cuda")


def compiled_iteration(setting: Iteration, repeats: int) -> dict[str, Any]:
    """Return the times of a training step whose model ``torch.compile`` made kernels of."""
    import torch

    subject, step = _step_of(setting)
    torch.cuda.reset_peak_memory_stats()
    subject.model.compile()
    seconds = whole_steps(step, CudaClock(), repeats)
    return {
        "iteration_s": median(seconds),
        "iteration_relative_half_width": half_width(seconds),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
    }


def kernels_of_step(setting: Iteration) -> dict[str, Any]:
    """Return the GPU's seconds a step by kernel, as PyTorch's profiler has them, longest first."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    _, step = _step_of(setting)
    whole_steps(step, CudaClock(), 1)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        whole_steps(step, CudaClock(), _PROFILED_STEPS, 0)
    kernels = [
        (event.key, event.self_device_time_total / 1e6 / _PROFILED_STEPS, event.count)
        for event in recorded.key_averages()
        if event.device_type == DeviceType.CUDA
    ]
    kernels.sort(key=lambda kernel: -kernel[1])
    return {
        "busy_s": sum(kernel[1] for kernel in kernels),
        "launches": sum(kernel[2] for kernel in kernels) / _PROFILED_STEPS,
        "kernels": [
            {"name": name[:160], "seconds": seconds, "calls": count / _PROFILED_STEPS}
            for name, seconds, count in kernels[:80]
        ],
    }
