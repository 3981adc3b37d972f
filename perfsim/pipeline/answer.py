"""What is said of one pipeline: its links, and an iteration by kind of message."""

from __future__ import annotations

from typing import Any

from perfsim.pipeline.file import Pipeline
from perfsim.pipeline.iteration import iteration_s, masked_iteration_s
from perfsim.pipeline.link import adaptive_ratios
from perfsim.units import format_seconds

__all__ = ["LEFT_OUT", "SCHEMA", "figures", "text"]

SCHEMA = "perfsim/pipeline-answer/1"
LEFT_OUT = "selecting values on the GPU, stragglers, the update, convergence"


def figures(pipeline: Pipeline) -> dict[str, Any]:
    """Return the links and the iterations as ``perfsim pipeline --json`` prints them."""
    stages, links, count = pipeline.stages, pipeline.links, pipeline.micro_batches
    ratios = adaptive_ratios([link.dense_s for link in links], pipeline.reduction)
    equal = [max(ratios, default=1.0)] * len(links)
    iterations = {
        "dense": iteration_s(stages, links, count, None),
        "equal ratios": iteration_s(stages, links, count, equal),
        "adaptive ratios": iteration_s(stages, links, count, ratios),
    }
    if pipeline.kept is not None:
        masked_s = masked_iteration_s(stages, links, count, pipeline.kept)
        iterations[f"{pipeline.kept:g} kept (DCT-MP)"] = masked_s
    return {
        "schema": SCHEMA,
        "stages": len(stages),
        "micro_batches": count,
        "links": [
            {"dense_s": link.dense_s, "ratio": ratio, "message_s": link.message_s(ratio)}
            for link, ratio in zip(links, ratios, strict=True)
        ],
        "iteration_s": iterations,
        "left_out": LEFT_OUT,
    }


def text(pipeline: Pipeline) -> str:
    """Return the links and the iterations as a person reads them."""
    found = figures(pipeline)
    lines = [f"{found['stages']} stages, {found['micro_batches']} micro-batches (GPipe)"]
    for number, link in enumerate(found["links"], 1):
        lines.append(
            f"link {number}: dense {format_seconds(link['dense_s'])},"
            f" 1 of {link['ratio']:.4g} values kept,"
            f" then {format_seconds(link['message_s'])} a message"
        )
    for name, seconds in found["iteration_s"].items():
        lines.append(f"iteration, {name}: {format_seconds(seconds)}")
    return "\n".join([*lines, f"left out: {LEFT_OUT}"])
