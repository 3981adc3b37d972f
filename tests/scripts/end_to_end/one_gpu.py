"""Measure kernels and training steps on one GPU and compare them with perfsim's predictions.

    python tests/scripts/end_to_end/one_gpu.py measure --out DIR [--only iterations ...] [--quick]
    python tests/scripts/end_to_end/one_gpu.py compare [--write]

``measure`` runs where the GPU is: single kernels in CUDA graphs; the training steps of public
networks by ``perfsim calibrate compute``; steps that ``torch.compile`` made kernels of. What is
done stands in DIR at once. ``compare`` runs anywhere. It reads what was measured on an H100
(`one_gpu.jsonl`), with the predictions from before, and predicts each step again as if none of
these had been measured. ``--write`` puts its table into `one_gpu.txt`, whose other
text says what was found.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perfsim import Scenario, predict
from perfsim.session import Session
from scripts.end_to_end.real_training import with_table
from support.one_gpu.settings import (
    ITERATIONS,
    KERNELS,
    PROFILED,
    Iteration,
    kernel_shapes,
)

MEASURED, STORED = Path(__file__).with_suffix(".jsonl"), Path(__file__).with_suffix(".txt")
GPU, OWNER = "h100", "perfsim"
"""What it was measured on, and by whom, as the sources of the measurements say."""
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


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return what was measured beside what is predicted: iterations, then kernels by kind."""
    catalog = Session(without={OWNER})
    measured = {row["name"]: row for row in rows if "before_low_s" in row}
    heads = ("before they were measured", "today, as if they had not been", "peak memory")
    lines = [f"{'training step':40} {'measured':>9}  {'  '.join(f'{head:>30}' for head in heads)}"]
    off: dict[str, list[Held]] = {head: [] for head in heads}
    for setting in ITERATIONS:
        row = measured.get(setting.name)
        if row is None:
            continue
        answer = predict(Scenario(**setting.question(GPU)), catalog)
        before = row["before_s"], row["before_low_s"], row["before_high_s"]
        line = f"{setting.name:40} {row['measured_s'] * 1e3:6.1f} ms"
        for head, (seconds, low_s, high_s) in zip(
            heads, (before, (answer.iteration_s, *answer.iteration_s_interval)), strict=False
        ):
            error = seconds / row["measured_s"] - 1
            off[head].append(Held(error, low_s <= row["measured_s"] <= high_s))
            span = f"{low_s * 1e3:.0f} to {high_s * 1e3:.0f}"
            line += f"  {seconds * 1e3:6.1f} ms {error:+5.0%} {span:>14}"
        # PyTorch counts what its tensors hold: no context, nothing that lies between them.
        held = sum(answer.memory_bytes.values()) - answer.memory_bytes["overhead"]
        error = held / row["peak_memory_bytes"] - 1
        off["peak memory"].append(Held(error))
        lines.append(
            f"{line}  {row['peak_memory_bytes'] / 1e9:12.1f} GB {held / 1e9:6.1f} {error:+5.0%}"
        )
    lines += [f"{head}: {_summary(found)}" for head, found in off.items()]
    lines.append("kernels, as predicted before")
    groups: dict[str, list[Held]] = {}
    for row in rows:
        if "shape" in row:
            error = row["before_s"] / row["measured_s"] - 1
            held_in = abs(error) <= row["before_spread"]
            groups.setdefault(_kind(row), []).append(Held(error, held_in))
    lines += [f"  {kind:34} {_summary(found)}" for kind, found in groups.items()]
    return "\n".join(lines)


class Held(NamedTuple):
    """The error of a prediction, and whether its interval holds; None where it has none."""

    error: float
    inside: bool | None = None


def _kind(row: dict[str, Any]) -> str:
    shape = row["shape"]
    words = [row["stage"], shape.get("precision") or shape.get("kernel") or shape.get("op") or ""]
    words += ["backward" if shape["backward"] else "forward"] if "backward" in shape else []
    return " ".join(filter(None, words))


def _summary(found: Sequence[Held]) -> str:
    """Return the errors of predictions in words, and how many intervals hold."""
    sizes = sorted(abs(one.error) for one in found)
    ninth = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    middle = median(one.error for one in found)
    said = (
        f"{len(found)} cases, |error| median {median(sizes):.1%}, 90th percentile {ninth:.1%},"
        f" median error {middle:+.1%}"
    )
    inside = [one.inside for one in found if one.inside is not None]
    return f"{said}; {sum(inside)} inside their 90 % interval" if inside else said


def main() -> None:
    """Measure, or compare what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    here = verbs.add_parser("measure")
    here.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    here.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES))
    here.add_argument("--quick", action="store_true", help="a few of each stage")
    there = verbs.add_parser("compare")
    there.add_argument("--write", action="store_true", help=f"put the table into {STORED.name}")
    given = parser.parse_args()
    if given.verb == "measure":
        measure(given.out, given.only, quick=given.quick)
        return
    found = table([json.loads(line) for line in MEASURED.read_text().splitlines()])
    print(found)
    if given.write:
        STORED.write_text(with_table(STORED.read_text(), found))


if __name__ == "__main__":
    main()
