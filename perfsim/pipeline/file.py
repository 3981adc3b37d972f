"""Pipeline files: stages, links and micro-batches in TOML.

An example, with every key that there is:

    schema = "perfsim/pipeline/1"
    micro_batches = 8
    reduction = 100.0       # bytes before over after on the slowest link; 1 compresses nothing
    kept = 0.05             # may be left out: share of the activations that DCT-MP sends

    [[stage]]               # of one micro-batch, one table a stage
    forward = "20ms"
    backward = "40ms"

    [[link]]                # from each stage to the next: one fewer
    rate = "100Mbit/s"
    latency = "20ms"
    activation = "4MiB"     # fp32, one micro-batch, one direction
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfsim.limits import LATENCY, MESSAGE, RATE, TIME, Limit, shown
from perfsim.pipeline.iteration import Stage
from perfsim.pipeline.link import VALUE_BYTES, Link
from perfsim.toml_file import Table, read_toml
from perfsim.units import parse_bytes, parse_rate, parse_seconds

__all__ = ["SCHEMA", "Pipeline", "read_pipeline"]

SCHEMA = "perfsim/pipeline/1"

BYTES_SAVED = Limit(1.0, 1e6, "a number from 1 to 1e6")

KEPT = Limit(1e-6, 1.0, "a number from 1e-6 to 1")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a pipeline file says."""

    stages: tuple[Stage, ...]
    links: tuple[Link, ...]
    micro_batches: int
    reduction: float
    kept: float | None = None


def read_pipeline(path: Path) -> Pipeline:
    """Read and check one pipeline file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format; names file and key.
    """
    table = read_toml(path)
    table.check_schema(SCHEMA)
    table.only(["schema", "micro_batches", "reduction", "kept", "stage", "link"])
    stages = tuple(_stage(stage) for stage in table.tables("stage"))
    # One stage has no link: then there is no [[link]] at all.
    tables = table.tables("link") if "link" in table.values or len(stages) > 1 else []
    links = tuple(_link(link) for link in tables)
    if len(links) != len(stages) - 1:
        told = f"found {len(links)}, {len(stages)} stages need {len(stages) - 1}"
        raise table.wrong("link", told)
    return Pipeline(
        stages,
        links,
        table.whole("micro_batches", table.get("micro_batches")),
        _number(table, "reduction", BYTES_SAVED),
        _number(table, "kept", KEPT) if "kept" in table.values else None,
    )


def _number(table: Table, key: str, limit: Limit) -> float:
    value = table.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise table.wrong(key, f"found {shown(value)}, allowed is {limit.words}")
    return table.limited(key, value, value, limit)


def _stage(table: Table) -> Stage:
    table.only(["forward", "backward"])
    forward_s, backward_s = (
        table.number(key, table.get(key), parse_seconds, TIME) for key in ("forward", "backward")
    )
    return Stage(forward_s, backward_s)


def _link(table: Table) -> Link:
    table.only(["rate", "latency", "activation"])
    rate = table.number("rate", table.get("rate"), parse_rate, RATE)
    latency_s = table.number("latency", table.get("latency"), parse_seconds, LATENCY)
    size = table.number("activation", table.get("activation"), parse_bytes, MESSAGE)
    return Link(latency_s, 1.0 / rate, max(1, round(size / VALUE_BYTES)))
