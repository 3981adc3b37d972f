"""All ranks meet before anything is measured: who is there, with what, and what is wrong where."""

from __future__ import annotations

import json
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from perfsim.calibrate.sweep.interface import is_loopback
from perfsim.errors import RequestError

__all__ = ["agree", "identity", "meet"]

POLL_S = 0.05
PARTING_S = 5.0


def identity(wire: Any, asked: str, local_rank: int) -> dict[str, Any]:
    """Return what a rank tells of itself: where it runs, and what all ranks must agree in.

    Parameters
    ----------
    wire : with library, version, device
    asked : the network interface that was asked for or found
    local_rank : among the ranks of its node
    """
    from perfsim import __version__

    return {
        "host": socket.gethostname(),
        "perfsim": __version__,
        "library": f"{wire.library} {wire.version}",
        "device": wire.device,
        "interface": asked,
        "local_rank": local_rank,
        "system": f"{platform.system()} {platform.release()}",
    }


def agree(told: Sequence[Mapping[str, Any]]) -> None:
    """Refuse ranks that run different things: their times would be of no one cluster.

    Raises
    ------
    RequestError
        Naming the first rank that differs from rank 0, two that cannot be on one node though
        its name is the same, or an interface that reaches no other host.
    """
    for what in ("perfsim", "library", "device"):
        for rank, one in enumerate(told):
            if one[what] != told[0][what]:
                raise RequestError(
                    f"calibrate network: rank 0 on {told[0]['host']} has {what}"
                    f" {told[0][what]}, rank {rank} on {one['host']} has {one[what]}; install the"
                    " same everywhere."
                )
    _check_hosts(told)


def _check_hosts(told: Sequence[Mapping[str, Any]]) -> None:
    places: dict[tuple[str, int], int] = {}
    for rank, one in enumerate(told):
        other = places.setdefault((one["host"], one["local_rank"]), rank)
        if other != rank and any(each["local_rank"] for each in told):
            raise RequestError(
                f"calibrate network: ranks {other} and {rank} are both number {one['local_rank']}"
                f" on a host named {one['host']!r}; give every node a name of its own."
            )
    if len({one["host"] for one in told}) < 2:
        return
    for rank, one in enumerate(told):
        if is_loopback(one["interface"]):
            raise RequestError(
                f"calibrate network: rank {rank} on {one['host']} would use the interface"
                f" {one['interface']!r}, which reaches no other host; set GLOO_SOCKET_IFNAME (with"
                " NCCL, NCCL_SOCKET_IFNAME) there to one that does."
            )


def meet(
    store: Any, rank: int, world_size: int, word: Mapping[str, Any], patience_s: float
) -> list[dict[str, Any]]:
    """Exchange a word with every rank and return all, in order of ranks.

    A word with ``wrong`` in it says why its rank cannot go on; then none does.

    Parameters
    ----------
    store : the job's key-value store (set, get, check)
    rank, world_size : of this process
    word : what this rank tells
    patience_s : how long to wait for the others [s]

    Raises
    ------
    RequestError
        If a rank does not come, or cannot go on: names the first.
    """
    try:
        words = _words(store, rank, world_size, word, patience_s)
    except RuntimeError:
        raise RequestError(
            "calibrate network: rank 0 has left before all ranks met; its message says why."
        ) from None
    with suppress(RuntimeError):  # rank 0 may see first that all have read, and leave
        # Who serves the store stays until all have read, and not longer than they may take.
        store.add("met", 1)
        end = time.monotonic() + PARTING_S
        while store.add("met", 0) < world_size and time.monotonic() < end:
            time.sleep(POLL_S)
    for other, told in enumerate(words):
        if told.get("wrong") and other != rank:
            raise RequestError(
                f"calibrate network: rank {other} on {told['host']} cannot go on: {told['wrong']}"
            )
    return words


def _words(
    store: Any, rank: int, world_size: int, word: Mapping[str, Any], patience_s: float
) -> list[dict[str, Any]]:
    store.set(f"meet/{rank}", json.dumps(dict(word)))
    end = time.monotonic() + patience_s
    words: list[dict[str, Any]] = []
    for other in range(world_size):
        while not store.check([f"meet/{other}"]):
            if time.monotonic() > end:
                raise RequestError(
                    f"calibrate network: rank {other} of {world_size} has not come within"
                    f" {patience_s:.0f} s; does it run, and does it reach the same MASTER_ADDR?"
                )
            time.sleep(POLL_S)
        words.append(json.loads(store.get(f"meet/{other}")))
    return words
