"""Ways to divide training among GPUs: degrees of parallelism, schedules, micro-batches, sharding.

All divisions of a space train the same samples in an iteration (the global batch). What the
scenario itself sets stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from perfsim.compute.execution import execution_of
from perfsim.compute.profile import defined_tokens, matches_definition
from perfsim.compute.recompute import RECOMPUTE
from perfsim.compute.stages import check_stages
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.memory import LONG_SAMPLE
from perfsim.methods.fusion_settings import for_method
from perfsim.model_parallel import expert_ranks, parallel_layout
from perfsim.models import ModelLayer, build_model
from perfsim.models.blocks import block_spans
from perfsim.models.layers import is_expert
from perfsim.models.split import (
    BESIDE_MICRO_BATCH,
    FOLDED,
    Degrees,
    check_schedule,
    check_split,
    stage_blocks,
)
from perfsim.resolve import Setup, resolve
from perfsim.scenario import MAX_MICRO_BATCHES, Scenario, with_checked
from perfsim.session import default_session

__all__ = [
    "SEARCHED_FIELDS",
    "Division",
    "DivisionChain",
    "DivisionSpace",
    "PipelineSchedule",
    "Ranks",
    "Sharding",
    "asked_samples",
    "division_space",
    "fixed_fields",
    "tokens_of",
    "undivided",
    "why_not_searched",
    "with_fields_set",
    "with_gpus",
    "with_tp_of_experts",
]

_TOKENS_A_RANK = 8192
"""Fewest tokens of a sample that a context-parallel rank is given: those of Llama 3 405B at 131,072
tokens on 16 such ranks (arXiv 2407.21783, table 4)."""

SEARCHED_FIELDS = (
    *("tp", "pp", "cp", "ep", "etp", "schedule", "virtual_stages", "batch", "accumulate"),
    *("recompute", "method"),
)
"""Fields that the search chooses, unless the scenario sets them."""

_NOT_SEARCHED = {
    "single_gpu": "it holds for one micro-batch",
    "single_gpu_kernels": "it holds for one method",
    "jitter": "its draws hide small differences",
    "beside": "each division would need runs of all jobs",
    "placement": "a divided model needs as many GPUs on each node",
}
"""Settings with which divisions are not compared, and why."""


class Sharding(NamedTuple):
    """How replicas share the state of training: a method with its options.

    Parameters
    ----------
    name : what is sharded: none, optimizer, parameters; "as asked" where the scenario says so
    method, options : as in a scenario; "" where the scenario's own stay
    """

    name: str
    method: str = ""
    options: Mapping[str, Any] = {}


_SHARDINGS = (
    Sharding("none", "ssgd"),
    Sharding(
        "optimizer",
        "distributed_optimizer",
        {"overlap_grad_reduce": True, "overlap_param_gather": True},
    ),
    Sharding("parameters", "fsdp"),
)
"""The ways to share state that are tried, the least sharded first: PyTorch's DDP, Megatron-LM's
distributed optimizer with both of its overlaps, PyTorch's FSDP."""

_AS_ASKED = Sharding("as asked")


class Division(NamedTuple):
    """One way to divide training among GPUs.

    Parameters
    ----------
    tp, pp, cp, ep, replicas : ranks of each kind of parallelism; replicas have samples of their own
    etp : ranks that divide each expert; None: as tp
    schedule, chunks : of the pipeline; ``chunks`` is None where a stage has one piece of the model
    batch, accumulate : samples of a micro-batch, and micro-batches of an iteration
    recompute : what the backward pass computes again
    sharding : how replicas share state
    """

    tp: int
    pp: int
    cp: int
    ep: int
    etp: int | None
    replicas: int
    schedule: str
    chunks: int | None
    batch: int
    accumulate: int
    recompute: str
    sharding: Sharding

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.tp * self.pp * self.cp * self.replicas

    @property
    def words(self) -> str:
        """Say how training is divided: ``tp 8, pp 4 (1f1b), dp 16, micro-batch 1 x 32``."""
        sizes = [(axis, getattr(self, axis)) for axis in ("tp", "cp", "ep")]
        words = [f"{axis} {size}" for axis, size in sizes if size > 1]
        words += [f"etp {self.etp}"] if self.etp else []
        if self.pp > 1:
            chunks = f", {self.chunks} chunks" if self.chunks else ""
            words.append(f"pp {self.pp} ({self.schedule}{chunks})")
        words += [f"dp {self.replicas}", f"micro-batch {self.batch} x {self.accumulate}"]
        words += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        return ", ".join(words)

    @property
    def apart_from_schedule(self) -> tuple[Any, ...]:
        """What it has in common with divisions that differ in the schedule of the pipeline only."""
        return (*self[:6], *self[8:11], self.sharding.name)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a scenario that it sets, without those of its sharding."""
        return {
            **{name: getattr(self, name) for name in ("gpus", "tp", "pp", "cp", "ep", "etp")},
            **{name: getattr(self, name) for name in ("schedule", "batch", "accumulate")},
            "recompute": self.recompute,
            "virtual_stages": self.chunks,
        }


PipelineSchedule = tuple[str, int | None]
"""Name of a schedule, and the chunks of a stage; None where a stage has one piece."""


class Ranks(NamedTuple):
    """Ranks of each kind of parallelism; ``etp`` is that of `Division`."""

    tp: int
    pp: int
    cp: int
    ep: int
    etp: int | None
    replicas: int


class DivisionChain(NamedTuple):
    """Divisions that differ in micro-batch, schedule and sharding only.

    ``sizes`` are (samples of a micro-batch, micro-batches, schedules that take so many), the
    smallest micro-batch first. The first schedule needs least memory.
    """

    ranks: Ranks
    recompute: str
    sizes: tuple[tuple[int, int, tuple[PipelineSchedule, ...]], ...]
    shardings: tuple[Sharding, ...]

    def division(self, at: int, schedule: PipelineSchedule, sharding: Sharding) -> Division:
        """Return the division with one of the micro-batches."""
        batch, count, _ = self.sizes[at]
        return Division(*self.ranks, *schedule, batch, count, self.recompute, sharding)

    def divisions(self, first: int = 0) -> int:
        """Return how many divisions there are with one of the micro-batches or a larger one."""
        return len(self.shardings) * sum(len(schedules) for *_, schedules in self.sizes[first:])


@dataclass(frozen=True)
class DivisionSpace:
    """All divisions of a scenario's training at a global batch.

    Parameters
    ----------
    scenario : what is divided, with the fields that it sets
    global_batch : samples of an iteration over all GPUs
    chains : the divisions
    skipped : layouts that no division can have, by reason
    """

    scenario: Scenario
    global_batch: int
    chains: tuple[DivisionChain, ...]
    skipped: Counter[str]

    def __len__(self) -> int:
        """Return how many divisions there are."""
        return sum(chain.divisions() for chain in self.chains)

    def __iter__(self) -> Iterator[Division]:
        """Yield the divisions."""
        for chain in self.chains:
            for at, (*_, schedules) in enumerate(chain.sizes):
                for schedule, sharding in product(schedules, chain.shardings):
                    yield chain.division(at, schedule, sharding)

    @cached_property
    def _by_sharding(self) -> dict[str, Scenario]:
        """Scenarios by the name of their sharding, as `scenario_of` has made them."""
        return {}

    def scenario_of(self, division: Division) -> Scenario:
        """Return the scenario of a division.

        Raises
        ------
        RequestError
            If the scenario asks for what is not done so.
        """
        return with_checked(self.sharded(division.sharding), division.fields())

    def sharded(self, sharding: Sharding) -> Scenario:
        """Return the scenario with the state shared so, its model divided as it asks."""
        made = self._by_sharding
        if sharding.name not in made:
            asked = self.scenario
            if sharding.method:
                own = {"method": sharding.method, "options": dict(sharding.options)}
                asked = for_method(asked.model_copy(update=own), sharding.method)[0]
            made[sharding.name] = asked
        return made[sharding.name]


def why_not_searched(setup: Setup) -> str:
    """Return why the training of a setup cannot be divided in other ways, or ""."""
    if not matches_definition(setup.profile):
        return f"perfsim has no layers of {setup.profile.model}, so that it cannot be divided"
    if not any(block_spans(_layers_of(setup))):
        return "only transformers are divided, and the model has no blocks of attention"
    if setup.parts:
        return "GPUs of several types do not divide a model"
    return ""


def _layers_of(setup: Setup) -> tuple[ModelLayer, ...]:
    return build_model(setup.profile.model, tokens_of(setup))


def undivided(scenario: Scenario) -> Scenario:
    """Return a scenario whose model is not divided."""
    whole = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": None, "schedule": "1f1b"}
    return scenario.model_copy(update={**whole, "virtual_stages": None, "stage_layers": None})


def asked_samples(scenario: Scenario, setup: Setup) -> int:
    """Return the samples of an iteration over all GPUs, as a scenario asks for them.

    Parameters
    ----------
    setup : of the scenario with its model undivided

    Raises
    ------
    RequestError
        If its degrees of parallelism do not divide its GPUs.
    """
    # Where experts stand makes no difference, and may be left to the search.
    asked = scenario.model_copy(update={"ep": 1, "etp": None})
    layout = parallel_layout(asked)
    return layout.replicas * setup.profile.batch * scenario.accumulate


def division_space(
    scenario: Scenario, catalog: Catalog | None = None, *, global_batch: int | None = None
) -> DivisionSpace:
    """Return all divisions of a scenario's training.

    Parameters
    ----------
    global_batch : samples of an iteration over all GPUs; None: as many as the scenario asks for

    Raises
    ------
    RequestError
        If the model cannot be divided, or no division keeps the global batch.

    Examples
    --------
    >>> from perfsim.scenario import make_scenario
    >>> asked = {"model": "llama3-8b", "gpus": 16, "node": "dgx-h100", "net": "dgx-h100"}
    >>> space = division_space(make_scenario(asked | {"recompute": "full"}), global_batch=64)
    >>> {(one.replicas * one.batch * one.accumulate, one.recompute) for one in space}
    {(64, 'full')}
    """
    catalog = catalog or default_session()
    for name, why in _NOT_SEARCHED.items():
        asked = getattr(scenario, name)
        if asked:
            raise RequestError(
                name,
                f"{why}: leave it out of a search of parallelism, then predict with it what the"
                " search finds.",
                value=asked,
            )
    setup = resolve(undivided(scenario), catalog)
    why = why_not_searched(setup)
    if why:
        raise RequestError("over", f"{why}; leave 'parallelism' out.", value="parallelism")
    if scenario.etp is not None:
        check_split(_layers_of(setup), Degrees(whole_experts=True))  # that there are experts
    fixed = fixed_fields(scenario)
    if global_batch is None:
        global_batch = asked_samples(scenario, setup)
        fixed -= {"batch", "accumulate"}
    builder = _Builder(scenario, setup, frozenset(fixed), global_batch)
    chains = tuple(builder.chains())
    if not chains:
        raise builder.refusal(catalog)
    return DivisionSpace(scenario, global_batch, chains, builder.skipped)


def with_tp_of_experts(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a scenario's fields with the `tp` that its `etp` leaves, where none is given.

    Experts are whole, or divided as the rest: where they are divided so is the rest.

    Examples
    --------
    >>> with_tp_of_experts({"gpus": 64, "etp": 8}), with_tp_of_experts({"gpus": 64, "etp": "1"})
    ({'gpus': 64, 'etp': 8, 'tp': 8}, {'gpus': 64, 'etp': '1'})
    """
    etp = str(fields.get("etp", ""))
    divided = etp.isdecimal() and int(etp) > 1
    return {**fields, "tp": int(etp)} if divided and "tp" not in fields else fields


def fixed_fields(scenario: Scenario) -> set[str]:
    """Return the fields that a search would choose and a scenario sets."""
    return {name for name in SEARCHED_FIELDS if name in scenario.model_fields_set}


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


class _Builder:
    """Makes the space of divisions, and counts the layouts that it leaves out."""

    def __init__(
        self, scenario: Scenario, setup: Setup, fixed: frozenset[str], global_batch: int
    ) -> None:
        self.scenario, self.setup, self.fixed = scenario, setup, fixed
        self.global_batch = global_batch
        self.layers = _layers_of(setup)
        self.blocks = len(list(block_spans(self.layers)))
        self.skipped: Counter[str] = Counter()

    def asked(self, name: str, otherwise: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a field that are tried: its own where the scenario sets it."""
        return [getattr(self.scenario, name)] if name in self.fixed else otherwise

    def chains(self) -> Iterator[DivisionChain]:
        """Yield the divisions by ranks and by what is computed again."""
        recomputes = self.asked("recompute", RECOMPUTE)
        for ranks in self.layouts():
            sizes = self.sizes(ranks)
            if sizes:
                for recompute in recomputes:
                    # What sends tokens again in the backward pass runs beside no other micro-batch.
                    if not (self.overlaps(ranks) and recompute == "full"):
                        yield DivisionChain(ranks, recompute, sizes, self.shardings(ranks))

    def layouts(self) -> Iterator[Ranks]:
        """Yield the layouts of all GPUs."""
        gpus = self.scenario.gpus
        whole = self.scenario.lora_base != "none"  # no code divides matrices kept in 4 bits
        for tp in self.asked("tp", [1] if whole else _divisors(self.setup.cluster.gpus_per_node)):
            if self.undividable("tp", Degrees(tp=tp)):
                continue
            for cp in self.asked("cp", self.contexts()):
                if self.undividable("cp", Degrees(tp, cp, context=self.scenario.cp_comm)):
                    continue
                if gpus % (tp * cp):
                    self.skipped["the GPUs do not divide by tp x cp"] += 1
                    continue
                for pp in self.asked("pp", _divisors(gpus // (tp * cp))):
                    yield from self.staged(tp, cp, pp)

    def staged(self, tp: int, cp: int, pp: int) -> Iterator[Ranks]:
        """Yield the layouts with so many stages."""
        gpus = self.scenario.gpus
        try:
            check_stages(self.layers, pp)
            stage_blocks(self.blocks, pp)
        except RequestError as error:
            few = f"more stages than the {self.blocks} blocks allow"
            self.skipped[few if pp > self.blocks else error.why.partition(";")[0]] += 1
            return
        if gpus % (tp * cp * pp):
            self.skipped["the GPUs do not divide by tp x cp x pp"] += 1
            return
        replicas = gpus // (tp * cp * pp)
        for etp in self.asked("etp", self.experts_divided(tp)):
            ranks = expert_ranks(tp, cp, replicas, whole=etp == 1 < tp)
            sizes = self.experts(ranks)
            if etp == 1:  # groups of experts go over all tensor-parallel ranks
                sizes = [size for size in sizes if size % tp == 0]
            for ep in self.asked("ep", sizes):
                if ranks % ep:
                    self.skipped["the ranks that hold experts do not divide by ep"] += 1
                    continue
                yield Ranks(tp, pp, cp, ep, etp, replicas)

    def undividable(self, axis: str, degrees: Degrees) -> bool:
        """Tell whether layers cannot be divided so, and count it."""
        try:
            check_split(self.layers, degrees)
        except RequestError:
            self.skipped[f"the layers do not divide by {axis}"] += 1
            return True
        return False

    def contexts(self) -> list[int]:
        """Return the numbers of context-parallel ranks that are tried: several of long samples.

        One with a mask, which context parallelism does not take.
        """
        tokens = self.setup.profile.sequence or 0
        if tokens <= LONG_SAMPLE or execution_of(self.setup.transferred.era).masked:
            return [1]
        return [size for size in _doublings(tokens) if tokens // size >= _TOKENS_A_RANK] or [1]

    def experts_divided(self, tp: int) -> list[int | None]:
        """Return the ranks that divide each expert, as they are tried: those of tp, and one."""
        whole = tp > 1 and self.scenario.sequence_parallel and any(map(is_expert, self.layers))
        return [None, 1] if whole else [None]

    def experts(self, ranks: int) -> list[int]:
        """Return the numbers of expert-parallel ranks that are tried among so many."""
        count = max((one.tensors[0][1][0] for one in self.layers if is_expert(one)), default=1)
        return [size for size in _divisors(count) if ranks % size == 0]

    def schedules(self, pp: int) -> Iterator[PipelineSchedule]:
        """Yield the schedules that are tried; of several, the one without chunks first."""
        own, chunks = self.scenario.schedule, self.scenario.virtual_stages
        if pp == 1:
            yield own, None
            return
        given = "virtual_stages" in self.fixed and chunks is not None
        if "schedule" in self.fixed and own != "interleaved":
            yield own, chunks if given else None
            return
        if "schedule" not in self.fixed and not given:
            yield own, None
        for count in [chunks] if given else self.chunk_counts(pp):
            yield "interleaved", count

    def chunk_counts(self, pp: int) -> list[int]:
        """Return how many chunks of a stage are tried, the most of each quadrupling.

        Chunks have as many blocks, but for the first and the last, which may have one fewer.
        """
        counts: dict[int, int] = {}
        for count in range(2, self.blocks + 1):
            try:
                first, *inner, last = stage_blocks(self.blocks, pp, count)
            except RequestError:
                break
            if len(set(inner)) == 1 and first == last and inner[0] - first in (0, 1):
                counts[count.bit_length() // 2] = count
        return list(counts.values())

    def sizes(self, ranks: Ranks) -> tuple[tuple[int, int, tuple[PipelineSchedule, ...]], ...]:
        """Return the micro-batches that keep the global batch, with schedules that take them."""
        if self.global_batch % ranks.replicas:
            self.skipped["the global batch does not divide by the replicas"] += 1
            return ()
        samples = self.global_batch // ranks.replicas
        schedules = list(self.schedules(ranks.pp))
        found = []
        for batch in self.batches(samples):
            count = samples // batch
            able = tuple(one for one in schedules if _takes(one, ranks.pp, count))
            if ranks.pp > 1 and self.overlaps(ranks):
                able = tuple(one for one in able if one[0] in BESIDE_MICRO_BATCH)
            alone = count == 1 and self.overlaps(ranks)
            if able and count <= MAX_MICRO_BATCHES and not alone:
                found.append((batch, count, able))
        if not found:
            self.skipped["no micro-batch keeps the global batch on its schedule"] += 1
        return tuple(found)

    def overlaps(self, ranks: Ranks) -> bool:
        """Tell whether experts' tokens are sent beside another micro-batch."""
        return self.scenario.ep_overlap and ranks.ep > 1

    def batches(self, samples: int) -> list[int]:
        """Return the micro-batches that are tried of the samples of a replica."""
        found = _doublings(samples)
        if "accumulate" in self.fixed:
            batch, left = divmod(samples, self.scenario.accumulate)
            found = [batch] if batch and not left else []
        if "batch" in self.fixed:
            asked = self.scenario.batch
            known = found if "accumulate" in self.fixed else _divisors(samples)
            return [asked] if asked is not None and asked in known else []
        return found

    def shardings(self, ranks: Ranks) -> tuple[Sharding, ...]:
        """Return the ways to share state that are tried."""
        if "method" in self.fixed:
            return (_AS_ASKED,)
        return _SHARDINGS[:1] if ranks.replicas * ranks.cp == 1 else _SHARDINGS

    def refusal(self, catalog: Catalog) -> RequestError:
        """Return why there is no division: what the scenario sets, or the global batch."""
        if self.skipped["the global batch does not divide by the replicas"]:
            replicas = {
                ranks.replicas for ranks in self.layouts() if self.global_batch % ranks.replicas
            }
            near = min(
                (max(1, round(self.global_batch / one)) * one for one in replicas),
                key=lambda one: (abs(one - self.global_batch), one),
            )
            return RequestError(
                "global_batch",
                f"{self.global_batch} samples do not divide among the replicas of any layout"
                f" ({', '.join(map(str, sorted(replicas)[:4]))}{', ...' * (len(replicas) > 4)});"
                f" the nearest that do are {near}.",
                value=self.global_batch,
                nearest=str(near),
            )
        try:
            resolve(self.scenario.model_copy(update={"virtual_stages": None}), catalog)
        except RequestError as error:
            return error
        field = "batch" if "batch" in self.fixed else "accumulate"
        value = getattr(self.scenario, field)
        return RequestError(
            field,
            f"{value} does not divide the samples that any replica has of {self.global_batch} an"
            " iteration; leave it out, and it is searched.",
            value=value,
        )


def _takes(schedule: PipelineSchedule, pp: int, count: int) -> bool:
    """Tell whether a schedule takes so many micro-batches."""
    name, chunks = schedule
    try:
        check_schedule(name, pp, chunks or (2 if name in FOLDED else 1), count)
    except RequestError:
        return False
    return True


def _doublings(most: int) -> list[int]:
    """Return 1, 2, 4, ... as far as they divide a number.

    Examples
    --------
    >>> _doublings(24)
    [1, 2, 4, 8]
    """
    found = [1]
    while most % (2 * found[-1]) == 0:
        found.append(2 * found[-1])
    return found


def tokens_of(setup: Setup) -> int | None:
    """Return the tokens of a sample; None for a model that takes none."""
    return defined_tokens(setup.profile)


def with_fields_set(scenario: Scenario, names: set[str]) -> Scenario:
    """Return a scenario that sets these fields only; the others keep their values."""
    return type(scenario).model_construct(names, **dict(scenario))


def with_gpus(scenario: Scenario, gpus: int) -> Scenario:
    """Return a scenario on another number of GPUs."""
    return scenario if scenario.gpus == gpus else scenario.model_copy(update={"gpus": gpus})
