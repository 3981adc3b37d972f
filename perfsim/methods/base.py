"""What a training method is: checked options, and jobs made of kernels and collectives.

An iteration of a method is a list of jobs. A job is a list of stages, one after the other: kernels
(`Compute`) or a collective (`Send`). A method uses gradients, buckets, kernels and collectives by
their interfaces only. `MethodContext` holds all that it may know of its training job. One file in
``perfsim/methods`` defines a method completely; the file's name is the method's name.
"""

# No postponed annotations, here as in the methods' files: pydantic would evaluate each of them, and
# those of Method anew for each of its subclasses.
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from perfsim.compute.host_offload import HostUpdate
from perfsim.compute.kernel import Kernel, Kernels
from perfsim.compute.profile import OPTIMIZER_LAUNCHES, Gradient, Profile
from perfsim.compute.software import NEWEST
from perfsim.data.files import as_written
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.methods.building.code_bases import DDP, CodeBase
from perfsim.simulate.task import COMPUTE, Shared
from perfsim.units import parse_fraction

__all__ = [
    "COMPRESSING",
    "FAMILIES",
    "FIDELITY_OPTIONS",
    "LOCAL_ITERATION",
    "ONE_GROUP",
    "SET",
    "Compute",
    "Group",
    "HeldState",
    "Job",
    "JobRepeats",
    "JobStage",
    "Method",
    "MethodContext",
    "MethodState",
    "Moment",
    "OnlyWith",
    "OptionError",
    "ParallelAxis",
    "PassPoint",
    "Phase",
    "Round",
    "Send",
    "Shared",
    "choices_read",
    "shares_read",
    "takes_text",
    "truth_for_number",
]


Moment = Literal["ready", "backward", "update"]
"""When a stage may start at the earliest: with its input, after backward, or after the update."""

Phase = Literal["forward", "backward", "update", "next"]
"""A pass of the iteration, the end of its update, or the forward pass of the next iteration."""

JobRepeats = Literal["exchange", "every", "first", "once", "later"]
"""Micro-batches that a job runs in: those that exchange gradients, every one, or the first.

Where each exchanges, all three are every one. "once" is the first alone even there, and "later" all
others, as of weights that are nearer once they have been gathered.
"""

ParallelAxis = Literal["tp", "cp", "ep", "pp", "experts", "ends"]
"""A group beside that of the data-parallel ranks: tensor, context, expert parallelism, two
neighbouring stages of a pipeline, ranks with the same experts, the first and the last stage."""

Group = Literal["all", "node", "leaders", "across"] | ParallelAxis | int | tuple[int, int]
"""Who takes part in a collective.

"all": all ranks. "node": each node's ranks, all nodes at once. "leaders": one rank of each node.
"across": the ranks with the same local rank on every node, all such groups at once. A number: so
many neighbouring ranks, all such groups at once. (count, stride): ``count`` ranks that are
``stride`` apart, all such groups at once. All of these are among the ranks that hold the same
weights; a `ParallelAxis` is another group.
"""

FIDELITY_OPTIONS = ("density", "rank", "values", "bits", "ratio")
"""Options that say how much of a gradient is kept."""

ONE_GROUP = "all ranks are one group, inside a node and across nodes"
"""What a method says of both levels (`Method.levels`) that has no collective of its own for one."""

LOCAL_ITERATION = -1
"""Number of an iteration in which nothing is exchanged."""


class Compute(NamedTuple):
    """Kernels that a method runs, one after the other.

    Parameters
    ----------
    kernels : the kernels to run
    kind : the kind of time that they count as
    stream : "compute" (contends with the backward pass) or a stream of the method's own
        ("rank 3": the compute stream of another rank, which this one may wait for)
    earliest : "ready" (in the hook, as soon as its input is there), "backward" (once the
        backward pass is over) or "update" (after the optimizer's step)
    blocks : whether the host waits for it at this point, so that the rest of the backward pass is
        issued after it; else kernels on "compute" that need a collective's result are issued
        after the backward pass
    """

    kernels: Kernels
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
    awaited : whether the next stage waits for its result; whatever waits for the job always does
    stream : sends on one stream go one after the other
    algorithm : "auto" is the library's choice, or the user's choice for all-reduces
    group : who takes part; ``size_bytes`` is the size of one group
    priority : which message goes first, where the method's ``order`` is "priority"
    credit_bytes : with that order, messages are handed to the stream, the most urgent first, while
        those under way have fewer bytes; after that nothing overtakes them. 0: one at a time
    servers : machines without GPUs that serve a push or pull beside the servers on the workers
    counted : whether this rank sends it; else another rank does, and this one only waits
    shares : the link on which sends on other streams slow it down
    distances : where a rank exchanges with some others only: how far away they are, on both
        sides; ``group`` gives the cost
    by_turns : whether each iteration uses one of these distances, in turn
    between : whether distances count ranks, or nodes (whose first ranks exchange)
    repeats : how many of them go one after the other
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
    repeats: float = 1.0

    @property
    def by_asked_algorithm(self) -> bool:
        """Whether it is sent by the algorithm that the user asks for of all-reduces."""
        plain = self.algorithm == "auto" and self.group == "all"
        return plain and self.collective == "all_reduce"


JobStage = Compute | Send


class PassPoint(NamedTuple):
    """A point in an iteration: ``seconds`` of computation into one of its passes.

    The update has one point, at its end, in this iteration or ``later`` iterations on. Where a job
    begins ``behind`` what computation waits for at this point, it begins after these waits and the
    kernels that follow them; else, or where it is itself waited for there, before them.
    """

    phase: Phase
    seconds: float = 0.0
    later: int = 0
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """Stages one after the other, when they may begin, and which computation waits for them.

    Parameters
    ----------
    name : the name that a timeline shows
    stages : each waits for the one before it
    begins : where in the forward or backward pass the first stage may start
    holds : where computation waits for its end: in this iteration's passes, after the update (of
        this iteration or a later one), or ("next") in the next forward pass; None: the update waits
    needs : names of jobs of the same iteration that must end before its first stage; where one
        of them is not issued yet when this one may begin, this one goes after the backward pass
    updates : share of the optimizer's step that runs on this job's result, where ``holds`` is in
        the next forward pass; the rest runs at the end of the iteration
    after : kernels that run on the compute stream where it waits for the job, after the wait:
        before the job's part of the update, or before the update that waits
    repeats : the micro-batches that it runs in (see ``JobRepeats``)

    Raises
    ------
    ValueError
        If the job has no stage or does not begin in a pass, ``updates`` is given without a wait in
        the next forward pass, ``later`` is not after an update, or ``after`` does not run on the
        compute stream at once.
    """

    name: str
    stages: tuple[JobStage, ...]
    begins: PassPoint
    holds: PassPoint | None = None
    needs: tuple[str, ...] = ()
    updates: float = 0.0
    after: tuple[Compute, ...] = ()
    repeats: JobRepeats = "exchange"

    def __post_init__(self) -> None:
        """Refuse settings that would silently have no effect."""
        phase = self.holds.phase if self.holds else None
        if not self.stages:
            raise ValueError(f"job {self.name}: it has no stage")
        if self.begins.phase not in ("forward", "backward") or self.begins.later:
            raise ValueError(f"job {self.name}: it must begin in a pass of its own iteration")
        if self.updates and phase != "next":
            raise ValueError(f"job {self.name}: 'updates' needs a wait in the next forward pass")
        if self.holds and self.holds.later and phase != "update":
            raise ValueError(f"job {self.name}: only a point after the update can be later")
        if self.repeats != "exchange" and phase not in ("forward", "backward"):
            raise ValueError(f"job {self.name}: 'repeats' needs a wait in its own micro-batch")
        if self.after and any(
            one.stream != COMPUTE or one.earliest != "ready" for one in self.after
        ):
            raise ValueError(f"job {self.name}: 'after' must run at once on the compute stream")

    def in_turn(self) -> Self:
        """Return the job without overlap: it begins where computation waits for it."""
        if self.holds is None:
            return self
        if self.holds.phase in ("forward", "backward"):
            return replace(self, begins=self.holds)
        return replace(self, holds=PassPoint(self.holds.phase))


@dataclass(frozen=True, slots=True)
class Round:
    """Consecutive iterations, and how many times they occur in the method's period.

    A method's period may hold several rounds, such as local iterations and one that exchanges. Each
    round is simulated repeatedly by itself, and the rounds' means are weighted. This is exact as
    long as nothing is under way from one round to the next: iterations that overlap belong in one
    round.
    """

    iterations: tuple[int, ...] = (0,)
    count: float = 1.0


def _free(collective: str, size_bytes: float, group: Group = "all", /) -> float:
    return 0.0


def _instant(kernel: Kernel, /) -> float:
    return 0.0


@dataclass(frozen=True)
class MethodContext:
    """What a method may know of the job: its ranks and nodes, the model, and costs.

    Parameters
    ----------
    ranks : P
    nodes : N; 0: as many full nodes as the ranks need
    gpus_per_node : g, GPUs on the fullest node
    collective_s : prices a collective [s] by (collective, bytes, group), as for stages that name
        no algorithm
    kernel_s : prices a kernel [s]
    profile : the model's profile on this device; None where no method needs it
    software : the software era that runs the method's kernels
    stages : of a pipeline that the ranks belong to; 1 without one
    gpus_of_host : GPUs on the fullest node where the nodes here are sites of several; else 0
    bucket_bytes : the bucket size asked for, which counts in a method's memory; None: the default

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
    software: str = NEWEST
    stages: int = 1
    gpus_of_host: int = 0
    bucket_bytes: float | None = None

    def __post_init__(self) -> None:
        """Compute the number of nodes where it is not given."""
        if not self.nodes:
            object.__setattr__(self, "nodes", -(-self.ranks // self.gpus_per_node))

    @property
    def node_word(self) -> str:
        """What a node is: a site where the nodes here are sites."""
        return "site" if self.gpus_of_host else "node"

    def given_profile(self) -> Profile:
        """Return the model's profile, for methods that need it.

        Raises
        ------
        ValueError
            If the context has no profile.
        """
        if self.profile is None:
            raise ValueError("this MethodContext has no profile")
        return self.profile


class OptionError(ValueError):
    """A refused option of a method: its name, its value, and why.

    ``why`` follows the value in the sentence: "has no effect with compress=none; ...".
    """

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option}={as_written(value)} {why}")
        self.option, self.value, self.why = option, value, why


class _Set:
    """A mark for any value except the option's default."""


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
        """Return the end of a sentence: which option removes the effect and what to set, or ""."""
        for name, allowed in self.allowed.items():
            value = getattr(options, name)
            if allowed is SET:
                met = value != type(options).model_fields[name].default
            else:
                met = value in _values(allowed)
            if not met:
                remedy = f"leave {name} out" if allowed == "" else f"set {_words(name, allowed)}"
                return f"with {name}={as_written(value)}; {remedy.removesuffix(' set')}"
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
    return f"{name}={' or '.join(map(as_written, _values(allowed)))}"


def truth_for_number(model: type[BaseModel], values: object) -> str:
    """Return the first field that has a truth value where a number is needed, or "".

    Pydantic would read true as 1.
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
    """Return the values, each that is written as one of its option's choices as that choice.

    "2" is a number where the choices are 2 or 4; 0.3 is a text where they are "0.3" or "0.4".
    """
    read = dict(values)
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is not None and isinstance(value, str | int | float):
            choices = [one for one in get_args(field.annotation) if isinstance(one, str | int)]
            read[name] = next((choice for choice in choices if str(choice) == str(value)), value)
    return read


def shares_read(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Return the values, each share that is written in per cent (a text such as "5%") as a number.

    A share is a number that is at most 1.
    """
    read = dict(values)
    for name, value in values.items():
        if isinstance(value, str) and value.rstrip().endswith("%") and _is_share(model, name):
            below, amount = value.lstrip().startswith("-"), value.lstrip().removeprefix("-")
            with suppress(RequestError):  # what is no number is refused as any other text
                read[name] = -parse_fraction(amount) if below else parse_fraction(amount)
    return read


def _is_share(model: type[BaseModel], option: str) -> bool:
    """Tell whether an option is a number of at most 1."""
    field = model.model_fields.get(option)
    if field is None or field.annotation is not float:
        return False
    limits = [getattr(mark, name, None) for mark in field.metadata for name in ("le", "lt")]
    return any(limit is not None and limit <= 1 for limit in limits)


def takes_text(model: type[BaseModel], option: str, value: object) -> bool:
    """Tell whether an option takes a text as it is: any text, or this one of its choices."""
    field = model.model_fields.get(option)
    if field is None:
        return True
    kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    return str in kinds or value in kinds


class MethodState(NamedTuple):
    """How wide a method keeps parameters and gradients, beside the shares that it keeps.

    Parameters
    ----------
    gradient_bytes : bytes of a kept gradient where the parameters have 16 bits; else it has 4
    gathered : share of the parameters that is kept gathered from pass to pass, as wide as in use
    whole_bytes : bytes a parameter of gradients that are kept whole from one micro-batch to another
    buffered : whether gradients are kept in a buffer that stays from one iteration to the next
    buckets : whether gradients are copied into buckets that stay beside them, where they are as
        wide as the parameters
    """

    gradient_bytes: float = 4.0
    gathered: float = 0.0
    whole_bytes: float = 0.0
    buffered: bool = False
    buckets: bool = False


class HeldState(NamedTuple):
    """Something that ranks keep from one exchange to the next.

    Parameters
    ----------
    what : old parameters, outer momentum, ...
    gpu_bytes, host_bytes : of one rank, on its GPU and in the memory of its host
    ranks : ranks of a node that keep it
    """

    what: str
    gpu_bytes: float = 0.0
    host_bytes: float = 0.0
    ranks: int = 1


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

COMPRESSING = ("quantisation", "sparsification", "low rank")
"""Families of methods that compress."""


class Method(BaseModel):
    """A published training scheme: its options are the checked fields of the subclass.

    A subclass sets these class variables:

    - ``summary``: one line; ``citation``: paper and code; ``family``: one of ``FAMILIES``
    - ``wire``: the bytes sent, see below
    - ``levels``: what is exchanged inside a node and what across nodes; where a node may be a site,
      it says so
    - ``fusion``: the policy used when the user chooses none
    - ``lossy``: whether it changes what is learnt, so that time alone cannot rank it
    - ``over_text``: defaults of options that its paper takes for models over text instead
    - ``needs``: its requirements besides GPUs and a network, "" for none
    - ``decides``: whether it acts on costs, so that a faster network need not make it faster
    - ``order``: "priority" where messages overtake each other by their priority
    - ``first_needed_first``: whether jobs issued after the backward pass go in the order of the
      next forward pass
    - ``works_alone``: whether its kernels run on one GPU too; else it is S-SGD there
    - ``holds_gathers``: whether it decodes nothing of what a compressing method gathers in an
      iteration before all of it is there; else ``memory_bytes`` counts what it holds at once
    - ``gathers_frozen``: whether it also gathers frozen parameters, beside which adapters are
      trained, where it shards parameters
    - ``shards_parameters``: whether it gathers the parameters of a unit when the unit runs, so that
      what ``memory_in`` says of gathered units is counted by the units of the model
    - ``keeps_half``: whether in half precision parameters themselves have 16 bits, with an fp32
      copy among the optimizer's state; else they are fp32, and autocast or a gather narrows them
    - ``owns_whole_tensors``: whether each rank updates whole tensors where it keeps a share of the
      optimizer's state
    - ``runs_in``: its code base, which says whether the host waits for the exchanges before it
      launches the update
    - ``interval_option``: the option that says how many iterations pass from one exchange to the
      next; "" where gradients are exchanged in every iteration
    - ``on_host``: what its code can keep in the memory of the host, by the words of `offload`, and
      the option that says so
    - ``published_intervals``: values of that option that a paper or a code uses, and which does

    ``wire`` gives the bytes that a rank sends an iteration for one matrix. It is an expression of P
    (ranks, on equal hops), n = rows * columns, k (values kept of n), r (rank, no more than either
    side), the method's options by name, what `wire_names` adds, and log2, ceil, lcm, min
    and max.

    An option that has an effect only with certain values of others is marked with ``OnlyWith``. It
    is refused where it is given without these values.
    """

    # Options are given for few methods: what checks them is made where they are.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    summary: ClassVar[str]
    citation: ClassVar[str]
    family: ClassVar[str]
    wire: ClassVar[str]
    levels: ClassVar[str] = ONE_GROUP
    fusion: ClassVar[str] = "size"
    lossy: ClassVar[bool] = True
    over_text: ClassVar[Mapping[str, Any]] = {}
    needs: ClassVar[str] = ""
    decides: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "issue"
    first_needed_first: ClassVar[bool] = False
    works_alone: ClassVar[bool] = False
    holds_gathers: ClassVar[bool] = True
    shards_parameters: ClassVar[bool] = False
    gathers_frozen: ClassVar[bool] = False
    keeps_half: ClassVar[bool] = False
    owns_whole_tensors: ClassVar[bool] = False
    runs_in: ClassVar[CodeBase] = DDP
    interval_option: ClassVar[str] = ""
    on_host: ClassVar[Mapping[str, str]] = {}
    published_intervals: ClassVar[Mapping[int, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        wrong = truth_for_number(cls, values)
        if wrong:
            given = as_written(values[wrong])
            raise OptionError(wrong, given, "is not allowed: it must be a number")
        return (
            shares_read(cls, choices_read(cls, values)) if isinstance(values, Mapping) else values
        )

    @model_validator(mode="after")
    def _given_options_have_an_effect(self) -> Self:
        for option in type(self).model_fields:
            for mark in self.only_with(option) if option in self.model_fields_set else ():
                unmet = mark.unmet(self)
                if unmet:
                    why = f"has no effect {unmet}, or leave {option} out"
                    raise OptionError(option, getattr(self, option), why)
        return self

    @classmethod
    def only_with(cls, option: str) -> list[OnlyWith]:
        """Return an option's marks: the values of other options with which it has an effect."""
        return [mark for mark in cls.model_fields[option].metadata if isinstance(mark, OnlyWith)]

    def in_effect(self) -> dict[str, Any]:
        """Return the options that have an effect, with their values."""
        return {
            option: value
            for option, value in self
            if not any(mark.unmet(self) for mark in self.only_with(option))
        }

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the stages of one bucket, in order; each waits for the one before it.

        Of the bucket they depend on its `likeness` alone.
        """
        raise NotImplementedError

    def likeness(self, bucket: Bucket) -> Hashable:
        """Return what of a bucket its stages depend on: shapes and widths of its gradients."""
        return bucket.shapes

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the jobs of an iteration in issue order: one a bucket, from when it is ready."""
        made: dict[Hashable, tuple[JobStage, ...]] = {}  # layers repeat, and so do these
        jobs = []
        for number, bucket in enumerate(buckets):
            alike = self.likeness(bucket)
            stages = made.get(alike)
            if stages is None:
                stages = made[alike] = tuple(self.stages(bucket, world, iteration))
            if stages:
                jobs.append(Job(f"{number}", stages, PassPoint("backward", bucket.ready_s)))
        return jobs

    def rounds(self) -> list[Round]:
        """Return the rounds of the method's period."""
        return [Round()]

    @property
    def between(self) -> int:
        """Number of the iterations between two exchanges of a method with an interval."""
        return LOCAL_ITERATION

    def interval_rounds(self) -> list[Round]:
        """Return the rounds of as many iterations as the method's interval has.

        They are those of the phase of training in which exchanges are so far apart; none where it
        has no such phase with these options.
        """
        return self.rounds() if self.interval_option else []

    def interval_from(self, least: int) -> int:
        """Return the shortest interval of at least so many iterations that other options allow."""
        return max(1, least)

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return what ranks keep from one exchange to the next, where the method has an interval.

        What is on the GPU is what ``memory_in`` counts.
        """
        return []

    def delay(self) -> int:
        """Return the number of updates that may pass before an exchange's result is needed."""
        return 0

    @property
    def sites_are_nodes(self) -> bool:
        """Whether sites take the place of nodes where a wide area network joins several."""
        return False

    @property
    def runs_alone(self) -> bool:
        """Whether its kernels run on one GPU too, with these options."""
        return self.works_alone

    @property
    def offloads(self) -> bool:
        """Whether its code keeps something in the memory of the host."""
        return any(getattr(self, option) for option in self.on_host.values())

    @property
    def host_update(self) -> HostUpdate | None:
        """How the CPUs of hosts update the parameters; None where the GPUs do."""
        return None

    @classmethod
    def condition(cls, option: str) -> str:
        """Return what other options must be for one to have an effect, "" where they may be any."""
        marks = cls.model_fields[option].metadata
        return next((mark.words() for mark in marks if isinstance(mark, OnlyWith)), "")

    def refusal(self, world: MethodContext) -> str:
        """Return why the method cannot run on these ranks or this model, or ""."""
        return ""

    def caution(self, optimizer: str, inside: str) -> str:
        """Return what makes a prediction of this method doubtful, or "".

        It is a sentence, which a prediction has among its notes.

        Parameters
        ----------
        optimizer : whose update is priced
        inside : transport of the link inside nodes, such as pcie4 or nvlink3; "" without one
        """
        return ""

    def wire_names(self) -> dict[str, float]:
        """Return names that ``wire`` uses besides the options, with their values."""
        return {}

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank puts into the bucket's message for one gradient."""
        return gradient.size_bytes

    def negotiation_s(self, tensors: int, world: MethodContext) -> float:
        """Return the time that ranks negotiate over some tensors before sending them [s]."""
        return 0.0

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the extra memory that a rank keeps between iterations [bytes]."""
        return 0.0

    def memory_in(self, world: MethodContext) -> float:
        """Return the extra memory, which may also depend on nodes or layers [bytes]."""
        gradients = world.profile.gradients if world.profile else ()
        return self.memory_bytes(gradients, world.ranks)

    def exchanges_each(self, asked: bool | None) -> bool:
        """Tell whether gradients are exchanged after each micro-batch of an iteration.

        ``asked`` is what the user asks for, None where nothing.

        Raises
        ------
        RequestError
            If the method cannot do so.
        """
        return bool(asked)

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return the share of parameters, gradients and optimizer state that a rank keeps."""
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": 1.0}

    def gathers_units(self) -> bool:
        """Tell whether parameters are gathered unit by unit with these options."""
        return self.shards_parameters

    def autocasts(self) -> bool:
        """Tell whether mixed precision casts the values of an fp32 model at each operation.

        A model that has 16 bits itself, or is gathered in 16 bits, computes in these throughout.
        """
        return not (self.keeps_half or self.gathers_units())

    def update_share(self, world: MethodContext) -> float:
        """Return the share of the update's time that a rank takes: that of the state it keeps."""
        return self.kept_share(world)["optimizer"]

    def host_s(self, world: MethodContext, recompute: str) -> float:
        """Return what the host runs beside launches in both passes of a micro-batch [s].

        ``recompute`` is what the backward pass computes again.
        """
        return 0.0

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return how wide a rank keeps its state, where gradients are exchanged ``each`` time.

        ``each`` says whether each micro-batch exchanges them, or the last of several alone.
        """
        return MethodState()

    def code_base(self) -> CodeBase:
        """Return the code base that it runs in with these options."""
        return self.runs_in

    def registers_buffers(self, software: str) -> bool:
        """Tell whether messages go from and to buffers that NCCL has registered.

        Its kernels take fewer multiprocessors then.
        """
        return False

    def late_launches(self, optimizer: str) -> int:
        """Return the update's kernels per tensor that the host launches after it has waited.

        It is 0 where the host launches the update ahead of the GPU, as with DDP.
        """
        return OPTIMIZER_LAUNCHES[optimizer] if self.code_base().waits else 0

    def default_fusion(self) -> str:
        """Return the fusion policy used when the user chooses none."""
        return self.fusion


# Pydantic knows these class variables by now, and would read each anew for each method.
Method.__annotations__.clear()
