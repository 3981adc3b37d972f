"""Traces of training: one step by hand, one of our own, and how tests import them.

``files/ddp_gloo_2_ranks.pt.trace.json.gz`` is our own: rank 0 of two under DistributedDataParallel
on gloo over loopback (PyTorch 2.13, CPU; three convolutions, a batch norm and a dense layer;
record_shapes and with_stack), spans that perfsim does not read taken out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfsim.calibrate.traces.import_trace import import_trace
from perfsim.compute.profile import Profile, read_profile
from support.paths import FILES

__all__ = [
    "BACK",
    "HOROVOD",
    "MAIN",
    "OWN",
    "US",
    "grad",
    "host",
    "imported",
    "kernel",
    "op",
    "saved",
    "step",
]

OWN = FILES / "ddp_gloo_2_ranks.pt.trace.json.gz"
MAIN, BACK = 1, 2
US = 1e-6
HOROVOD = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":5}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.fc"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
{"ph": "X", "name": "0", "ts": 101, "pid": 1, "dur": 0},
{"ph": "X", "name": "3", "ts": 150, "pid": 1, "dur": 0},
{"ph": "E", "ts": 160, "pid": 1},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "grad.conv"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 140, "pid": 2},
{"ph": "E", "ts": 161, "pid": 2},
{"ph": "B", "name": "ALLREDUCE", "ts": 170, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 171, "pid": 2},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 200, "pid": 1},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 201, "pid": 2},
{"ph": "E", "ts": 701, "pid": 1},
{"ph": "E", "ts": 703, "pid": 2},
{"ph": "E", "ts": 710, "pid": 1, "args": {"dtype": "float32", "shape": "[10, 8]"}},
{"ph": "E", "ts": 711, "pid": 2, "args": {"dtype": "float32", "shape": "[20]"}},
{"ph": "B", "name": "BROADCAST", "ts": 800, "pid": 2},
{"ph": "B", "name": "MPI_BCAST", "ts": 810, "pid": 2},
{"ph": "E", "ts": 830, "pid": 2},
{"ph": "E", "ts": 840, "pid": 2, "args": {"dtype": "float16", "shape": "[20]"}}"""


def host(name: str, start: float, end: float, thread: int = MAIN, **args: Any) -> dict[str, Any]:
    """Return a span of a thread, from and to a moment [us]."""
    noted = name.startswith(("ProfilerStep", "Optimizer", "nccl:", "gloo:"))
    return {
        "ph": "X",
        "cat": "user_annotation" if noted else "cpu_op",
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


def op(name: str, start: float, end: float, number: int, thread: int = MAIN) -> dict[str, Any]:
    """Return an operator's span with the number that autograd gives it."""
    return host(name, start, end, thread, **{"Sequence number": number})


def grad(start: float, end: float, shape: list[int] | None, thread: int = BACK) -> dict[str, Any]:
    """Return the span that accumulates a gradient of a shape."""
    args = {"Input Dims": [shape]} if shape is not None else {}
    return host("torch::autograd::AccumulateGrad", start, end, thread, **args)


def kernel(
    launched: float, start: float, end: float, thread: int, name: str = "gemm", **args: Any
) -> list[dict[str, Any]]:
    """Return the launch of a kernel by a thread, and the kernel."""
    number = int(launched * 10)
    launch = host("cudaLaunchKernel", launched, launched + 1, thread, correlation=number)
    work = host(name, start, end, 7, correlation=number, **args)
    return [launch | {"cat": "cuda_runtime"}, work | {"cat": "kernel", "pid": 0}]


def step(at: float = 0.0, shapes: bool = True, gpu: bool = True, back: int = BACK) -> list[Any]:
    """One step of 1000 us: a convolution, a dense layer and a loss, by hand."""
    node = "autograd::engine::evaluate_function: "
    events = [
        host(f"ProfilerStep#{int(at)}", at, at + 1000),
        op("aten::conv2d", at + 100, at + 110, 5),
        op("aten::convolution", at + 101, at + 109, 5),
        op("aten::linear", at + 120, at + 140, 6),
        op("aten::t", at + 121, at + 123, 6),
        op("aten::addmm", at + 124, at + 138, 7),
        op("aten::nll_loss", at + 150, at + 156, 8),
        op(f"{node}NllLossBackward0", at + 200, at + 210, 8, back),
        op(f"{node}AddmmBackward0", at + 212, at + 231, 7, back),
        grad(at + 232, at + 233, [10] if shapes else None, back),
        op(f"{node}TBackward0", at + 235, at + 238, 6, back),
        grad(at + 240, at + 241, [10, 8] if shapes else None, back),
        op(f"{node}ConvolutionBackward0", at + 245, at + 260, 5, back),
        grad(at + 262, at + 263, [8, 3, 3, 3] if shapes else None, back),
        host("Optimizer.step#SGD.step", at + 300, at + 320),
    ]
    if gpu:
        call = {"Collective name": "allreduce", "In msg nelems": 306, "dtype": "Float"}
        call |= {"Out msg nelems": 306, "Group size": 2}
        for launched, start, end, thread in (
            (105, 200, 300, MAIN),
            (130, 300, 350, MAIN),
            (152, 350, 360, MAIN),
            (205, 370, 380, BACK),
            (215, 380, 420, BACK),
            (220, 420, 440, BACK),
            (250, 440, 540, BACK),
            (310, 700, 730, MAIN),
        ):
            events += kernel(at + launched, at + start, at + end, thread)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        events += kernel(at + 265, at + 540, at + 700, BACK, name, **call)
    return events


def saved(folder: Path, events: list[Any], name: str = "t.json", **settings: Any) -> Path:
    """Write events as a trace, with what else its head says."""
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **settings, "traceEvents": events}))
    return path


def imported(folder: Path, file: Path, **more: Any) -> Profile:
    """Return the profile that a trace is imported as."""
    asked = {"model": "small", "batch": 4, "gpu": "v100", "folder": folder / "out"} | more
    made = import_trace(file, **asked)
    assert made.profile is not None
    return read_profile(made.profile)
