"""What a training method is: checked options, and jobs made of kernels and collectives.

An iteration of a method is a list of jobs. A job is a list of stages, one after the other: kernels
(`Compute`) or a collective (`Send`). A method knows gradients, buckets, kernels and collectives by
their interfaces only, and of the job it runs in what `MethodContext` says. Its file in
``perfsim/methods`` is all there is to it: the file's name is the method's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Gradient, Profile
from perfsim.fusion.buckets import Bucket
from perfsim.simulate.task import COMPUTE, Shared

__all__ = [
    "FAMILIES",
    "LOCAL_ITERATION",
    "SET",
    "SGD_LAUNCHES",
    "Compute",
    "Group",
    "Job",
    "JobStage",
    "Method",
    "MethodContext",
    "Moment",
    "OnlyWith",
    "OptionError",
    "PassPoint",
    "Phase",
    "Round",
    "Send",
    "Shared",
    "choices_read",
    "truth_for_number",
]


Moment = Literal["ready", "backward", "update"]
"""When a stage may start at the earliest: with its input, after backward, or after the update."""

Phase = Literal["forward", "backward", "update", "next"]
"""A pass of the iteration, the end of its update, or the forward pass of the next iteration."""

Group = Literal["all", "node", "leaders", "across"] | int | tuple[int, int]
"""Who takes part in a collective: all ranks; each node's ranks, all nodes at once ("node"); one
rank of each node ("leaders"); the ranks with the same local rank on every node, all such groups at
once ("across"); a number of neighbouring ranks, all such groups at once; or (count, stride): so
many ranks that are so far apart, all such groups at once."""

LOCAL_ITERATION = -1
"""Number of an iteration in which nothing is exchanged."""


class Compute(NamedTuple):
    """Kernels that a method runs, one after the other.

    Parameters
    ----------
    kernels : what is run
    kind : what the time is counted as
    stream : "compute" (contends with the backward pass) or a stream of the method's own
        ("rank 3": the compute stream of another rank, which this one may wait for)
    earliest : "ready" (in the hook, as soon as what it needs is there), "backward" (once the
        backward pass is over) or "update" (after the optimizer's step)
    blocks : the host waits for it at this point, so that what follows in the backward pass is
        issued behind it; else kernels on "compute" that need a collective's result are issued
        after the backward pass
    """

    kernels: tuple[Kernel, ...]
    kind: Literal["compress", "decompress", "second_order"]
    stream: str = "compute"
    earliest: Moment = "ready"
    blocks: bool = False


class Send(NamedTuple):
    """One collective on a message.

    Parameters
    ----------
    collective : all_reduce, all_gather, ...
    size_bytes : the full size: of the buffer for an all-reduce, of all ranks' blocks together for
        an all-gather
    earliest : as for ``Compute``
    awaited : whether the next stage waits for its result; what waits for the job always does
    stream : sends on one stream go one after the other
    algorithm : "auto" is what the library takes, or what the user asked for in all-reduces
    group : who takes part; ``size_bytes`` is that of one group
    priority : which message goes first, where the method's ``order`` is "priority"
    credit_bytes : there, messages are handed to the stream, the most urgent first, while those
        under way have fewer bytes; they cannot be overtaken any more. 0: one at a time
    servers : machines without GPUs that serve a push or pull beside those on the workers
    counted : whether this rank sends it; else another rank does, and this one only waits
    shares : the link on which sends on other streams slow it down
    distances : where a rank exchanges with some others only: how far away, on both sides, they
        are; it costs what ``group`` says
    by_turns : whether each iteration uses one of these distances, in turn
    between : whether distances count ranks, or nodes (whose first ranks exchange)
    """

    collective: str
    size_bytes: float
    earliest: Moment = "ready"
    awaited: bool = True
    stream: str = "communication"
    algorithm: str = "auto"
    group: Group = "all"
    priority: int = 0
    servers: int = 0
    counted: bool = True
    shares: Shared | None = None
    credit_bytes: float = 0.0
    distances: tuple[int, ...] = ()
    by_turns: bool = False
    between: Literal["ranks", "nodes"] = "ranks"


JobStage = Compute | Send


class PassPoint(NamedTuple):
    """A point in an iteration: ``seconds`` of computation into one of its passes.

    After the update there is one point, in this iteration or ``later`` iterations on.
    """

    phase: Phase
    seconds: float = 0.0
    later: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """Stages one after the other: when they may begin, and what waits for the last of them.

    Parameters
    ----------
    name : what a timeline shows
    stages : each waits for the one before it
    begins : where in the forward or backward pass the first stage may start
    holds : where computation waits for its end: in this iteration's passes, after the update (of
        this iteration or a later one), or ("next") in the next forward pass; None: the update waits
    needs : names of jobs of the same iteration that must end before its first stage; where one
        of them is not issued yet when this one may begin, this one goes after the backward pass
    updates : share of the optimizer's step that runs on this job's result, where ``holds`` is in
        the next forward pass; the rest runs at the end of the iteration
    after : kernels that computation runs once it has waited for the job, at the point where it
        waits: before the job's part of the update, or the update that waits

    Raises
    ------
    ValueError
        If the job has no stage or begins in no pass, ``updates`` belongs to no next forward pass,
        ``later`` is not after an update, or ``after`` is not run by computation there.
    """

    name: str
    stages: tuple[JobStage, ...]
    begins: PassPoint
    holds: PassPoint | None = None
    needs: tuple[str, ...] = ()
    updates: float = 0.0
    after: tuple[Compute, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would silently have no effect."""
        phase = self.holds.phase if self.holds else None
        if not self.stages:
            raise ValueError(f"job {self.name}: it has no stage to wait for")
        if self.begins.phase not in ("forward", "backward") or self.begins.later:
            raise ValueError(f"job {self.name}: it begins in a pass of its own iteration")
        if self.updates and phase != "next":
            raise ValueError(f"job {self.name}: only the next forward pass runs a part of update")
        if self.holds and self.holds.later and phase != "update":
            raise ValueError(f"job {self.name}: only a place after the update can be later")
        if self.after and any(
            one.stream != COMPUTE or one.earliest != "ready" for one in self.after
        ):
            raise ValueError(f"job {self.name}: computation runs 'after' where it waits")

    def in_turn(self) -> Job:
        """Return the job as it runs without overlap: it begins where computation waits for it."""
        if self.holds is None:
            return self
        if self.holds.phase in ("forward", "backward"):
            return replace(self, begins=self.holds)
        return replace(self, holds=PassPoint(self.holds.phase))


@dataclass(frozen=True, slots=True)
class Round:
    """Iterations that follow each other, and how many times they do so in the method's period.

    A method's period may hold several rounds (local iterations and one that exchanges, say). Each
    is run over and over by itself and their means are weighted, which is exact as long as nothing
    is under way from one round to the next: what overlaps iterations belongs in one round.
    """

    iterations: tuple[int, ...] = (0,)
    count: float = 1.0


def _free(collective: str, size_bytes: float, group: Group = "all", /) -> float:
    return 0.0


def _instant(kernel: Kernel, /) -> float:
    return 0.0


@dataclass(frozen=True)
class MethodContext:
    """What a method may know of the job: its ranks and nodes, the model, and what things cost.

    Parameters
    ----------
    ranks : P
    nodes : N; 0 for as many as full ones hold the ranks
    gpus_per_node : g, GPUs on the fullest node
    collective_s : (collective, bytes, group) to seconds, as for stages that name no algorithm
    kernel_s : kernel to seconds
    profile : the model as it runs here; None where no method asks for it

    Examples
    --------
    >>> MethodContext(8).nodes
    8
    """

    ranks: int
    nodes: int = 0
    gpus_per_node: int = 1
    collective_s: Callable[[str, float, Group], float] = _free
    kernel_s: Callable[[Kernel], float] = _instant
    profile: Profile | None = None

    def __post_init__(self) -> None:
        """Count the nodes where they were not given."""
        if not self.nodes:
            object.__setattr__(self, "nodes", -(-self.ranks // self.gpus_per_node))


class OptionError(ValueError):
    """An option of a method that is refused: its name, its value, and why.

    ``why`` follows the value in the sentence: "has no effect with compress=none; ...".
    """

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option}={value} {why}")
        self.option, self.value, self.why = option, value, why


class _Set:
    """A mark for any value but the option's default."""


SET = _Set()
"""``OnlyWith(warmup_epochs=SET)``: where warmup_epochs is not its default."""


class OnlyWith:
    """A mark on an option that has an effect only where others have certain values.

    Each keyword is another option of the same method: a value, a tuple of values, or ``SET``.
    All of them must hold. Written beside the type:
    ``bits: Annotated[int, OnlyWith(compress="qsgd")] = Field(8, ...)``.

    Examples
    --------
    >>> OnlyWith(compress="qsgd").words()
    'compress=qsgd'
    >>> OnlyWith(codec=("a", "b"), warmup_epochs=SET, schedule="").words()
    'codec=a or b, warmup_epochs set, schedule not set'
    """

    def __init__(self, **allowed: object) -> None:
        self.allowed: Mapping[str, object] = allowed

    def unmet(self, options: BaseModel) -> str:
        """Return which option takes the effect away and what to set, to end a sentence, or ""."""
        for name, allowed in self.allowed.items():
            value = getattr(options, name)
            if allowed is SET:
                met = value != type(options).model_fields[name].default
            else:
                met = value in _values(allowed)
            if not met:
                remedy = f"leave {name} out" if allowed == "" else f"set {_words(name, allowed)}"
                return f"with {name}={value}; {remedy.removesuffix(' set')}"
        return ""

    def words(self) -> str:
        """Return the values that the other options need."""
        return ", ".join(_words(name, allowed) for name, allowed in self.allowed.items())


def _values(allowed: object) -> tuple[object, ...]:
    return allowed if isinstance(allowed, tuple) else (allowed,)


def _words(name: str, allowed: object) -> str:
    if allowed is SET:
        return f"{name} set"
    if allowed == "":
        return f"{name} not set"
    return f"{name}={' or '.join(map(str, _values(allowed)))}"


def truth_for_number(model: type[BaseModel], values: object) -> str:
    """Return the first field that is true or false where it should be a number, or "".

    Pydantic would take true as 1.
    """
    if not isinstance(values, Mapping):
        return ""
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or not isinstance(value, bool):
            continue
        kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
        if bool not in kinds and (int in kinds or float in kinds):
            return str(name)
    return ""


def choices_read(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Return values with texts as whole numbers where the choices are such: "2" of 2 or 4."""
    read = dict(values)
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is not None and isinstance(value, str) and value.isascii() and value.isdecimal():
            choices = [choice for choice in get_args(field.annotation) if isinstance(choice, int)]
            read[name] = next((choice for choice in choices if str(choice) == value), value)
    return read


SGD_LAUNCHES = 5
"""Kernels per tensor in a step of SGD with momentum and weight decay, parameter by parameter."""

FAMILIES = (
    "dense",
    "quantisation",
    "sparsification",
    "low rank",
    "fewer exchanges",
    "second order",
    "beyond one cluster",
)
"""The families of methods, in the order in which they are listed."""


class Method(BaseModel):
    """A published training scheme: its options are the checked fields of the subclass.

    Class facts: ``summary`` (one line), ``citation``, ``family`` (one of ``FAMILIES``), ``wire``
    (see below), ``fusion`` (policy used when none is asked for), ``lossy`` (whether it changes
    what is learnt, so that time alone cannot rank it), ``needs`` (what it takes besides GPUs and a
    network, "" for nothing), ``decides`` (whether it acts on what things cost, so that a
    faster network need not make it faster), ``order`` ("priority": messages overtake each other
    by their priority), ``first_needed_first`` (what is issued after the backward pass goes in the
    order of the next forward pass), ``waits`` (the host waits for what is exchanged before it
    launches the update, as in code built on Horovod's optimizer).

    ``wire`` gives the bytes that a rank sends an iteration for one matrix, as an expression of P
    (ranks, on equal hops), n = rows * columns, k (values kept of n), r (rank, no more than either
    side), the method's options by name, and log2, ceil, min and max.

    An option that has an effect only beside certain values of others is marked with ``OnlyWith``;
    given without these it is refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    summary: ClassVar[str]
    citation: ClassVar[str]
    family: ClassVar[str]
    wire: ClassVar[str]
    fusion: ClassVar[str] = "size"
    lossy: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    decides: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "issue"
    first_needed_first: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        wrong = truth_for_number(cls, values)
        if wrong:
            given = str(values[wrong]).lower()
            raise OptionError(wrong, given, "is not allowed: a number is needed")
        return choices_read(cls, values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _given_options_have_an_effect(self) -> Self:
        for option in type(self).model_fields:
            for mark in self.only_with(option):
                unmet = mark.unmet(self)
                if unmet and option in self.model_fields_set:
                    why = f"has no effect {unmet}, or leave {option} out"
                    raise OptionError(option, getattr(self, option), why)
        return self

    @classmethod
    def only_with(cls, option: str) -> list[OnlyWith]:
        """Return the marks that say which other options an option needs to have an effect."""
        return [mark for mark in cls.model_fields[option].metadata if isinstance(mark, OnlyWith)]

    def in_effect(self) -> dict[str, Any]:
        """Return the options that have an effect, with their values."""
        return {
            option: value
            for option, value in self.model_dump().items()
            if not any(mark.unmet(self) for mark in self.only_with(option))
        }

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return what happens to one bucket, in order; each stage waits for the one before it."""
        raise NotImplementedError

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the jobs of an iteration in issue order: one a bucket, when it is ready."""
        return [
            Job(f"{number}", tuple(stages), PassPoint("backward", bucket.ready_s))
            for number, bucket in enumerate(buckets)
            if (stages := self.stages(bucket, world, iteration))
        ]

    def rounds(self) -> list[Round]:
        """Return the iterations of the method's period."""
        return [Round()]

    def delay(self) -> int:
        """Return how many updates may pass before an exchange's result is needed."""
        return 0

    def refusal(self, world: MethodContext) -> str:
        """Return why it cannot run on these ranks or this model, or ""."""
        return ""

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank puts into the bucket's message for one gradient."""
        return gradient.size_bytes

    def negotiation_s(self, tensors: int, world: MethodContext) -> float:
        """Return how long the ranks negotiate over some tensors before these may be sent [s]."""
        return 0.0

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the extra memory that a rank keeps from one iteration to the next."""
        return 0.0

    def memory_in(self, world: MethodContext) -> float:
        """Return the extra memory where it also depends on nodes or layers."""
        gradients = world.profile.gradients if world.profile else ()
        return self.memory_bytes(gradients, world.ranks)

    def kept_share(self, ranks: int) -> dict[str, float]:
        """Return the share of parameters, gradients and optimizer state that a rank keeps.

        The update runs on the optimizer's share.
        """
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": 1.0}

    def late_launches(self) -> int:
        """Return the kernels per tensor of an update that the host issues after it has waited.

        0 where the host issues the update ahead of the GPU, as with DDP.
        """
        return SGD_LAUNCHES if self.waits else 0

    def default_fusion(self) -> str:
        """Return the fusion policy used when none is asked for."""
        return self.fusion
