"""Rounds of a divided model: those of its busiest stage, with its waits for the others.

All stages run the same iterations at once. Each waits for the others inside the pipeline
(`perfsim.schedule.pipeline`), and all wait for the slowest before the next iteration, as the norm
of all gradients or the check for overflow makes them. So the iteration takes as long as that of the
stage whose passes, exchanges and update end last. What it is made of is told by the stage that is
busiest in its passes: the others wait for it most of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.compute.execution import execution_of
from perfsim.methods.base import Send
from perfsim.schedule.beside_messages import lost_share
from perfsim.schedule.costs import Costs
from perfsim.schedule.run import mean_s, run
from perfsim.schedule.stage_passes import PassSends, StagePasses
from perfsim.simulate.task import COMPUTE
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.compute.stages import LayerMessage, Stage
    from perfsim.model_parallel import ModelSplit
    from perfsim.resolve import Setup
    from perfsim.schedule.costed_graph import CostedGraph
    from perfsim.schedule.pipeline import PipelineRun, StageTimes

__all__ = ["LaidOutPipeline", "busiest_stage", "laid_out_pipeline", "stage_costs"]

_BESIDE = "beside"
"""Stream of collectives of a divided model that run beside computation."""
_NEGLIGIBLE = 1e-9
_HOST_GOES_ON = ("tp", "cp")
"""Groups whose messages hold up the GPU alone: the host launches on meanwhile (PyTorch,
docs.pytorch.org/docs/stable/distributed.html: ``wait`` blocks the current CUDA stream, not the
CPU). Experts' hosts wait for the counts of tokens."""


class _Chunk(NamedTuple):
    """What a chunk of a stage sends in a micro-batch, by pass, and how long computation waits."""

    exposed: PassSends
    beside: PassSends
    waits_s: Mapping[str, float]

    def hidden(self) -> _Chunk:
        """Return the chunk where computation waits for the host longer than for messages."""
        sends = [
            (*(send._replace(stream=_BESIDE) for send in exposed), *beside)
            for exposed, beside in zip(self.exposed, self.beside, strict=True)
        ]
        return _Chunk(PassSends(), PassSends(*sends), dict.fromkeys(self.waits_s, 0.0))


class _Pace(NamedTuple):
    """How long the passes of a stage take, over what they take alone on a usual GPU.

    ``host`` and ``device`` are what its host and its GPU take of that, and ``slowed`` how many
    times as long all takes beside others of the node, or on a slower GPU.
    """

    host: float
    device: float
    slowed: float

    @property
    def load(self) -> float:
        """How many times as long the passes take."""
        return max(self.host, self.device) * self.slowed


@dataclass(frozen=True, eq=False)
class LaidOutPipeline:
    """The micro-batches of an iteration laid out over the stages.

    ``chunks`` are, by stage and chunk, what they send; ``paces`` by stage how long it computes.
    ``run_with`` lays the micro-batches out with messages between stages that take another time [s].
    """

    run: PipelineRun
    chunks: tuple[tuple[_Chunk, ...], ...]
    paces: tuple[_Pace, ...]
    send_s: float
    run_with: Callable[[float], PipelineRun]

    @cached_property
    def free(self) -> PipelineRun:
        """The same run with messages between stages that take no time."""
        return self.run_with(0.0) if self.send_s else self.run


def laid_out_pipeline(setup: Setup, split: ModelSplit) -> LaidOutPipeline:
    """Lay out the micro-batches of an iteration over the stages of a setup; kept with the split."""
    asked = setup.scenario
    loads = setup.node_load, setup.slowest_gpu, asked.straggler
    key = asked.accumulate, *loads, asked.algorithm, asked.protocol
    return split.answers.once(key, lambda: _answer(setup, split))


def _answer(setup: Setup, split: ModelSplit) -> LaidOutPipeline:
    from perfsim.schedule.pipeline import pipeline_run  # it brings numpy, for divided models alone

    costs = stage_costs(setup, split)
    parts = split.parts
    # Most stages send alike.
    known = {messages: _chunk(messages, costs) for messages in _distinct(parts.stages)}
    slowed = _slowed(setup, split)
    placed = [
        _paced(stage, [known[one] for one in stage.messages], setup.slowest_gpu, slow)
        for stage, slow in zip(parts.stages, slowed, strict=True)
    ]
    paces, chunks = tuple(pace for pace, _ in placed), tuple(tuple(of) for _, of in placed)
    times = [
        [
            _times(parts.stages[stage].chunks[chunk], chunks[stage][chunk], paces[stage].load)
            for stage in range(len(parts.stages))
        ]
        for chunk in range(split.chunks)
    ]
    send_s = latency_s = 0.0
    if len(parts.stages) > 1:
        cost = costs.collective(Send("send_recv", parts.boundary_bytes, group="pp"))
        send_s, latency_s = cost.seconds, cost.latency_s
    count = setup.scenario.accumulate
    blocks = split.schedule == "1f1b" and execution_of(setup.transferred.era).blocking_sends
    run_with = partial(
        pipeline_run, split.schedule, times, count, latency_s=latency_s, blocking=blocks
    )
    return LaidOutPipeline(run_with(send_s), chunks, paces, send_s, run_with)


def _distinct(stages: Iterable[Stage]) -> set[tuple[tuple[LayerMessage, int], ...]]:
    """Return what the chunks of stages send, each list of messages once."""
    return {messages for stage in stages for messages in stage.messages}


def _slowed(setup: Setup, split: ModelSplit) -> list[float]:
    """Return how many times as long each stage takes beside GPUs of its node, or on a slow one."""
    slow = [1.0] * len(split.parts.stages)
    if split.layout.pp > 1:
        slow = list(split.slow_stages(setup.stragglers))
    return [setup.node_load * factor for factor in slow]


def _paced(
    stage: Stage, chunks: Sequence[_Chunk], slowest: float, slowed: float
) -> tuple[_Pace, Sequence[_Chunk]]:
    """Return how long the passes of a stage take, and what they wait for.

    The host launches on while the GPU waits for messages. So the stage takes what its host needs,
    or what its GPU computes and waits for: what is longer.

    Parameters
    ----------
    slowest : how many times as long the slowest GPU computes as a usual one
    slowed : how many times as long all takes
    """
    profile = stage.profile
    host, device = profile.host_share, profile.device_share * slowest
    alone = _Pace(host, device, slowed)
    sends = [send for chunk in chunks for both in chunk.exposed for send in both]
    if host <= device or not all(send.group in _HOST_GOES_ON for send in sends):
        return alone, chunks
    waits_s = sum_in_order(seconds for chunk in chunks for seconds in chunk.waits_s.values())
    waits = waits_s / (slowed * (profile.forward_s + profile.backward_s))
    if device + waits < host:
        return alone._replace(device=device + waits), [chunk.hidden() for chunk in chunks]
    return alone._replace(host=min(device, max(0.0, host - waits))), chunks


def busiest_stage(
    setup: Setup, split: ModelSplit, schedule: Callable[..., list[CostedGraph]]
) -> list[CostedGraph]:
    """Return the rounds of the busiest stage, as long as those of the stage that ends last.

    Parameters
    ----------
    schedule : builds the rounds of a stage, given its ``profile``, ``stage`` and ``axes``
    """
    candidates = _candidates(setup, split)
    each = {stage: schedule(**of_stage(setup, split, stage)) for stage in candidates}
    if len(candidates) == 1:
        return each[candidates[0]]
    ends_s = {stage: _mean_s(rounds) for stage, rounds in each.items()}
    last = max(candidates, key=lambda stage: (ends_s[stage], -stage))
    busy_s = laid_out_pipeline(setup, split).run.busy_s
    busiest = max(candidates, key=lambda stage: busy_s[stage])
    if busy_s[busiest] <= busy_s[last] * (1 + _NEGLIGIBLE):
        return each[last]
    rounds, waits_s, found_s, grows = each[busiest], 0.0, ends_s[busiest], 1.0
    for _ in range(_TRIES):
        left_s = ends_s[last] - found_s
        if abs(left_s) <= ends_s[last] * _NEGLIGIBLE:
            break
        more_s, before_s = left_s / grows, found_s
        waits_s += more_s
        rounds = schedule(**of_stage(setup, split, busiest, waits_s))
        found_s = _mean_s(rounds)
        grows = (found_s - before_s) / more_s or 1.0
    return rounds


_TRIES = 5
"""Times that its wait is found anew where messages hide in it, or GPUs vary. No source: two do."""


def _mean_s(rounds: list[CostedGraph]) -> float:
    """Return the mean iteration of some rounds [s]."""
    return mean_s(rounds, [run(costed, brief=True) for costed in rounds])


def of_stage(setup: Setup, split: ModelSplit, stage: int, waits_s: float = 0.0) -> dict[str, Any]:
    """Return what a schedule takes to build the rounds of a stage (see `busiest_stage`).

    Parameters
    ----------
    waits_s : time in which it waits for a stage that ends later [s]
    """
    answer = laid_out_pipeline(setup, split)
    pace, profile = answer.paces[stage], split.parts.stages[stage].profile
    passes = _passes(split, answer, stage, pace.load)
    return {
        "profile_key": (*setup.profile_key, split.key, stage, pace),
        "profile": profile.with_shares(pace.host, pace.device).slowed(pace.slowed),
        "stage": passes._replace(idle_s=passes.idle_s + waits_s),
        "axes": split.axes,
    }


def _candidates(setup: Setup, split: ModelSplit) -> list[int]:
    """Return the stages that differ: of those that are alike, the one whose passes end last."""
    answer = laid_out_pipeline(setup, split)
    ends_s = answer.run.ends_s
    latest: dict[Hashable, int] = {}
    for number, stage in enumerate(split.parts.stages):
        alike = stage.content, answer.paces[number]
        if ends_s[number] >= ends_s[latest.setdefault(alike, number)]:
            latest[alike] = number
    return sorted(latest.values())


def stage_costs(setup: Setup, split: ModelSplit) -> Costs:
    """Return what prices the exchanges of a rank of a divided model."""
    scenario = setup.scenario
    return Costs(
        setup.device,
        split.data,
        scenario.algorithm,
        scenario.protocol,
        axes=split.axes,
        stages=split.layout.pp,
    )


def _chunk(messages: Sequence[tuple[LayerMessage, int]], costs: Costs) -> _Chunk:
    """Divide what a chunk sends into what computation waits for and what it hides."""
    exposed: dict[str, list[Send]] = {"forward": [], "backward": []}
    beside: dict[str, list[Send]] = {"forward": [], "backward": []}
    waits_s = {"forward": 0.0, "backward": 0.0}
    for message, count in messages:
        send = Send(message.collective, message.size_bytes, group=message.axis)  # type: ignore[arg-type]
        cost = costs.collective(send)
        if cost.seconds <= 0:
            continue
        seconds = max(cost.seconds, message.least_s)
        slower = seconds / cost.seconds  # kernels that do not fill the links send for longer
        left_s = max(seconds * message.part, seconds - message.behind_s)
        lost = lost_share(costs.device, costs.axes[message.axis], cost.sent_bytes / seconds)
        left_s += (seconds - left_s) * lost
        share = left_s / seconds
        if share > _NEGLIGIBLE:
            one = send._replace(repeats=count * share, stream=COMPUTE)
            exposed[message.phase] += _for_longer(one, slower)
            waits_s[message.phase] += count * left_s
        if share < 1.0 - _NEGLIGIBLE:
            one = send._replace(repeats=count * (1.0 - share), stream=_BESIDE)
            beside[message.phase] += _for_longer(one, slower)
    both = [PassSends(tuple(of["forward"]), tuple(of["backward"])) for of in (exposed, beside)]
    return _Chunk(both[0], both[1], waits_s)


def _for_longer(send: Send, times: float) -> list[Send]:
    """Return a send that takes so many times as long; no more is sent for that."""
    if times <= 1.0 + _NEGLIGIBLE:
        return [send]
    return [send, send._replace(repeats=send.repeats * (times - 1.0), counted=False)]


def _times(chunk: tuple[float, float, float], sent: _Chunk, load: float) -> StageTimes:
    """Return how long a chunk takes for a micro-batch, waits included."""
    from perfsim.schedule.pipeline import StageTimes

    forward_s, backward_s, weights_s = (load * seconds for seconds in chunk)
    return StageTimes(
        forward_s + sent.waits_s["forward"], backward_s + sent.waits_s["backward"], weights_s
    )


def _passes(split: ModelSplit, answer: LaidOutPipeline, stage: int, load: float) -> StagePasses:
    """Return what a rank of a stage sends in its passes, and how long it waits for others.

    ``load`` is how many times as long it computes as on a GPU of its own.
    """
    own = split.parts.stages[stage]
    chunks = answer.chunks[stage]
    exposed = _all_of(chunk.exposed for chunk in chunks)
    beside = _all_of(chunk.beside for chunk in chunks)
    idle_s, free_s = float(answer.run.idle_s[stage]), float(answer.free.idle_s[stage])
    count = 0.0
    if idle_s > free_s and answer.send_s:
        count = (idle_s - free_s) / answer.send_s
    between, hidden = _between_stages(split, stage, count, answer.run.micro_batches)
    beside = _all_of([beside, hidden])
    # While it waits for other stages, these compute and communicate in the shares of a pass.
    computing_s = load * sum_in_order(sum_in_order(chunk[:2]) for chunk in own.chunks)
    waiting_s = sum_in_order(seconds for chunk in chunks for seconds in chunk.waits_s.values())
    passes = free_s / (computing_s + waiting_s) if computing_s + waiting_s else 0.0
    idle_sends = tuple(
        send._replace(repeats=send.repeats * passes, counted=False)
        for send in (*exposed.forward, *exposed.backward)
    )
    return StagePasses(
        exposed,
        beside,
        passes * computing_s,
        (*idle_sends, *between),
        tuple(_last(split, stage)),
        own.experts if "experts" in split.axes else frozenset(),
        split.layout.pp,
        own.places,
    )


def _between_stages(
    split: ModelSplit, stage: int, waited_for: float, micro_batches: int
) -> tuple[list[Send], PassSends]:
    """Return messages between stages: those for which a stage waits, and its own that are hidden.

    Parameters
    ----------
    waited_for : how many it waits for in an iteration, its own or those of others on their way
    """
    forward, backward = split.parts.sends[stage]
    own = micro_batches * (forward + backward)
    seen = min(waited_for, own)
    send = Send("send_recv", split.parts.boundary_bytes, group="pp", stream=COMPUTE)
    exposed = [
        send._replace(repeats=repeats, counted=counted)
        for repeats, counted in ((seen, True), (waited_for - seen, False))
        if repeats > _NEGLIGIBLE
    ]
    share = 1.0 - seen / own if own else 0.0
    hidden = [
        (send._replace(repeats=share * repeats, stream=f"{_BESIDE}, {way}"),)
        if share * repeats > _NEGLIGIBLE
        else ()
        for way, repeats in (("to the next stage", forward), ("to the stage before", backward))
    ]
    return exposed, PassSends(*hidden)


def _last(split: ModelSplit, stage: int) -> Iterator[Send]:
    """Yield what a stage sends once an iteration before its update.

    Where embedding and output layer are one matrix on two stages, both gradients are added up. So
    are those of what tensor-parallel ranks hold alike, where these have other tokens (NVIDIA/
    Megatron-LM@d98e8a64 core/distributed/finalize_model_grads.py).
    """
    if split.whole_bytes[stage]:
        yield Send("all_reduce", split.whole_bytes[stage], group="tp", stream=COMPUTE)
    if split.tied_bytes and stage in (0, len(split.parts.stages) - 1):
        yield Send("all_reduce", split.tied_bytes, group="ends", stream=COMPUTE)


def _all_of(chunks: Iterable[PassSends]) -> PassSends:
    """Return what all chunks of a stage send."""
    each = list(chunks)
    return PassSends(
        tuple(_joined(send for one in each for send in one.forward)),
        tuple(_joined(send for one in each for send in one.backward)),
    )


def _joined(sends: Iterator[Send]) -> Iterator[Send]:
    """Yield sends that are alike once, with the sum of their repeats."""
    found: dict[Send, float] = {}
    for send in sends:
        key = send._replace(repeats=1.0)
        found[key] = found.get(key, 0.0) + send.repeats
    for key, repeats in found.items():
        yield key._replace(repeats=repeats)
