"""Push to a sharded parameter server: each node sends every server its shard of the gradient."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["BLOCKS", "FLOWS", "LATENCY", "loads", "push_sharded", "sent_bytes", "shard_s"]

LATENCY = "ring"

FLOWS = "all_to_all"

BLOCKS = True


def loads(hops: Hops, extra_servers: int = 0) -> tuple[float, float]:
    """Return the share of a message that each server keeps: on a node, on a machine of its own.

    Examples
    --------
    >>> loads(Hops.flat(4, 1e-5, 1e-9)), loads(Hops.flat(4, 1e-5, 1e-9), 4)
    ((0.25, 0.0), (0.0, 0.25))
    """
    nodes = hops.nodes
    if nodes == 1:
        return 1.0, 0.0
    extra = min(max(extra_servers, hops.servers), nodes)
    all_loads = nodes * nodes + extra * nodes - 2 * extra
    on_node = (nodes - extra) / all_loads
    return on_node, (1.0 - nodes * on_node) / extra if extra else 0.0


def shard_s(size_bytes: float, hops: Hops, extra_servers: int) -> Parts:
    """Return what push and pull have in common: hops and wires, without sums.

    Examples
    --------
    >>> shard_s(1e6, Hops.flat(4, 1e-5, 1e-9), 4).transfer_s  # as many servers again: n/2
    0.0005
    """
    nodes, inside = hops.nodes, hops.gpus_per_node
    latency_s = (inside - 1) * hops.alpha_intra_s
    wires_s = (inside - 1) / inside * size_bytes * hops.beta_intra_s_per_byte
    if nodes == 1:
        return Parts(latency_s, wires_s)
    extra = min(max(extra_servers, hops.servers), nodes)
    share = nodes * (nodes - 1) / (nodes * nodes + extra * nodes - 2 * extra)
    across_s = share * size_bytes * hops.beta_nic_s_per_byte
    return Parts(latency_s + hops.alpha_inter_s, wires_s + across_s)


def push_sharded(size_bytes: float, hops: Hops, extra_servers: int = 0) -> Parts:
    """Return the time to send gradients to servers that each keep a shard, and to add them there.

    (g-1) alpha_intra + (g-1)/g n beta_intra inside the node, whose GPUs share out and add, then
    alpha_inter + (N-1)/N n beta_nic: a server on each node, with n/N. k servers on machines of
    their own take part of the load, which is best split as n_node = (N-k)/D n and
    n_own = 2 (N-1)/D n with D = N^2 + k N - 2 k; push and pull of different tensors then fill both
    directions of every NIC for 2 N (N-1)/D n beta_nic, of which a push is half. k > N gains
    nothing more. For the sums ((g-1)/g + (N-1)/N /g) n gamma.

    Parameters
    ----------
    size_bytes : n, the gradients of one worker [B]
    hops : ranks, nodes and the cost of their hops
    extra_servers : k, servers on machines without GPUs, each with a node's NICs; as many as the
        hops say where they are more

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
    parts = shard_s(size_bytes, hops, extra_servers)
    nodes, inside = hops.nodes, hops.gpus_per_node
    sums = (inside - 1) / inside + (nodes - 1) / nodes / inside
    return Parts(parts.latency_s, parts.transfer_s + sums * size_bytes * hops.gamma_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (g-1)/g n inside the node, (N-1)/N n/g out of it [B].

    With servers on machines of their own all that its node does not keep goes out of it.
    """
    inside = hops.gpus_per_node
    on_node, _ = loads(hops)
    return size_bytes * ((inside - 1) / inside + (1.0 - on_node) / inside)
