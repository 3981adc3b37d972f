"""Parameter servers, each with a shard of the model: workers push gradients and pull results.

A server runs on each node (BytePS), and further servers may run on machines without GPUs.
"""

from __future__ import annotations

from perfsim.collectives import Hops, Parts, algorithm

__all__ = ["pull_one_way", "pull_sharded", "push_one_way", "push_sharded", "server_loads"]


def server_loads(hops: Hops, extra_servers: int = 0) -> tuple[float, float]:
    """Return the share of a message that each server keeps: on a node, on a machine of its own.

    With k servers on machines of their own the best split is n_node = (N-k)/D n and
    n_own = 2 (N-1)/D n with D = N^2 + k N - 2 k.

    Examples
    --------
    >>> server_loads(Hops.flat(4, 1e-5, 1e-9)), server_loads(Hops.flat(4, 1e-5, 1e-9), 4)
    ((0.25, 0.0), (0.0, 0.25))
    """
    nodes = hops.nodes
    if nodes == 1:
        return 1.0, 0.0
    extra = _extra_servers(hops, extra_servers)
    on_node = (nodes - extra) / _denominator(nodes, extra)
    return on_node, (1.0 - nodes * on_node) / extra if extra else 0.0


def push_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (g-1)/g n inside the node, (N-1)/N n/g out of it [B].

    With servers on machines of their own, everything that its node does not keep leaves it.
    """
    inside = hops.gpus_per_node
    on_node, _ = server_loads(hops)
    return size_bytes * ((inside - 1) / inside + (1.0 - on_node) / inside)


@algorithm("push", "sharded", flows="all_to_all", blocks=True, sent_bytes=push_sent_bytes)
def push_sharded(size_bytes: float, hops: Hops, extra_servers: int = 0) -> Parts:
    """Price sending gradients to servers that each keep a shard, and adding them there.

    (g-1) alpha_intra + (g-1)/g n beta_intra inside the node, whose GPUs share out and add, then
    alpha_inter + (N-1)/N n beta_nic: a server on each node, with n/N. k servers on machines of
    their own take part of the load (`server_loads`); push and pull of different tensors then fill
    both directions of every NIC for 2 N (N-1)/D n beta_nic, and a push takes half of it; one that
    no pull of its size follows takes `push_one_way`. k > N gains nothing more. For the sums
    ((g-1)/g + (N-1)/N /g) n gamma.

    Parameters
    ----------
    size_bytes : n, the gradients of one worker [B]
    hops : ranks, nodes and the cost of their hops
    extra_servers : k, servers on machines without GPUs, each with a node's NICs; at least the
        ``servers`` of the hops

    Examples
    --------
    >>> parts = push_sharded(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (10, 750)

    References
    ----------
    Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous
    GPU/CPU clusters (BytePS), OSDI 2020, section 3; its code is bytedance/byteps.
    """
    return _with_sums(pull_sharded(size_bytes, hops, extra_servers), size_bytes, hops)


@algorithm(
    "push",
    "one_way",
    automatic=False,
    flows="all_to_all",
    blocks=True,
    sent_bytes=push_sent_bytes,
)
def push_one_way(size_bytes: float, hops: Hops, extra_servers: int = 0) -> Parts:
    """Price a push that no pull of its size goes beside: `pull_one_way` and the sums.

    Examples
    --------
    >>> push_one_way(1e6, Hops.flat(4, 1e-5, 1e-9), 4).transfer_s  # each server receives n
    0.001

    References
    ----------
    Jiang et al., OSDI 2020, section 3: what each NIC carries.
    """
    return _with_sums(pull_one_way(size_bytes, hops, extra_servers), size_bytes, hops)


def _with_sums(parts: Parts, size_bytes: float, hops: Hops) -> Parts:
    """Return a push: what its messages take, and the sums."""
    nodes, inside = hops.nodes, hops.gpus_per_node
    sums = (inside - 1) / inside + (nodes - 1) / nodes / inside
    return Parts(parts.latency_s, parts.transfer_s + sums * size_bytes * hops.gamma_s_per_byte)


def pull_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (g-1)/g n inside the node, (N-1)/N n/g out of it [B].

    With servers on machines of their own, only the shard of its own node's server, N - 1 times.
    """
    inside, nodes = hops.gpus_per_node, hops.nodes
    on_node, _ = server_loads(hops)
    return size_bytes * ((inside - 1) / inside + (nodes - 1) * on_node / inside)


@algorithm("pull", "sharded", flows="all_to_all", blocks=True, sent_bytes=pull_sent_bytes)
def pull_sharded(size_bytes: float, hops: Hops, extra_servers: int = 0) -> Parts:
    """Price fetching what the servers have added up.

    alpha_inter + (N-1)/N n beta_nic, then (g-1) alpha_intra + (g-1)/g n beta_intra to gather the
    shards inside the node: the push run backwards, without its sums. With k servers on machines
    of their own N (N-1)/D n beta_nic, as in `push_sharded`.

    Parameters
    ----------
    size_bytes : n, the parameters or gradients of one worker [B]
    hops : ranks, nodes and the cost of their hops
    extra_servers : k, servers on machines without GPUs, each with a node's NICs

    Examples
    --------
    >>> parts = pull_sharded(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (10, 750)
    >>> pull_sharded(1e6, Hops.flat(4, 1e-5, 1e-9), 4).transfer_s  # as many servers again: n/2
    0.0005

    References
    ----------
    Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous
    GPU/CPU clusters (BytePS), OSDI 2020, section 3; its code is bytedance/byteps.
    """
    nodes, share = hops.nodes, 0.0
    if nodes > 1:  # one node keeps all servers' work to itself, whatever machines stand beside it
        share = nodes * (nodes - 1) / _denominator(nodes, _extra_servers(hops, extra_servers))
    return _fetched(size_bytes, hops, share)


@algorithm(
    "pull",
    "one_way",
    automatic=False,
    flows="all_to_all",
    blocks=True,
    sent_bytes=pull_sent_bytes,
)
def pull_one_way(size_bytes: float, hops: Hops, extra_servers: int = 0) -> Parts:
    """Price a pull that no push of its size goes beside.

    As `pull_sharded`, but the busiest NIC sets the time across nodes: a node receives what it does
    not keep, and each of k servers on machines of their own sends its share to N nodes.

    Examples
    --------
    >>> hops = Hops.flat(4, 1e-5, 1e-9)
    >>> pull_one_way(1e6, hops, 4).transfer_s, pull_one_way(1e6, hops) == pull_sharded(1e6, hops)
    (0.001, True)

    References
    ----------
    Jiang et al., OSDI 2020, section 3: what each NIC carries.
    """
    on_node, on_own = server_loads(hops, extra_servers)
    return _fetched(size_bytes, hops, max(1.0 - on_node, hops.nodes * on_own))


def _fetched(size_bytes: float, hops: Hops, share: float) -> Parts:
    """Return what a pull takes of which the busiest NIC carries a share of the message."""
    inside = hops.gpus_per_node
    latency_s = (inside - 1) * hops.alpha_intra_s
    wires_s = (inside - 1) / inside * size_bytes * hops.beta_intra_s_per_byte
    if hops.nodes == 1:
        return Parts(latency_s, wires_s)
    across_s = share * size_bytes * hops.beta_nic_s_per_byte
    return Parts(latency_s + hops.alpha_inter_s, wires_s + across_s)


def _extra_servers(hops: Hops, extra_servers: int) -> int:
    """Return k: as many servers as asked for or as the hops say, at most one a node."""
    return min(max(extra_servers, hops.servers), hops.nodes)


def _denominator(nodes: int, extra: int) -> int:
    """Return D = N^2 + k N - 2 k of Jiang et al."""
    return nodes * nodes + extra * nodes - 2 * extra
