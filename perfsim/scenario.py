"""Scenario: the checked question. Everything a prediction depends on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
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

from perfsim.compute.profile import PRECISIONS
from perfsim.conditions.spec import MOST_JITTER, checked_names, parse_straggler
from perfsim.data.files import forbidden
from perfsim.data.toml import read_toml
from perfsim.errors import DataError, RequestError, newer, rule, shown, unknown, unknown_option
from perfsim.methods.base import truth_for_number
from perfsim.quantity import TIME_LIMIT
from perfsim.units import parse_bytes, parse_fraction, parse_iteration, parse_seconds

__all__ = [
    "OPTION_GROUPS",
    "SCENARIO_SCHEMA",
    "Scenario",
    "gpu_words",
    "is_field",
    "make_scenario",
    "parse_types",
    "read_scenario",
]


def parse_types(text: str, field: str = "gpu") -> tuple[tuple[str, int], ...]:
    """Return the types of GPU and how many there are of each; () where only a name is given.

    Types are separated by commas or by plus signs (in a list of values, where a comma ends one).

    Raises
    ------
    RequestError
        If it is not said how many there are of a type.

    Examples
    --------
    >>> parse_types("v100:16,p100:8"), parse_types("v100:16+p100:8"), parse_types("v100")
    ((('v100', 16), ('p100', 8)), (('v100', 16), ('p100', 8)), ())
    """
    if not any(sign in text for sign in ",+:"):
        return ()
    found = []
    for part in text.replace("+", ",").split(","):
        name, _, count = (piece.strip() for piece in part.partition(":"))
        if not name or not count.isdecimal() or int(count) < 1:
            raise RequestError(
                field,
                f"{shown(text)} does not say how many there are of each type; write"
                " TYPE:GPUS,TYPE:GPUS such as v100:16,p100:16.",
            )
        found.append((name, int(count)))
    return tuple(found)


def gpu_words(scenario: Mapping[str, Any]) -> str:
    """Return how many GPUs of which types a prediction's scenario has.

    Examples
    --------
    >>> gpu_words({"gpus": 8, "gpu": "v100"}), gpu_words({"gpus": 8, "gpu": "v100:4,p100:4"})
    ('8 x v100', '4 x v100 + 4 x p100')
    """
    one = f"{scenario['gpus']} x {scenario['gpu']}"
    types = parse_types(str(scenario["gpu"]))
    return " + ".join(f"{count} x {name}" for name, count in types) or one


DEFAULT_INTRA_NET = "pcie3"
MAX_SHARE = {"jitter": MOST_JITTER, "background": 0.99}
NOT_MIXED = ("single_gpu", "single_gpu_kernels", "straggler", "jitter", "beside")
"""What is not asked of a cluster with several types of GPU."""

MAX_JITTERED_GPUS = 16_384
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
            raise RequestError(
                wrong, f"{given} is not allowed: a number is needed.", value=values[wrong]
            )
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
            raise unknown("precision", value, PRECISIONS)
        return value

    @field_validator("bucket")
    @classmethod
    def _sized_bucket(cls, value: str | None) -> str | None:
        if value is not None and parse_bytes(value, "bucket") <= 0:
            raise RequestError(
                "bucket",
                f"{value!r} is not above zero; for one message a tensor use `fusion` none.",
            )
        return value

    @field_validator("placement", mode="before")
    @classmethod
    def _listed_placement(cls, value: object) -> object:
        if isinstance(value, str):
            parts = value.split(",")
            if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
                raise RequestError(
                    "placement", f"{shown(value)} is not a list of GPUs on each node such as 3,5."
                )
            return tuple(int(part) for part in parts)
        if isinstance(value, list | tuple) and any(isinstance(part, bool) for part in value):
            raise RequestError("placement", "a list of whole numbers such as [3, 5] is needed.")
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
        field, most = str(info.field_name), MAX_SHARE[str(info.field_name)]
        try:
            share = parse_fraction(value, field)
        except OverflowError:  # a whole number of hundreds of digits
            share = math.inf
        if share > most:
            raise RequestError(field, f"{shown(value)} is not allowed: 0% to {most:.0%}.")
        return share

    @field_validator("single_gpu")
    @classmethod
    def _timed_single_gpu(cls, value: str | None) -> str | None:
        if value is not None and not TIME_LIMIT.holds(parse_iteration(value, 1, "single_gpu")):
            raise RequestError("single_gpu", f"{shown(value)} is outside {TIME_LIMIT.words}.")
        return value

    @field_validator("single_gpu_kernels")
    @classmethod
    def _timed_kernels(cls, value: str | None) -> str | None:
        flag = "single_gpu_kernels"
        if value is not None and not TIME_LIMIT.holds(parse_seconds(value, flag)):
            raise RequestError(flag, f"{shown(value)} is outside {TIME_LIMIT.words}.")
        return value

    @field_validator("options")
    @classmethod
    def _finite_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, one in value.items():
            if isinstance(one, float) and not math.isfinite(one):
                raise RequestError(
                    f"options.{name}", f"{one} is not allowed: a finite number is needed."
                )
        return value

    @model_validator(mode="after")
    def _known_to_the_library(self) -> Scenario:
        from perfsim.libraries import AUTO, DEFAULT_LIBRARY, library

        used = library(self.library or DEFAULT_LIBRARY)
        if self.protocol != AUTO:
            from perfsim.libraries.protocols import check_protocol

            check_protocol(self.protocol, used.name, used.protocols)
        if self.algorithm != AUTO:
            used.algorithm("all_reduce", self.algorithm)
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if self.beside and self.jitter:
            raise RequestError(
                "beside", "not with `jitter`, whose draws have no other job in them."
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
                "gpu", f"{self.gpu!r} is {total} GPUs, `gpus` says {self.gpus}; the two must agree."
            )
        for name in NOT_MIXED:
            if len(types) > 1 and getattr(self, name):
                raise RequestError(
                    name,
                    f"not with GPUs of several types ({self.gpu}): which of them it would hold for is"
                    " not said.",
                )
        return self

    @model_validator(mode="after")
    def _stragglers_are_there(self) -> Scenario:
        slow = sum(parse_straggler(one)[0] for one in self.straggler)
        if slow > self.gpus:
            raise RequestError("straggler", f"{slow} slow GPUs of {self.gpus} are too many.")
        if self.jitter and self.gpus > MAX_JITTERED_GPUS:
            raise RequestError(
                "jitter",
                f"each GPU is followed by itself, at most {MAX_JITTERED_GPUS:,}; here are"
                f" {self.gpus:,}.",
            )
        return self


FIELD_NAMES = tuple(Scenario.model_fields)
"""Names of a scenario's fields."""


def make_scenario(fields: Mapping[str, Any], source: str = "") -> Scenario:
    """Return the scenario that ``fields`` describe.

    Raises
    ------
    RequestError
        If a field is unknown, missing or not allowed; ``source`` names the file it came from.
    """
    for field, value in fields.items():
        if field not in FIELD_NAMES:
            raise unknown_option("a scenario", field, FIELD_NAMES, source=source)
        if isinstance(value, str) and forbidden(value):
            why = f"{shown(value)} holds a control character."
            raise RequestError(field, why, value=value, source=source)
    try:
        return Scenario(**fields)
    except RequestError as error:
        raise error.within(source) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][:2])
        if first["type"] == "missing":
            raise RequestError(field, "is needed.", source=source) from None
        given = first["input"]
        why = f"{shown(given)} is not allowed: {rule(first)}."
        raise RequestError(field, why, value=given, source=source) from None


OPTION_GROUPS = ("options", "fusion_options")
"""Fields that hold others, named ``options.density``."""


def is_field(name: str) -> bool:
    """Tell whether a name is a field that takes one value: itself, or one of a group.

    Examples
    --------
    >>> [is_field(name) for name in ("gpus", "options.density", "options", "gpus.x", "options.")]
    [True, True, False, False, False]
    """
    group, dot, option = name.partition(".")
    return group in FIELD_NAMES and (group in OPTION_GROUPS) == bool(dot) == bool(option)


SCENARIO_SCHEMA = "perfsim/scenario/1"
_KEYS = ("schema", "title", "source", "notes", "scenario", "claim", "sweep")
_QUESTION_KEYS = ("question", "command")
"""What a scenario of the gallery has besides: what a user asks, and the command that answers; and
``measured``, rows of the answer beside ids of ``perfsim list measurements``."""


def read_scenario(path: Path) -> dict[str, Any]:
    """Return a scenario file (TOML: ``schema``, ``[scenario]``; title, question, sweep, ...).

    Raises
    ------
    DataError
        If the file is missing, is not TOML, or is of another schema.
    """
    data = dict(read_toml(path).values)
    if data.get("schema") != SCENARIO_SCHEMA:
        found = data.get("schema")
        told = f"schema is {shown(found)}, this perfsim reads {SCENARIO_SCHEMA!r}{newer(found, SCENARIO_SCHEMA)}"
        raise DataError(told, path=path)
    if not isinstance(data.get("scenario"), dict):
        raise DataError("has no [scenario] table", path=path)
    allowed = (*_KEYS, *_QUESTION_KEYS, "measured")
    for key in data:
        if key not in allowed:
            told = f"has unknown key {shown(key)}; allowed: {', '.join(allowed)}"
            raise DataError(told, path=path)
    _check_asked(data, path)
    return data


def _check_asked(data: Mapping[str, Any], path: Path) -> None:
    for key in _QUESTION_KEYS:
        if key in data and not isinstance(data[key], str):
            raise DataError(f"{key} is not a text", path=path)
    if ("question" in data) != ("command" in data):
        raise DataError("needs a question and a command, or neither", path=path)
    if not data.get("command", "perfsim ").startswith("perfsim "):
        raise DataError(f"command {shown(data['command'])} is not perfsim's", path=path)
    measured = data.get("measured", {})
    if not isinstance(measured, dict) or not all(isinstance(i, str) for i in measured.values()):
        raise DataError("measured is not a table of rows and ids of measurements", path=path)
