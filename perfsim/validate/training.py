"""Cases from a table of whole training runs: a row is a run, its columns say how it was run.

Such a table has columns for model, GPU, network, precision, kinds of parallelism, batch and result
(`TRAINING_COLUMNS`), and is recognised by them. `read_training_rows` writes each row as a case:

1. What the sources say outside of their rows fills empty cells (``training_facts.toml``).
2. Numbers are read: the degrees of parallelism, the samples of a micro-batch and how many of them
   a replica has, the step time or the samples a second. Where a source prints a share of the peak
   or FLOP/s alone, they count by that source's own way of counting (``flop_count`` below).
3. Words become the words of a case, in one order for all sources, for the rules of
   ``training_map.toml``: model ``ResNet-50, ...``, GPU ``NVIDIA A100 SXM, 80GB, amp``.
4. What perfsim lacks is named, one thing a row: by columns here (`CRITERIA`), by what no rule
   fits in `still_missing`.

Facts may also fill these columns, which no table needs to have:

- ``architecture``: what a specification ``transformer:`` needs besides the row's layers, hidden and
  heads (ffn, vocab, ...), so that the model is stated by its numbers.
- ``data_parallel``: words on how replicas exchange gradients, which end the system's words.
- ``experts``: words on how tokens reach their experts, which follow these.
- ``nvlink_domain``: GPUs that one NVLink switch joins, where that is more than a tray.
- ``virtual_stages``, ``stage_layers``: model chunks and layers of each pipeline stage.
- ``chunks``: micro-batches into which the pipeline cuts the batch that the row states.
- ``lora``, ``lora_layers``: rank of adapters (LoRA), and the layers that have them.
- ``link_latency``, ``computed``: what `perfsim.validate.low_communication` says.
- ``flop_count``: how the source counts FLOPs (`perfsim.throughput.CONVENTIONS`); ``flop_factor``:
  what it multiplies them by (4/3 with the forward pass computed again); ``peak_tflops``: the peak
  that its MFU refers to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from perfsim.compute.recompute import checked_recompute
from perfsim.data.catalog import shipped
from perfsim.data.tables import csv_rows, leave_out
from perfsim.data.toml import Tables, TomlModel, read_toml
from perfsim.errors import DataError, RequestError

__all__ = [
    "CRITERIA",
    "TRAINING_COLUMNS",
    "CaseWords",
    "TrainingRun",
    "is_training_table",
    "read_training_rows",
    "still_missing",
    "training_case",
    "with_facts",
]

TRAINING_COLUMNS = (
    *("id", "source", "model", "gpu", "n_gpus", "precision", "strategy", "tp", "pp"),
    *("micro_batch", "global_batch", "throughput_total", "throughput_unit", "step_time_s"),
)
"""Columns of a table of training runs, recognised by ``id`` and ``n_gpus``. It may also have cite,
seq, gpus_per_node, network, dp, fsdp, zero_stage, cp, ep, grad_accum, activation_checkpointing,
throughput_per_gpu, software and notes. Others are ignored; an empty cell is unknown."""

_TELLING_COLUMNS = {"id", "n_gpus"}

FACTS_FILE = "training_facts.toml"
"""What sources say of their runs outside of the rows, ``profiles/measurements``."""


def is_training_table(columns: Iterable[str]) -> bool:
    """Tell whether columns are those of a table of training runs, by what others do not have."""
    return set(columns) >= _TELLING_COLUMNS


def read_training_rows(
    path: Path, lines: list[str], start: int, bad: list[DataError] | None = None
) -> list[dict[str, Any]]:
    """Return the fields of a `Case` for each row below the head.

    Parameters
    ----------
    path, lines : the table
    start : index of the line that is the head
    bad : takes rows that cannot be read, which are then left out; None refuses the whole table

    Raises
    ------
    DataError
        If the table lacks a column or holds no case; without ``bad`` also if an id stands twice or
        is empty.
    """
    cases: dict[str, dict[str, Any]] = {}
    for row, cells in csv_rows(lines, start, TRAINING_COLUMNS, path, bad):
        case = training_case(cells)
        if not cells["id"] or case["id"] in cases:
            wrong = f"{cells['id']!r} stands there twice" if cells["id"] else "is empty"
            leave_out(DataError(wrong, path=path, row=row, column="id"), bad)
            continue
        cases[case["id"]] = case
    if not cases:
        raise DataError("holds no case", path=path)
    return list(cases.values())


# What sources say outside of their rows.


class _Fact(TomlModel):
    """One ``[[fact]]``: columns and the text that each must have, and what holds then."""

    when: dict[str, str] = Field(default_factory=dict)
    cells: dict[str, str] = Field(default_factory=dict)
    family: str = ""
    publisher: str = ""
    notice: str = ""
    exclude: str = ""
    where: str = ""


class _FactsFile(TomlModel):
    SCHEMA = "perfsim/training-facts/1"
    title: Any = ""
    fact: Tables[_Fact]


@cache
def _facts() -> tuple[_Fact, ...]:
    return tuple(read_toml(shipped() / "measurements" / FACTS_FILE, _FactsFile).fact)


@lru_cache(maxsize=256)
def _facts_of(source: str) -> tuple[_Fact, ...]:
    """Return the facts that may hold for the rows of a source."""
    return tuple(fact for fact in _facts() if fnmatchcase(source, fact.when.get("source", "*")))


# Reading a row.


_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"(\d{1,3})((?:,\d{3})+)(?!\d)")
_LABELLED = re.compile(r"([\d.,]{1,20})\s{0,4}\((\w{1,20})\)")


@dataclass(frozen=True)
class TrainingRun:
    """The cells of a row, empty ones filled with what the source says elsewhere, and their numbers.

    ``family`` is the model's, such as "ResNet-50"; "" where the row's own words name it.
    """

    cells: Mapping[str, str]
    family: str = ""

    def text(self, column: str) -> str:
        """Return a cell; "" where the table has no such column."""
        return self.cells.get(column, "")

    def number(self, column: str) -> float | None:
        """Return a cell's number, 1e-18 to 1e18, else None."""
        text = self.text(column).replace(",", "")
        match = _NUMBER.fullmatch(text)
        value = float(text) if match else 0.0
        return value if 1e-18 < value < 1e18 else None

    def whole(self, column: str) -> int | None:
        """Return a cell's whole number above zero, else None; words after it do not count."""
        match = re.match(r"(\d{1,12})(?:\.0+)?(?![\d.,-])", self.text(column))
        return int(match[1]) or None if match else None

    def choice(self, column: str, larger: bool) -> int | None:
        """Return a cell's whole number; of two for two precisions, the one of this row's.

        Where the cell does not say which is whose, half precision has the larger batch, and so the
        fewer steps to accumulate.

        Parameters
        ----------
        larger : whether half precision has the larger of two numbers
        """
        text = self.text(column)
        half = self.precision in _HALF
        labelled = {word.upper(): number for number, word in _LABELLED.findall(text)}
        if labelled:
            own = {word in _HALF_WORDS: number for word, number in labelled.items()}
            return _whole(own.get(half, ""))
        text = _THOUSANDS.sub(_joined, text)
        numbers = [_whole(part) for part in re.split(r"\s*(?:,|/|and)\s*", text)]
        known = [number for number in numbers if number]
        if len(known) != len(numbers) or len(known) > 2:
            return None
        return max(known) if half == larger else min(known)

    @property
    def heading(self) -> str:
        """The heading of the table in which the source shows the row, where notes state it."""
        match = re.search(r"\bsection:? ([^;]+)", self.text("notes"))
        return " ".join(match[1].split()) if match else ""

    @property
    def precision(self) -> str:
        """The precision in short: fp32, tf32, amp, bf16, fp8, fp4; "" where it is not stated.

        A heading that names exactly one precision is the source's own word, and comes first where
        the notes begin with it.
        """
        if self.text("notes").startswith("section "):
            named = {word for word, pattern in _PRECISIONS.items() if pattern.search(self.heading)}
            if len(named) == 1:
                return named.pop()
        text = self.text("precision")
        return next((word for word, pattern in _PRECISIONS.items() if pattern.search(text)), "")

    @property
    def gpus(self) -> int | None:
        """GPUs in all."""
        return self.whole("n_gpus") if self.text("n_gpus").isdecimal() else None

    @property
    def gpus_per_node(self) -> int | None:
        """GPUs of a node.

        Of racks that are one NVLink domain each the job is taken to have equal shares, as large as
        they can be.
        """
        domain, gpus = self.whole("nvlink_domain"), self.gpus
        if domain is None or gpus is None:
            return self.whole("gpus_per_node")
        return next(each for each in range(min(domain, gpus), 0, -1) if gpus % each == 0)

    @property
    def one_node(self) -> bool:
        """Whether the run is inside one node, as far as is known."""
        gpus, each = self.gpus, self.gpus_per_node
        return gpus is not None and (gpus == 1 or (each is not None and gpus <= each))

    @cached_property
    def stated_degrees(self) -> dict[str, int | None]:
        """The degree of each kind of parallelism: tp, pp, cp, ep; None where it is only named.

        The column comes first, then a number in the strategy's words; 1 where nothing is said.
        """
        strategy, found = self.text("strategy"), dict[str, int | None]()
        for kind, words in _KINDS.items():
            number = words.number.search(strategy)
            worded = int(number[1]) if number else None
            unsaid = None if words.named.search(strategy) else 1
            found[kind] = self.whole(kind) or worded or unsaid
        return found

    @property
    def degrees(self) -> dict[str, int]:
        """The known degrees above one, by kind."""
        found = self.stated_degrees.items()
        return {kind: degree for kind, degree in found if degree is not None and degree > 1}

    @property
    def is_data_parallel(self) -> bool:
        """Whether no model is split: every GPU has samples of its own."""
        return all(degree == 1 for degree in self.stated_degrees.values())

    @property
    def replicas(self) -> int | None:
        """Replicas of the model; None where the degrees do not divide the GPUs."""
        ranks = math.prod(size for kind, size in self.degrees.items() if kind != "ep")
        return self.gpus // ranks if self.gpus and self.gpus % ranks == 0 else None

    @property
    def contradicts_itself(self) -> bool:
        """Whether the degrees of a split model do not multiply to the GPUs."""
        if self.is_data_parallel:
            return False
        worded = _REPLICAS.search(self.text("strategy"))
        replicas, stated = self.replicas, self.number("dp") or (worded and int(worded[1]))
        stages, experts = self.degrees.get("pp", 1), self.degrees.get("ep", 1)
        divides = (self.gpus or 0) % (stages * experts) == 0
        return replicas is None or not divides or stated not in (None, replicas)

    @property
    def schedule(self) -> str:
        """The pipeline's schedule in perfsim's words; what it is called, where it has none.

        1f1b where nothing is said and a stage has one model chunk.
        """
        strategy = self.text("strategy").lower()
        named = next((name for name, words in _SCHEDULES if re.search(words, strategy)), "")
        return named or ("interleaved" if self.virtual_stages > 1 else "1f1b")

    @property
    def virtual_stages(self) -> int:
        """Model chunks of a pipeline stage; 1 where nothing is said."""
        stated = self.whole("virtual_stages")
        texts = (self.text("strategy"), self.text("notes"))
        found = next(filter(None, (_VIRTUAL.search(text) for text in texts)), None)
        return stated or (int(found[1]) if found else 1)

    @property
    def split(self) -> str:
        """How the model is split, as a scenario states it: ``tp=8; pp=4; schedule=interleaved``."""
        fields: dict[str, object] = dict(self.degrees)
        if "pp" in fields:
            if self.schedule != "1f1b":
                fields["schedule"] = self.schedule
            if self.schedule == "interleaved" and self.virtual_stages > 1:
                fields["virtual_stages"] = self.virtual_stages
            if self.text("stage_layers"):
                fields["stage_layers"] = self.text("stage_layers")
        return "; ".join(f"{name}={value}" for name, value in fields.items())

    @cached_property
    def accumulation(self) -> float:
        """Micro-batches of an iteration of one replica: as stated, else as the batches imply.

        Of a pipeline, a stated number may be that of whole local batches, each of which is several
        micro-batches: a multiple of it that the batches imply comes first.
        """
        stated = self.choice("grad_accum", larger=False) or self.number("grad_accum")
        if stated and self.is_data_parallel:
            return float(stated)
        micro, whole = self.choice("micro_batch", larger=True), self.number("global_batch")
        split = self.replicas or self.number("dp")
        replicas = (self.number("dp") or self.gpus) if self.is_data_parallel else split
        implied = whole / micro / replicas if micro and whole and replicas else None
        if implied and stated and "pp" in self.degrees:
            several = implied / stated
            stated = implied if several > 1 and several.is_integer() else stated
        return float(stated or implied or 1.0) * (self.whole("chunks") or 1)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an iteration, as a whole number; 0 where it is none."""
        count = round(self.accumulation)
        return count if abs(self.accumulation / max(count, 1) - 1) < _ROUNDED else 0

    @property
    def recompute(self) -> str:
        """What the backward pass computes again, in perfsim's words; "?" where others are used."""
        text = self.text("activation_checkpointing").lower().strip()
        if text in _NO_RECOMPUTE:
            return ""
        if text in ("full", "selective", "selective op"):
            return text.partition(" ")[0]
        try:
            return checked_recompute(text, "activation_checkpointing")
        except RequestError:
            return "?"

    @property
    def batch_per_gpu(self) -> int | None:
        """Samples of a micro-batch of one replica, which is a GPU where no model is split.

        Where no column states them, the row as the source prints it may: nodes, GPUs of a node,
        samples a GPU, result.
        """
        micro, chunks = self.choice("micro_batch", larger=True), self.whole("chunks") or 1
        if micro and chunks > 1:
            return micro // chunks if micro % chunks == 0 else None
        if micro and micro > _MAX_SAMPLES and self.micro_batches > 1:
            # The table's batch is that of a GPU and step: no GPU holds as many samples at once.
            return round(micro / self.micro_batches)
        if micro:
            return micro
        printed = _PRINTED.search(self.text("notes"))
        if printed and self.gpus == int(printed[1]) * int(printed[2]):
            return _whole(printed[3])
        whole = self.number("global_batch")
        replicas = (self.gpus if self.is_data_parallel else self.replicas) or 0
        parts = replicas * self.micro_batches
        return round(whole / parts) if whole and parts and whole % parts == 0 else None

    @property
    def unit(self) -> str:
        """The unit of the throughput, without a number before it and what only marks it up.

        A heading without a unit means samples, unless the source says that it counts tokens.
        """
        text = self.text("throughput_unit").strip("*() ")
        if "throughput" in text.lower():
            tokens = "tokens per second" in self.text("software").lower()
            return "tokens/s" if tokens else "samples/s"
        return re.sub(r"^\d+(?:\.\d+)?(?= )", "", text).strip()

    @property
    def result(self) -> tuple[str, float]:
        """The metric and its value: the step time where it is stated, else samples a second.

        A step of several micro-batches is told by its rate, which one of them has too.

        A throughput whose unit cannot be turned into samples keeps it: ``throughput in tokens/s``.
        """
        seconds = self.step_s
        if seconds and self.micro_batches > 1:
            samples = (self.batch_per_gpu or 0) * self.micro_batches * (self.replicas or 0)
            return "throughput", samples / seconds
        if seconds:
            return "iteration_s", seconds
        if not self.rate and self.model_flops:
            return f"flops_per_gpu_{self.text('flop_count')}", self.model_flops
        rate, unit = self.rate or 0.0, self.unit
        if "tok" in unit.lower():
            seq = self.number("seq")
            return ("throughput", rate / seq) if seq else (f"{_RATE_IN} tokens/s", rate)
        if _SAMPLES.fullmatch(unit):
            return "throughput", rate
        return f"{_RATE_IN} {unit or 'no stated unit'}", rate

    @property
    def step_s(self) -> float | None:
        """Seconds of an iteration: the column, else milliseconds that the row as printed has."""
        printed = _MILLISECONDS.search(self.text("notes"))
        stated = self.number("step_time_s")
        return stated or (float(printed[1]) / 1e3 if printed else None)

    @property
    def rate(self) -> float | None:
        """Throughput in all, in the unit of the table."""
        total, each = self.number("throughput_total"), self.number("throughput_per_gpu")
        return total or (each * self.gpus if each and self.gpus else None)

    @property
    def model_flops(self) -> float | None:
        """The model's FLOP/s on a GPU by the source's count; None where that is not known."""
        if not self.text("flop_count"):
            return None
        tera, share = self.number("model_tflops_per_gpu"), self.number("mfu_percent")
        peak = self.number("peak_tflops")
        if tera is None and share and peak:
            tera = share / 100 * peak
        return tera * 1e12 / (self.number("flop_factor") or 1.0) if tera else None


_PRECISIONS = {
    "fp4": re.compile(r"(?i)fp4"),
    "fp8": re.compile(r"(?i)fp8|float8"),
    "tf32": re.compile(r"(?i)tf32"),
    "fp32": re.compile(r"(?i)fp32|float32"),
    "bf16": re.compile(r"(?i)bf16|bfloat16"),
    "amp": re.compile(r"(?i)\bamp\b|fp16|float16|mixed"),
}
_PRINTED = re.compile(r"\braw (\d{1,6}) \| (\d{1,3}) \| (\d{1,6}) \| \d+\.\d+")
_MILLISECONDS = re.compile(r"\bThroughput=(\d{1,9}(?:\.\d{1,3})?) ?ms\b")
_RATE_IN = "throughput in"
_SAMPLES = re.compile(r"(?i)(samp(le)?s?|seq(uence)?s?|sentences?|im(a)?ge?s?|items?)/s(ec)?")
_HALF = ("amp", "bf16", "fp8", "fp4")
_HALF_WORDS = ("AMP", "FP16", "BF16", "MIXED")


def _whole(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,12})(?:\.0+)?", text.strip())
    return int(match[1]) or None if match else None


def _joined(match: re.Match[str]) -> str:
    """Join groups of thousands; two equal numbers are two batches."""
    return match[0] if match[0] == f"{match[1]},{match[1]}" else match[0].replace(",", "")


# How the model is split.


class _Kind(NamedTuple):
    """A kind of parallelism: its name, and how a strategy's words state its degree or name it."""

    name: str
    number: re.Pattern[str]
    named: re.Pattern[str]


_KINDS = {
    "tp": _Kind(
        "tensor",
        re.compile(r"\b(?:TP|tp) ?=?(\d{1,4})\b"),
        re.compile(r"\bTP\b|(?i:tensor.parallel)"),
    ),
    "pp": _Kind(
        "pipeline",
        re.compile(r"\b(?:PP|pp) ?=?(\d{1,4})\b"),
        re.compile(r"\bPP\b|(?i:pipeline)"),
    ),
    "cp": _Kind(
        "context",
        re.compile(r"\b(?:CP ?=?|cp ?=?|SP=)(\d{1,4})\b"),
        re.compile(r"\bCP\b|(?i:context.parallel)"),
    ),
    "ep": _Kind(
        "expert",
        re.compile(r"\b(?:EP|ep) ?=?(\d{1,4})\b"),
        re.compile(r"\bEP\b|(?i:expert.parallel)"),
    ),
}
_SCHEDULES = (
    ("interleaved", r"interleaved"),
    ("gpipe", r"gpipe|\bafab\b"),
    ("zb-h2", r"\bzb2p\b|\bzb-h2\b"),
    ("zb-h1", r"\bzbb\b|\bzb1p\b|\bzb-h1\b|zero.bubble"),
    ("zbv", r"\bzbv\b"),
    ("V-Half", r"\bv-half\b"),
    ("V-Min", r"\bv-min\b"),
    ("dualpipev", r"dualpipev"),
    ("DualPipe", r"dualpipe"),
)
"""Schedules and the words that name them, the first that fit; capital letters are those that
perfsim lacks. zbb: ZB1P, as Primus calls it (AMD-AGI/Primus@fd1eeabb primus_pipeline.md)."""
_VIRTUAL = re.compile(r"\b(?i:VPP?)[ =]?(\d{1,3})\b")
_REPLICAS = re.compile(r"\b(?i:dp) ?=?(\d{1,5})\b")


# What perfsim lacks, by the columns of a row.


def _without_degree(kind: str) -> Callable[[TrainingRun], bool]:
    return lambda run: run.stated_degrees[kind] is None


def _schedule_missing(run: TrainingRun) -> str:
    lacks = "pp" in run.degrees and not run.schedule.islower()
    return f"pipeline schedule {run.schedule}" if lacks else ""


def _unresolved(run: TrainingRun) -> bool:
    said = re.search(r"\b3D\b", run.text("strategy"))
    return bool(said) and not any(run.text(column) for column in ("tp", "pp"))


def _no_result(run: TrainingRun) -> bool:
    rates = (run.number(f"throughput_{what}") for what in ("total", "per_gpu"))
    return not run.step_s and not any(rates) and not run.model_flops


def _lacks_rank(run: TrainingRun) -> bool:
    named = "lora" in f"{run.text('model')} {run.family}".lower()
    return named and run.whole("lora") is None


_NO_RECOMPUTE = ("", "0", "no", "none", "no ac", "false", "off", "n/a", "-")
_MAX_SAMPLES = 1024
"""Samples of a micro-batch where steps accumulate. No source: chosen, above those of public tables
(512 in llm-foundry's) and below the batches that DeepLearningExamples states of a whole step."""
_ROUNDED = 0.01
"""How far a whole number of micro-batches may be off by rounding."""


def _if(test: Callable[[TrainingRun], bool], what: str) -> Callable[[TrainingRun], str]:
    return lambda run: what if test(run) else ""


CRITERIA: tuple[Callable[[TrainingRun], str], ...] = (
    _if(_no_result, "neither step time nor throughput stated"),
    _if(lambda run: run.gpus is None, "number of GPUs not stated"),
    _if(_lacks_rank, "rank of LoRA adapters not stated"),
    _if(lambda run: "offload" in run.text("strategy").lower(), "offloading to the CPU"),
    *(
        _if(_without_degree(kind), f"degree of {_KINDS[kind].name} parallelism not stated")
        for kind in _KINDS
    ),
    _if(_unresolved, "how the model is split is not stated"),
    _if(lambda run: run.contradicts_itself, "degrees of parallelism contradict the number of GPUs"),
    _schedule_missing,
    _if(lambda run: run.micro_batches == 0, "micro-batches of an iteration are no whole number"),
    _if(lambda run: run.recompute == "?", "activation checkpointing of some layers"),
)
"""What perfsim lacks for a row, by its columns alone: the first that is not "" is named."""


def gpu_of(case: CaseWords) -> str:
    """Return a training run's GPU as a driver would name it: maker, chip, board and memory.

    Examples
    --------
    >>> class Words:
    ...     publisher, gpu = "mlperf", "NVIDIA H200 NVL, 141GB, 600W, DGX H200, fp8"
    >>> gpu_of(Words())
    'NVIDIA H200 NVL 141GB'
    """
    name, *more, _ = case.gpu.split(", ") if case.publisher else (case.gpu, "")
    return " ".join([name, *(word for word in more if _MEMORY.fullmatch(word))])


class CaseWords(Protocol):
    """The words of a `Case` that tell what is missing."""

    @property
    def publisher(self) -> str:
        """The source in short."""

    @property
    def model(self) -> str:
        """Family, the source's words, sequence length."""

    @property
    def gpu(self) -> str:
        """Maker, chip and board, ..., precision."""

    @property
    def network(self) -> str:
        """``one node: ...``, or what lies between nodes."""

    @property
    def batch_per_gpu(self) -> str:
        """Samples a GPU; "" where they are not stated."""

    @property
    def metric(self) -> str:
        """What was measured."""


def still_missing(case: CaseWords, fields: Collection[str], models: Iterable[str]) -> str:
    """Return what perfsim lacks to predict a case of a training run, by what no rule fits; or "".

    Parameters
    ----------
    case : a case that `read_training_rows` wrote; the answer is "" for any other
    fields : names of the fields that the rules give it
    models : patterns of the model's words that rules know: where one has this family, but another
        length, the length is missing and not the model
    """
    gpu, _, precision = case.gpu.rpartition(", ")
    if not case.publisher or precision not in (*_PRECISIONS, _NOT_STATED):
        return ""
    several = not case.network.startswith(_ONE_NODE)
    of_length = "of unstated length" if case.metric.endswith(" tokens/s") else "not samples"
    lacks = (
        (not {"net", "node"} & set(fields) and several, _network_missing(case.network)),
        ("gpu" not in fields, f"GPU {_first_word(gpu).removeprefix('NVIDIA ')}"),
        ("model" not in fields, _model_missing(case.model, models)),
        (case.metric.startswith(_RATE_IN), f"{case.metric}, {of_length}"),
        (not case.batch_per_gpu, "batch not stated"),
        ("precision" not in fields, f"precision {precision}"),
        ("method" not in fields, "how gradients are exchanged is not stated"),
    )
    return next((what for lack, what in lacks if lack), "")


_ONE_NODE = "one node"
_NOT_STATED = "not stated"
_WIRES = re.compile(
    r"Omni-Path|Slingshot|EFA|RoCE|(?:IB )?(?:EDR|[HNX]DR)\d{0,4}|Infini[Bb]and|BF3|TCPX?|Ethernet|"
    r"\d{1,5} ?Gbps"
)


def _first_word(text: str) -> str:
    return text.partition(",")[0]


def _network_missing(text: str) -> str:
    wires = _WIRES.search(text)
    return f"network {wires[0]}" if wires else "several nodes without a stated network"


def _model_missing(model: str, known: Iterable[str]) -> str:
    family = _first_word(model)
    if not any(pattern.startswith(f"{family},") for pattern in known):
        return f"model {family}"
    tokens = re.search(r"(\d+) tokens", model)
    if tokens is None:
        return f"sequence length of {family} not stated"
    return f"sequence length {tokens[1]} of {family}"


# The words of a case.


_CHIPS = re.compile(
    r"(?<![A-Z0-9])(GB300|GB200|GH200|B300|B200|H800|H200|H100|H20(?:-3E)?|A800|A100|A40|A30|A10G|"
    r"A10|A5000|A6000|L40S|L40|L4|V100|P100|T4|MI\d{3}[AX]?|ASCEND ?910|GAUDI ?\d?|V\dE?P?(?=-\d)|"
    r"RTX ?\d{4}(?:[ -]?(?:TI|SUPER|ADA|D|LAPTOP|MAX-Q)(?![A-Z0-9])){0,3})(?![A-Z0-9])"
)
_MAKERS = {"MI": "AMD", "AS": "Huawei", "GA": "Intel", "V4": "Google TPU", "V5": "Google TPU"}
"""Beginning of a chip's name -> its maker, where that is not NVIDIA."""
_MEMORY = re.compile(r"(?<![\d.x/])(\d{2,3}) ?GB?(?![A-Za-z/])", re.IGNORECASE)
_POWER = re.compile(r"(\d{3,4}) ?W\b")
_NODE_TYPE = re.compile(r"\b(DGX[- ]?\w*(?: [A-Z]\d+)?)\b")
_BETWEEN_AND_INSIDE = re.compile(r"net:(.*?); intra:(.*)")
_EAST_WEST = re.compile(r"(.{1,200}?) for NS and (.{1,200}?) for EW", re.IGNORECASE)
"""Cards to storage and the outside (north-south), and those between GPUs (east-west)."""
_FRAMEWORKS = {
    word.lower(): word
    for word in (
        *("MXNet", "PaddlePaddle", "MindSpore", "OneFlow", "TensorFlow2", "TensorFlow", "PyTorch"),
        *("Composer", "nanotron", "torchtitan", "Megatron", "DeepSpeed", "NeMo", "JAX", "torch"),
    )
}
_FRAMEWORK = re.compile("|".join(_FRAMEWORKS))
_SIZE = re.compile(r"[-_ .]{0,4}\d{1,6}(?:\.\d{1,4})?\s{0,4}[bBmM](?![A-Za-z0-9]).*")


def training_case(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a row's `Case`."""
    run, said = _with_facts(cells)
    source = run.text("source")
    publisher = said.publisher.replace("*", source.rpartition("-")[2])
    publisher = publisher or re.sub(r"[^a-z0-9]+", "_", source.lower()).strip("_") or "unnamed"
    metric, value = run.result
    division = re.search(r"\bdivision ?(\w*)", run.text("notes"))
    exclude = said.exclude
    if division and not division[1].lower().startswith("clos"):
        exclude = exclude or "model not stated: MLPerf's open division lets it be another"
    cite = run.text("cite")
    return dict(
        id=f"{publisher}-{run.text('id')}",
        system=_system_words(run, submitted=division is not None),
        model=_model_words(run),
        gpu=_gpu_words(run),
        gpus=str(run.gpus or ""),
        gpus_per_node=str(run.gpus_per_node or ""),
        network=_network_words(run),
        batch_per_gpu=str(run.batch_per_gpu or ""),
        fusion="",
        rank_or_density="",
        metric=metric,
        value=value,
        notes=run.text("notes"),
        source=f"{said.notice}: {cite}" if said.notice else cite,
        provenance=cite,
        role="excluded" if exclude else "",
        reason=exclude,
        publisher=publisher,
        accumulate=str(run.micro_batches) if run.micro_batches > 1 else "",
        recompute=run.recompute.replace("?", ""),
        split="" if run.contradicts_itself else run.split,
        missing="" if exclude else next(filter(None, (test(run) for test in CRITERIA)), ""),
    )


_EMPTY = ("", "-", "n/a", "not stated")
"""What a cell has that states nothing."""


def with_facts(cells: Mapping[str, str]) -> TrainingRun:
    """Return a row with its empty cells filled by what its source says elsewhere."""
    return _with_facts(cells)[0]


def _with_facts(cells: Mapping[str, str]) -> tuple[TrainingRun, _Fact]:
    """Return the row with empty cells filled, and what else the source says of it.

    Of several facts that fit the last counts; a cell that the row states stays.
    """
    filled: dict[str, str] = {}
    words: dict[str, Any] = dict.fromkeys(("family", "publisher", "notice", "exclude"), "")
    for fact in _facts_of(cells.get("source", "")):
        if all(fnmatchcase(cells.get(column, ""), text) for column, text in fact.when.items()):
            filled |= {
                name: text
                for name, text in fact.cells.items()
                if cells.get(name, "").strip().lower() in _EMPTY
            }
            words |= {name: getattr(fact, name) for name in words if getattr(fact, name)}
    return TrainingRun({**cells, **filled}, words["family"]), _Fact(**words)


def _model_words(run: TrainingRun) -> str:
    """Return family, the source's words, task and length: ``BERT-Large, ..., 512 tokens``."""
    words = " ".join(run.text("model").split())
    last = words if " " in words else words.rpartition("/")[2]
    family = run.family or _SIZE.sub("", last).strip(" -_") or words
    parts = [family.replace(",", ";"), words, *filter(None, [_specification(run)])]
    if "squad" in run.text("notes").lower():
        parts.append("SQuAD")
    rank = run.whole("lora")
    if rank:
        parts.append(f"LoRA of rank {rank} beside {run.text('lora_layers') or 'all'}")
    seq = run.whole("seq")
    if seq:
        parts.append(f"{seq} tokens")
    return ", ".join(parts)


def _specification(run: TrainingRun) -> str:
    """Return the model by its numbers, where facts say what the row does not.

    A fact's numbers come before those of the row.
    """
    numbers = {name: str(run.whole(name) or "") for name in ("layers", "hidden", "heads")}
    words = (word.partition("=") for word in run.text("architecture").split(","))
    numbers |= {name: value for name, _, value in words if name}
    if not run.text("architecture") or not all(numbers.values()):
        return ""
    return "transformer:" + ",".join(f"{name}={value}" for name, value in numbers.items())


def _gpu_words(run: TrainingRun) -> str:
    """Return maker, chip and board, then memory, power and node type, then the precision."""
    text = run.text("gpu")
    upper = text.upper().replace("_", " ")
    chips = _CHIPS.findall(upper)
    if chips:
        chip = chips[-1] if chips[-1].startswith(chips[0]) else chips[0]
        board = "" if chip.startswith("GB") else _board(upper)
        name = f"{_MAKERS.get(chip[:2], 'NVIDIA')} {chip}{board}"
    else:
        name = " ".join(text.split()).replace(",", ";") or _NOT_STATED
    parts = [name]
    for pattern, unit in ((_MEMORY, "GB"), (_POWER, "W")):
        match = pattern.search(upper)
        if chips and match:
            parts.append(f"{match[1]}{unit}")
    node = _NODE_TYPE.search(text)
    if node:
        parts.append(node[1])
    return ", ".join([*parts, run.precision or _NOT_STATED])


def _board(text: str) -> str:
    if "PCI" in text:
        return " PCIe"
    if re.search(r"\bNVL\b", text):
        return " NVL"
    return " SXM" if re.search(r"SXM|DGX|HGX", text) else ""


def _network_words(run: TrainingRun) -> str:
    """Return what lies between nodes, and the node type; of one node the links inside it.

    Of ``net: ... ; intra: ...`` the first is between nodes: its cards for computing (east-west),
    where those for storage and management (north-south) are named apart.
    """
    text = " ".join(run.text("network").split())
    parts = _BETWEEN_AND_INSIDE.fullmatch(text)
    if parts:
        between, inside = (re.sub(r"\s*(N/A\s*)+$", "", part).strip() for part in parts.groups())
        cards = re.search(r"Compute: (.*?)(?:[,+]? Management:| Ethernet Fabric|$)", between)
        apart = _EAST_WEST.fullmatch(between)
        if apart:
            between = apart[2]
        text = inside if run.one_node else (cards[1].strip() if cards else between)
    node = _NODE_TYPE.search(run.text("gpu"))
    if node and node[1] not in text:
        text = ", ".join(filter(None, (text, node[1])))
    return f"{_ONE_NODE}: {text}".strip(" :") if run.one_node else text


def _system_words(run: TrainingRun, *, submitted: bool) -> str:
    """Return the framework, who ran it or the table's heading, the strategy, and facts of it."""
    software = run.text("software")
    named = _FRAMEWORK.findall(run.text("model").lower()) or _FRAMEWORK.findall(software.lower())
    parts = ["/".join(dict.fromkeys(_FRAMEWORKS[word] for word in named)) or _NOT_STATED]
    if submitted:
        parts.append(run.text("notes").partition("/")[0])
    elif run.heading:
        parts.append(run.heading.rpartition(" / ")[2])
    variant = re.search(r"\+ ?\w+", run.text("throughput_unit"))
    if variant:
        parts.append(variant[0])
    known = filter(None, [run.text("data_parallel"), run.text("experts")])
    return ", ".join([*parts, run.text("strategy"), *known])
