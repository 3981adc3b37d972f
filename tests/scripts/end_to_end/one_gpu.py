"""Measure kernels and training steps on one GPU and compare them with perfsim's predictions.

    python tests/scripts/end_to_end/one_gpu.py measure --out DIR [--only iterations ...] [--quick]
    python tests/scripts/end_to_end/one_gpu.py compare --measured DIR [--write]

``measure`` runs where the GPU is: single kernels in CUDA graphs; the training steps of public
networks by ``perfsim calibrate compute``; steps that ``torch.compile`` made kernels of. What is
done stands in DIR at once. ``compare`` runs anywhere: it asks perfsim for each and prints a table,
which ``--write`` puts into `one_gpu.txt`, whose other text says what was found.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.one_gpu.settings import (
    ITERATIONS,
    KERNELS,
    PROFILED,
    Iteration,
    kernel_shapes,
)

STAGES = (*KERNELS, "iterations", "compiled", "profiled")
REPEATS, QUICK_REPEATS = 8, 3


def measure(out: Path, stages: list[str], *, quick: bool) -> None:
    """Measure stage by stage; ``quick`` takes a few of each, to see that they run."""
    out.mkdir(parents=True, exist_ok=True)
    for stage in stages:
        begun = time.monotonic()
        with (out / f"{stage}.jsonl").open("a", encoding="utf-8") as file:
            for row in _rows(stage, out, quick=quick):
                file.write(json.dumps(row) + "\n")
                file.flush()
                if "failed" in row:
                    print(f"{stage}: {row}", flush=True)
        print(f"{stage}: {time.monotonic() - begun:.0f} s", flush=True)


def _rows(stage: str, out: Path, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield what was measured; ``failed`` says why where it could not be."""
    from support.one_gpu import measure as one

    if stage in KERNELS:
        shapes = kernel_shapes(stage)
        for shape in shapes[:: len(shapes) // 2] if quick else shapes:

            def timed(shape: dict[str, Any] = shape) -> dict[str, Any]:
                seconds, half_width = one.kernel_seconds(stage, shape)
                return {"seconds": seconds, "half_width": half_width}

            yield {**shape, **_tried(timed)}
        return
    repeats = QUICK_REPEATS if quick else REPEATS
    chosen = [setting for setting in ITERATIONS if setting.compiled == (stage == "compiled")]
    if stage == "profiled":
        chosen = [setting for setting in chosen if setting.name in PROFILED]
    for setting in chosen[:: len(chosen) - 1] if quick else chosen:

        def step(setting: Iteration = setting) -> dict[str, Any]:
            if stage == "profiled":
                return one.kernels_of_step(setting)
            if setting.compiled:
                return one.compiled_iteration(setting, repeats)
            return one.plain_iteration(setting, out, repeats)

        yield {"name": setting.name, **_tried(step)}


def _tried(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a call measures, or why it failed; its memory is free afterwards."""
    import torch

    begun = time.monotonic()
    try:
        found = call()
    except Exception as error:  # The next one may run: a run on a GPU is dear.
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    gc.collect()
    torch.cuda.empty_cache()
    return {**found, "took_s": round(time.monotonic() - begun, 1)}


def predicted(gpu: str) -> dict[str, list[dict[str, Any]]]:
    """Return what perfsim says of all that is measured, by stage."""
    from perfsim import Scenario, predict
    from perfsim.compute.single_kernels import kernel_times
    from perfsim.data.catalog import Catalog

    times = kernel_times(gpu, Catalog())
    said: dict[str, list[dict[str, Any]]] = {"iterations": [], "compiled": []}
    for kernel in KERNELS:
        said[kernel] = []
        for shape in kernel_shapes(kernel):
            found = getattr(times, kernel)(**_asked(kernel, shape))
            said[kernel].append({"predicted_s": found.seconds, "spread": found.spread})
    for setting in ITERATIONS:
        answer = predict(Scenario(**setting.question(gpu)))
        low_s, high_s = answer.iteration_s_interval
        one = {"name": setting.name, "predicted_s": answer.iteration_s}
        said["compiled" if setting.compiled else "iterations"].append(
            {**one, "low_s": low_s, "high_s": high_s}
        )
    return said


def _asked(kernel: str, shape: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `KernelTimes` for a shape."""
    if kernel == "stream":
        passes = 3 if shape["op"] == "add" else 2
        return {"moved_bytes": 4.0 * passes * shape["elements"]}
    return shape


def main() -> None:
    """Measure, or compare what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    here = verbs.add_parser("measure")
    here.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    here.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES))
    here.add_argument("--quick", action="store_true", help="a few of each stage")
    said = verbs.add_parser("predict", help="print perfsim's predictions as JSON")
    said.add_argument("--gpu", default="h100")
    given = parser.parse_args()
    if given.verb == "predict":
        print(json.dumps(predicted(given.gpu), indent=1))
        return
    measure(given.out, given.only, quick=given.quick)


if __name__ == "__main__":
    main()
