"""The contract perfsim/prediction/1, key by key: of ``predict --json`` and of rows that have it."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from perfsim.what_if import BOTTLENECKS


class Strict(BaseModel):
    """No key more, no key less, no text for a number; JSON's own numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Question(Strict):
    """The scenario with every default filled in."""

    model: str
    gpus: PositiveInt
    gpus_per_node: PositiveInt
    nodes: PositiveInt
    placement: list[PositiveInt] | None
    net: str
    intra_net: str
    gpu: str
    batch: PositiveInt
    precision: Literal["fp32", "tf32", "amp-fp16", "amp-bf16", "fp8"]
    software: str
    input: str
    seq: int | None
    accumulate: PositiveInt
    exchange_each: bool | None
    recompute: Literal["none", "selective", "full"]
    optimizer: str | None
    reduce_dtype: Literal["fp32", "bf16", "fp16"]
    method: str
    options: dict[str, str | int | float | bool | None]
    fusion: str
    fusion_options: dict[str, str]
    bucket_bytes: PositiveFloat | None
    algorithm: str
    protocol: str
    library: str
    oversubscription: float | None
    straggler: list[str]
    jitter: NonNegativeFloat | str
    background: NonNegativeFloat
    seed: int
    overlap: bool
    overlap_slowdown: float
    single_gpu_s: PositiveFloat | None
    single_gpu_kernels_s: float | None
    profile: str
    beside: list[str] = []


class Rates(Strict):
    """What is trained in a second: None for what is not known or not over text."""

    model_config = ConfigDict(protected_namespaces=())

    tokens_per_s: PositiveFloat | None
    tokens_per_s_per_gpu: PositiveFloat | None
    model_tflops_per_gpu: PositiveFloat | None
    mfu: dict[str, PositiveFloat | None]


class Memory(Strict):
    """What a GPU holds, by part [bytes]."""

    parameters: NonNegativeFloat
    gradients: NonNegativeFloat
    optimizer: NonNegativeFloat
    activations: NonNegativeFloat
    logits: NonNegativeFloat
    copies: NonNegativeFloat
    method: NonNegativeFloat
    messages: NonNegativeFloat
    step: NonNegativeFloat
    overhead: NonNegativeFloat


class Baseline(Strict):
    """S-SGD with DDP's buckets and overlap."""

    method: Literal["ssgd"]
    iteration_s: PositiveFloat
    speedup: PositiveFloat
    fits: bool


class Breakdown(Strict):
    """Seconds of an iteration by what they are spent on."""

    forward: NonNegativeFloat
    backward: NonNegativeFloat
    compression: NonNegativeFloat
    second_order: NonNegativeFloat
    communication_exposed: NonNegativeFloat
    update: NonNegativeFloat
    other: NonNegativeFloat


class Communication(Strict):
    """What a GPU sends in an iteration, and how much of it is hidden."""

    bytes_per_gpu: NonNegativeFloat
    calls: NonNegativeFloat
    busy_s: NonNegativeFloat
    hidden_s: NonNegativeFloat


class Term(Strict):
    """One number that a prediction rests on."""

    term: str
    value: float
    unit: str
    kind: Literal["measured", "published", "fitted", "derived"]
    source: str
    range: list[float | None] | None
    range_unit: str | None
    extrapolated: bool


class Fares(Strict):
    """How a job beside another fares: alone, and by where the other stands when it starts."""

    scenario: str = ""
    iteration_s: PositiveFloat
    alone_s: PositiveFloat
    slowdown: PositiveFloat
    iteration_s_range: list[PositiveFloat] = Field(min_length=2, max_length=2)


class Beside(Fares):
    """The job asked for, and those beside it."""

    starts: PositiveInt
    iterations: PositiveInt
    jobs: list[Fares]


class Light(Strict):
    """A sweep's row: what its own run gives, and S-SGD beside it."""

    model_config = ConfigDict(protected_namespaces=())

    schema_: Literal["perfsim/prediction/1"] = Field(alias="schema")
    scenario: Question
    iteration_s: PositiveFloat
    samples_per_s: PositiveFloat
    scaling_efficiency: PositiveFloat
    throughput: Rates
    baseline: Baseline
    breakdown_s: Breakdown
    communication: Communication
    memory_bytes: Memory
    beside: Beside | None = None


class Row(Light):
    """A prediction object without provenance: a row of compare, and of ``sweep --full``."""

    iteration_s_interval: list[PositiveFloat] = Field(min_length=2, max_length=2)
    bottleneck: Literal[BOTTLENECKS]
    notes: list[str]


class Whole(Row):
    """What ``predict --json`` prints."""

    memory_usable_bytes: float | None
    warnings: list[str]
    assumptions: list[str]
    provenance: list[Term]


class Failed(Strict):
    """A sweep's row without a prediction: the scenario as it was asked, and why."""

    scenario: dict[str, Any]
    error: str = Field(min_length=1)


def check(found: dict[str, Any], kind: type[Light]) -> None:
    """Hold an object to its schema and to what its numbers mean."""
    one = kind.model_validate_json(json.dumps(found))
    parts = one.breakdown_s.model_dump().values()
    assert abs(sum(parts) - one.iteration_s) <= 1e-9 * one.iteration_s
    assert one.communication.hidden_s <= one.communication.busy_s * (1 + 1e-9)
    ratio = one.baseline.iteration_s / one.iteration_s
    assert abs(one.baseline.speedup - ratio) <= 1e-9 * ratio
    samples = one.scenario.batch * one.scenario.accumulate * one.scenario.gpus
    rate = samples / one.iteration_s
    assert abs(one.samples_per_s - rate) <= 1e-9 * rate
    if isinstance(one, Row):
        low, high = one.iteration_s_interval
        assert low <= one.iteration_s <= high
