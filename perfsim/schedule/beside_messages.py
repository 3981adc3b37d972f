"""Passes beside messages: computation is slowed while they are under way, no longer.

A collective of NCCL or RCCL is a kernel: it takes multiprocessors and memory bandwidth from those
beside it. A message that starts while a pass computes slows it until the message ends, or the pass
does. So what the pass loses is at most what its messages take, and nothing where they start after
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from perfsim.compute.device import Device
from perfsim.methods.base import Job, Send
from perfsim.network.cluster import Cluster
from perfsim.quantity import Timing
from perfsim.schedule.costs import Costs

__all__ = [
    "UNSLOWED",
    "SlowedPass",
    "channels_beside",
    "lost_share",
    "rate_left",
    "slowed_backward",
    "slowed_forward",
    "slowing_messages",
    "slows_computation",
]

_CHANNELS = 24
"""Multiprocessors that a collective of NCCL takes inside a node of NVLinks: seen on 8 H100 (NVIDIA
developer forum 337991, all-gather) and on 8 V100 (parasailteam/coconet issue 6)."""
_CHANNELS_A_NIC = 2
"""Those for each NIC of a node where several nodes exchange: a channel for each NIC is found, and
doubled (NVIDIA/nccl 2.30.7, src/graph/connect.cc)."""
_CHANNELS_OF_RCCL = 56
"""Compute units that a collective of RCCL takes of a GPU of CDNA 3 or 4: 28 rings through eight
GPUs of a node and 56 through several nodes, the former doubled (ROCm/rccl@0cbce2a7
src/graph/rome_models.cc, models 79 and 81; src/graph/connect.cc, ``ncclTopoPostset``). For eight
MI355X in a node RCCL had 112 for a while (its release 7.0.0), and 56 again since (its pull request
2073)."""
_CHANNELS_OF_FEW = {2: 32, 4: 24}
"""Those of two and of four GPUs of such a node (there, docs/install/installation.rst)."""
_RCCL_ARCHITECTURES = ("CDNA 3", "CDNA 4")
_MEMORY_TRAFFIC = 2.5
"""Bytes of device memory that it moves for a byte on the links: the middle of 2 to 3
(NVIDIA/nccl issue 1428, by NCCL's author)."""
_CHANNELS_REGISTERED = {"all_gather": 4, "reduce_scatter": 5}
"""Multiprocessors inside a node from buffers that NCCL has registered (Megatron-FSDP User Guide,
docs.nvidia.com/megatron-core, on ``--use-nccl-ub``; between nodes 16, as without)."""
_TRAFFIC_REGISTERED = 2.0
"""Bytes of device memory for a byte on the links from such buffers: one is read and one written,
as nothing is copied in between."""


def rate_left(
    device: Device, bytes_per_s: float, channels: int = _CHANNELS, traffic: float = _MEMORY_TRAFFIC
) -> float:
    """Return the share of their rate that kernels keep beside a collective over NVLink or xGMI.

    It takes multiprocessors and memory bandwidth from them: (1 - 2.5 B / H) (1 - C / M) is left,
    with B on the links, H the memory's bandwidth, C of M multiprocessors. Nothing is fitted:
    kernels take 1.8 times as long on an H100, where 1.7 was measured, 1.9 on an A100 (1.8 to 2.5),
    2.4 on a V100 (2.2 to 2.6), 1.5 on an MI300X. There products and collectives reach 21 % of the
    speed-up that both at once would have (AMD, arXiv 2412.14335), 1.65 where they take as long.

    Parameters
    ----------
    bytes_per_s : what the collective moves over a GPU's links, one way
    channels : multiprocessors that it takes
    traffic : bytes of device memory that it moves for a byte on the links
    """
    moved = traffic * bytes_per_s / device.memory_bandwidth.value
    taken = channels / max(device.multiprocessors, channels + 1)
    return max(0.0, 1.0 - moved) * (1.0 - taken)


def channels_beside(device: Device, cluster: Cluster) -> int:
    """Return the multiprocessors that a collective takes from computation; 0 where it is left out.

    Left out are dies of CDNA 2, of which no count was found, and PCIe, where kernels keep over nine
    tenths of their rate (a channel or two, at a tenth of NVLink's rate), and for the same reason
    nodes that have one NIC. Where nobody says what a link is, it is the GPU's own.
    """
    if cluster.intra is None:
        return 0
    inside = cluster.intra.transport or device.link.lower()
    if inside.startswith(("xgmi", "infinity fabric")):
        told = device.architecture in _RCCL_ARCHITECTURES
        told = told and (cluster.nodes == 1 or cluster.nics_per_node > 1)
        return _CHANNELS_OF_FEW.get(cluster.gpus, _CHANNELS_OF_RCCL) if told else 0
    if not inside.startswith("nvlink"):
        return 0
    if cluster.nodes == 1:
        return _CHANNELS
    nics = cluster.nics_in_use if cluster.nics_per_node > 1 else 1
    return min(_CHANNELS, _CHANNELS_A_NIC * nics) if nics > 1 else 0


def lost_share(device: Device, cluster: Cluster, bytes_per_s: float, registered: str = "") -> float:
    """Return the share of a collective's time that computation beside it loses.

    Parameters
    ----------
    bytes_per_s : what a rank sends in the time that the collective takes
    registered : the collective, where its buffers are registered; else ""
    """
    channels, traffic = channels_beside(device, cluster), _MEMORY_TRAFFIC
    if not channels:
        return 0.0
    if registered in _CHANNELS_REGISTERED:
        traffic = _TRAFFIC_REGISTERED
        if cluster.nodes == 1:
            channels = _CHANNELS_REGISTERED[registered]
    return 1.0 - rate_left(device, bytes_per_s, channels, traffic)


class SlowedPass(NamedTuple):
    """From where in a pass [s] computation takes how many times as long."""

    from_s: float
    factor: float

    def factor_at(self, seconds: float) -> float:
        """Return how many times as long computation takes from a moment of the pass on."""
        return self.factor if seconds >= self.from_s else 1.0

    def behind_host(self, host_share: float, gpu_share: float) -> SlowedPass:
        """Return the pass where the host's launches, which no message slows, may take longer.

        Parameters
        ----------
        host_share, gpu_share : what both take alone, of the later of both

        Examples
        --------
        >>> slowed = SlowedPass(0.0, 1.5)
        >>> [slowed.behind_host(*shares).factor for shares in ((0.4, 1.0), (1.0, 0.8), (1.0, 0.5))]
        [1.5, 1.2000000000000002, 1.0]
        """
        if self is UNSLOWED:
            return self
        return self._replace(factor=max(host_share, gpu_share * self.factor))


UNSLOWED = SlowedPass(0.0, 1.0)

Slowdown = Callable[[Send, Timing], float]
"""How many times as long computation takes beside a message, which takes and sends so much."""


_MOST = 10.0
"""No message slows computation more often than this, as where links are free. No source: chosen,
the most that `overlap_slowdown` may be."""


def slows_computation(costs: Costs) -> bool:
    """Tell whether any message takes something from computation."""
    if channels_beside(costs.device, costs.cluster):
        return True
    return any(channels_beside(costs.device, cluster) for cluster in costs.axes.values())


def slowing_messages(costs: Costs, *, registered: bool = False) -> Slowdown:
    """Return what tells how messages slow computation.

    Parameters
    ----------
    registered : whether they are sent from buffers that NCCL has registered
    """

    def slowdown(send: Send, timing: Timing) -> float:
        seconds, sent_bytes = timing
        if not seconds > 0.0:
            return 1.0
        named = send.collective if registered else ""
        lost = lost_share(costs.device, costs.among(send), sent_bytes / seconds, named)
        return 1.0 / max(1.0 - lost, 1.0 / _MOST)

    return slowdown


class _Beside(NamedTuple):
    """A job's messages in a pass: from when they may run, and until when computation is beside.

    ``seconds`` is how long they take, 0 where they slow nothing; ``slowdown`` how many times as
    long computation takes beside them, on average.
    """

    begin_s: float
    end_s: float
    seconds: float
    slowdown: float


def slowed_backward(
    jobs: Sequence[Job], backward_s: float, costs: Costs, slowdown: Slowdown | float
) -> SlowedPass:
    """Return how an iteration's messages slow its backward pass.

    Messages that start earlier, as those of the iteration before that nothing waits for, count
    from the beginning of the pass.

    Parameters
    ----------
    backward_s : length of the pass without messages [s]
    slowdown : how many times as long computation takes beside a message, or beside any
    """
    found = []
    for job in jobs:
        begin_s = _begin_s(job)
        if begin_s is not None and begin_s < backward_s:
            sends = _sent_at_once(job)
            found.append(_beside(begin_s, backward_s, sends, costs, slowdown))
    return _slowed(found, backward_s)


def slowed_forward(
    jobs: Sequence[Job], held: Sequence[Job], forward_s: float, costs: Costs, slowdown: Slowdown
) -> SlowedPass:
    """Return how messages slow a forward pass: those that it waits for, each before its moment.

    Parameters
    ----------
    jobs : those of the pass's own iteration
    held : those of the iteration before that hold it up; what they send after the backward pass
        may run from the beginning of this one
    forward_s : length of the pass without messages [s]
    slowdown : how many times as long computation takes beside a message
    """
    found = []
    for job in jobs:
        holds = job.holds is not None and job.holds.phase == "forward"
        if job.begins.phase == "forward" and holds and job.begins.seconds < forward_s:
            begin_s, sends = max(0.0, job.begins.seconds), _sent_at_once(job)
            found.append(_beside(begin_s, forward_s, sends, costs, slowdown))
    for job in held:
        until_s = min(job.holds.seconds, forward_s) if job.holds else 0.0
        if until_s > 0.0:
            sends = [one for one in job.stages if isinstance(one, Send)]
            later = [one for one in sends if one.earliest != "ready"]
            found.append(_beside(0.0, until_s, later, costs, slowdown))
    return _slowed(found, forward_s)


def _beside(
    begin_s: float, end_s: float, sends: Iterable[Send], costs: Costs, slowdown: Slowdown | float
) -> _Beside:
    seconds: float = 0.0
    lost_s: float = 0.0
    for send in sends:
        timing = costs.timing(send)
        taken_s = send.repeats * timing.seconds
        seconds = seconds + taken_s
        if callable(slowdown):
            lost_s = lost_s + (1.0 - 1.0 / slowdown(send, timing)) * taken_s
    if not callable(slowdown):
        return _Beside(begin_s, end_s, seconds, slowdown)
    if not lost_s > 0.0:
        return _Beside(begin_s, end_s, 0.0, 1.0)
    return _Beside(begin_s, end_s, seconds, seconds / (seconds - lost_s))


def _slowed(found: Iterable[_Beside], pass_s: float) -> SlowedPass:
    """Return how a pass of w is slowed by messages, the loss spread evenly from the first start on.

    Beside a message that takes c and slows computation f times, the share 1 - 1 / f is lost. One
    that starts b into the pass is beside it for at most min(c, f (w - b)), all of them together for
    at most f (w - b) of the first. Left out: that a message may wait for the one before it, and
    kernels between messages; both move messages out of the pass.
    """
    found = [one for one in found if one.seconds > 0.0]
    if not found:
        return UNSLOWED
    slowdown = found[0].slowdown
    alike = all(one.slowdown is slowdown for one in found)
    beside_s: float = 0.0
    lost_s: float = 0.0
    for one in found:
        seconds = min(one.seconds, one.slowdown * (one.end_s - one.begin_s))
        beside_s = beside_s + seconds
        if not alike:
            lost_s = lost_s + (1.0 - 1.0 / one.slowdown) * seconds
    if not alike:
        slowdown = beside_s / (beside_s - lost_s)
    first_s = min(one.begin_s for one in found)
    beside_s = min(beside_s, slowdown * (pass_s - first_s))
    lost_s = (1.0 - 1.0 / slowdown) * beside_s
    return SlowedPass(first_s, 1.0 + lost_s / (pass_s - first_s))


def _begin_s(job: Job) -> float | None:
    """Return from where in a backward pass messages of a job may run [s]; None: not in one."""
    held = job.holds
    goes_on = held is not None and held.later > 0
    if goes_on or (job.begins.phase == "forward" and (held is None or held.phase != "forward")):
        return 0.0
    return max(0.0, job.begins.seconds) if job.begins.phase == "backward" else None


def _sent_at_once(job: Job) -> list[Send]:
    """Return the messages that a job sends as soon as it can."""
    sends = []
    for stage in job.stages:
        if stage.earliest != "ready":
            break
        if isinstance(stage, Send):
            sends.append(stage)
    return sends
