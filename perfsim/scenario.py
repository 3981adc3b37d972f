"""Scenario: the checked question. Everything a prediction depends on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from perfsim.conditions.conditions import MOST_JITTER, parse_straggler
from perfsim.conditions.job_names import checked_names
from perfsim.errors import RequestError, rule, unknown, unknown_option
from perfsim.gpu_names import parse_types
from perfsim.letters import forbidden
from perfsim.limits import TIME, shown
from perfsim.option import truth_for_number
from perfsim.profile import PRECISIONS
from perfsim.units import parse_bytes, parse_fraction, parse_iteration, parse_seconds

__all__ = ["Scenario", "make_scenario"]

DEFAULT_INTRA_NET = "pcie3"
MOST = {"jitter": MOST_JITTER, "background": 0.99}
NOT_MIXED = ("single_gpu", "single_gpu_kernels", "straggler", "jitter", "beside")
"""What is not asked of a cluster with several types of GPU."""

MOST_FOLLOWED = 16_384
"""GPUs whose computation can vary one by one: memory for the draws of all their tasks."""


class Scenario(BaseModel):
    """A model, a cluster, a method and its options.

    Fields that are None take their default from the profile, the network file or the method;
    ``perfsim.prediction`` resolves them and says so. ``options`` are the method's own;
    ``fusion_options`` the fusion policy's. ``single_gpu`` is the iteration on one GPU as the user
    measured it, a time ("253ms") or a rate ("126 samples/s"), in place of what profile and anchors
    say; ``single_gpu_kernels`` is how long the method's kernels take there, which device files say
    else. ``beside`` are other jobs that send over the same network: scenario files, or names of
    shipped ones. ``gpu`` may name several types, ``"v100:16,p100:16"``: whole nodes of each, in
    that order, with one batch for all.

    Examples
    --------
    >>> from perfsim import Scenario
    >>> asked = Scenario(model="resnet50", gpus=64, net="1gbe", bucket="4MiB")
    >>> asked.method, asked.overlap, asked.batch
    ('ssgd', True, None)
    >>> Scenario(model="resnet50", gpu="v100:16,p100:16", net="1gbe").gpus
    32
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    gpus: int = Field(ge=1, le=1_000_000)
    net: str = Field("10gbe", min_length=1)
    method: str = Field("ssgd", min_length=1)
    gpu: str = Field("v100", min_length=1)
    batch: int | None = Field(None, ge=1, le=1_000_000)
    precision: str | None = None
    gpus_per_node: int | None = Field(None, ge=1)
    placement: tuple[int, ...] | None = None
    intra_net: str | None = Field(None, min_length=1)
    fusion: str | None = Field(None, min_length=1)
    bucket: str | None = None
    algorithm: str = "auto"
    protocol: str = "auto"
    library: str | None = None
    oversubscription: float | None = Field(None, ge=1, le=1000)
    straggler: tuple[str, ...] = ()
    jitter: float = 0.0
    background: float = 0.0
    seed: int = Field(0, ge=0, le=2**32 - 1)
    beside: tuple[str, ...] = ()
    overlap: bool = True
    overlap_slowdown: float = Field(1.0, ge=1, le=10)
    single_gpu: str | None = None
    single_gpu_kernels: str | None = None
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    fusion_options: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        wrong = truth_for_number(cls, values)
        if wrong:
            given = str(values[wrong]).lower()
            raise RequestError(f"{FLAGS[wrong]}: {given} is not allowed: a number is needed.")
        return values

    @model_validator(mode="before")
    @classmethod
    def _gpus_add_up(cls, values: Any) -> Any:
        """Take the number of GPUs from that of each type where it is not given."""
        if isinstance(values, dict) and "gpus" not in values and isinstance(values.get("gpu"), str):
            types = parse_types(values["gpu"])
            return values | {"gpus": sum(count for _, count in types)} if types else values
        return values

    @field_validator("gpu")
    @classmethod
    def _counted_types(cls, value: str) -> str:
        types = parse_types(value)
        return ",".join(f"{name}:{count}" for name, count in types) if types else value

    @field_validator("precision")
    @classmethod
    def _known_precision(cls, value: str | None) -> str | None:
        if value is not None and value not in PRECISIONS:
            raise unknown("--precision", value, PRECISIONS)
        return value

    @field_validator("bucket")
    @classmethod
    def _sized_bucket(cls, value: str | None) -> str | None:
        if value is not None and parse_bytes(value, "--bucket") <= 0:
            raise RequestError(
                f"--bucket: {value!r} is not above zero; for one message a tensor use"
                " --fusion none."
            )
        return value

    @field_validator("placement", mode="before")
    @classmethod
    def _listed_placement(cls, value: object) -> object:
        if isinstance(value, str):
            parts = value.split(",")
            if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
                raise RequestError(
                    f"--placement: {shown(value)} is not a list of GPUs on each node such as 3,5."
                )
            return tuple(int(part) for part in parts)
        if isinstance(value, list | tuple) and any(isinstance(part, bool) for part in value):
            raise RequestError("--placement: a list of whole numbers such as [3, 5] is needed.")
        return value

    @field_validator("straggler", mode="before")
    @classmethod
    def _counted_stragglers(cls, value: object) -> object:
        listed = value if isinstance(value, list | tuple) else (value,)
        return tuple(str(one) for one in listed if parse_straggler(one))

    @field_validator("beside", mode="before")
    @classmethod
    def _named_jobs(cls, value: object) -> tuple[str, ...]:
        return checked_names(value)

    @field_validator("jitter", "background", mode="before")
    @classmethod
    def _shared_out(cls, value: object, info: ValidationInfo) -> float:
        flag, most = f"--{info.field_name}", MOST[str(info.field_name)]
        try:
            share = parse_fraction(value, flag)
        except OverflowError:  # a whole number of hundreds of digits
            share = math.inf
        if share > most:
            raise RequestError(f"{flag}: {shown(value)} is not allowed: 0% to {most:.0%}.")
        return share

    @field_validator("single_gpu")
    @classmethod
    def _timed_single_gpu(cls, value: str | None) -> str | None:
        if value is not None and not TIME.holds(parse_iteration(value, 1, "--single-gpu")):
            raise RequestError(f"--single-gpu: {shown(value)} is outside {TIME.words}.")
        return value

    @field_validator("single_gpu_kernels")
    @classmethod
    def _timed_kernels(cls, value: str | None) -> str | None:
        flag = "--single-gpu-kernels"
        if value is not None and not TIME.holds(parse_seconds(value, flag)):
            raise RequestError(f"{flag}: {shown(value)} is outside {TIME.words}.")
        return value

    @field_validator("options")
    @classmethod
    def _finite_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, one in value.items():
            if isinstance(one, float) and not math.isfinite(one):
                raise RequestError(
                    f"--set {name}: {one} is not allowed: a finite number is needed."
                )
        return value

    @model_validator(mode="after")
    def _known_to_the_library(self) -> Scenario:
        from perfsim.library import AUTO, DEFAULT_LIBRARY, library

        used = library(self.library or DEFAULT_LIBRARY)
        if self.protocol != AUTO:
            from perfsim.library.protocols import check_protocol

            check_protocol(self.protocol, used.name, used.protocols)
        if self.algorithm != AUTO:
            used.algorithm("all_reduce", self.algorithm)
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if self.beside and self.jitter:
            raise RequestError(
                "--beside: not with --jitter, whose draws have no other job in them."
            )
        if not self.overlap and self.overlap_slowdown > 1:
            raise RequestError(
                f"overlap_slowdown: {self.overlap_slowdown} needs overlap; leave out --no-overlap."
            )
        return self

    @model_validator(mode="after")
    def _types_fit(self) -> Scenario:
        types = parse_types(self.gpu)
        total = sum(count for _, count in types)
        if types and total != self.gpus:
            raise RequestError(
                f"--gpu: {self.gpu!r} is {total} GPUs, --gpus says {self.gpus}; the two must agree."
            )
        for name in NOT_MIXED:
            if len(types) > 1 and getattr(self, name):
                raise RequestError(
                    f"{FLAGS[name]}: not with GPUs of several types ({self.gpu}): which of them it"
                    " would hold for is not said."
                )
        return self

    @model_validator(mode="after")
    def _stragglers_are_there(self) -> Scenario:
        slow = sum(parse_straggler(one)[0] for one in self.straggler)
        if slow > self.gpus:
            raise RequestError(f"--straggler: {slow} slow GPUs of {self.gpus} are too many.")
        if self.jitter and self.gpus > MOST_FOLLOWED:
            raise RequestError(
                f"--jitter: each GPU is followed by itself, at most {MOST_FOLLOWED:,}; here are"
                f" {self.gpus:,}."
            )
        return self


FLAGS = {
    name: "--" + name.replace("_", "-") for name in Scenario.model_fields if "options" not in name
} | {
    "options": "--set",
    "fusion_options": "--set fusion.",
    "overlap_slowdown": "overlap_slowdown",
}


def make_scenario(fields: Mapping[str, Any], source: str = "") -> Scenario:
    """Return the scenario that ``fields`` describe.

    Raises
    ------
    RequestError
        If a field is unknown, missing or not allowed; ``source`` names the file it came from.
    """
    where = f"{source}: " if source else ""
    for field, value in fields.items():
        if field not in FLAGS:
            raise unknown_option(where, "a scenario", field, FLAGS)
        if isinstance(value, str) and forbidden(value):
            told = f"{FLAGS[field]}: {shown(value)} holds a control character."
            raise RequestError(f"{where}{told}")
    try:
        return Scenario(**fields)
    except RequestError as error:
        raise RequestError(f"{where}{error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        flag = FLAGS.get(name, name)
        if "options" in name and len(first["loc"]) > 1:
            flag = f"{flag}{'' if flag.endswith('.') else ' '}{first['loc'][1]}"
        if first["type"] == "missing":
            raise RequestError(f"{where}{flag} is needed.") from None
        raise RequestError(
            f"{where}{flag}: {shown(first['input'])} is not allowed: {rule(first)}."
        ) from None
