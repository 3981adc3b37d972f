"""All ranks meet before anything is measured: who is there, with what, and what is wrong where."""

from __future__ import annotations

import json
import os
import platform
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.job import Backend
from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.errors import RequestError

__all__ = [
    "check_same_request",
    "check_same_software",
    "identity",
    "interface_towards",
    "is_loopback",
    "meet_all_ranks",
    "named_interface",
    "open_journal",
]


def check_same_request(wire: Backend, hosts: Sequence[str], request: Mapping[str, Any]) -> None:
    """Refuse ranks that were started with different options; all ranks call it.

    Raises
    ------
    RequestError
        Naming the first rank that differs from rank 0, and the option.
    """
    told = wire.gather(dict(request))
    for rank, one in enumerate(told):
        for name, value in told[0].items():
            if one[name] != value:
                raise RequestError(
                    f"calibrate network: rank 0 on {hosts[0]} was asked for {name} {value}, rank"
                    f" {rank} on {hosts[rank]} for {one[name]}; start all with the same options."
                )


def open_journal(
    wire: Backend, out: Path, *, fresh: bool, force: bool
) -> tuple[NetworkJournal | None, set[tuple[str, int, int, int]]]:
    """Return rank 0's record (None on other ranks), and what it holds, known to all ranks.

    Parameters
    ----------
    wire : whose library, version, device and ranks make the setting of the record
    out : the network file; the record lies beside it as NAME.part
    fresh : do not go on with a record that is there
    force : the network file may be there already

    Raises
    ------
    RequestError
        On rank 0 if a file is in the way or cannot be written, and then on all.
    DataError
        On rank 0 if the record is damaged.
    """
    journal, error = None, None
    if wire.rank == 0:
        try:
            _check_out(out, force)
            journal = NetworkJournal(out.with_suffix(".part"), _setting(wire), resume=not fresh)
        except Exception as raised:
            error = raised
    done, wrong = wire.gather((journal.done() if journal else set(), error is not None))[0]
    if error is not None:
        raise error
    if wrong:
        raise RequestError("calibrate network: rank 0 could not begin; its message says why.")
    return journal, done


def _setting(wire: Backend) -> dict[str, Any]:
    hosts = [one["host"] for one in wire.ranks]
    return {
        "library": wire.library,
        "version": wire.version,
        "device": wire.device,
        "held": wire.held,
        "interface": wire.ranks[0]["interface"],
        "ranks": len(hosts),
        "nodes": len(set(hosts)),
    }


def _check_out(out: Path, force: bool) -> None:
    """Refuse what could not be written in the end; only rank 0's disk counts."""
    if out.suffix != ".toml":
        raise RequestError("out", f"{str(out)!r} does not end in .toml, as a network file does.")
    if out.exists() and not force:
        raise RequestError("out", f"{str(out)!r} is there already; `force` replaces it.")
    if not out.parent.is_dir():
        raise RequestError("out", f"the folder {str(out.parent)!r} is not there.")


FILTERS = "^=,"
"""NCCL_SOCKET_IFNAME may hold prefixes, exclusions and lists (NCCL user guide, environment)."""

SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""


def named_interface(variable: str) -> str:
    """Return the network interface that a variable names, "" where it is not set.

    Raises
    ------
    RequestError
        If it names one interface that this host does not have.
    """
    asked = os.environ.get(variable, "")
    have = [found for _, found in socket.if_nameindex()]
    plain = not any(sign in asked for sign in FILTERS)
    if asked and plain and not any(found.startswith(asked) for found in have):
        raise RequestError(
            f"{variable}: {socket.gethostname()} has no interface {asked!r}; there are"
            f" {', '.join(have)}."
        )
    return asked


def is_loopback(interface: str) -> bool:
    """Say whether an interface reaches its own host alone.

    Examples
    --------
    >>> is_loopback("lo"), is_loopback("=lo"), is_loopback("eth0")
    (True, True, False)
    """
    name = interface.removeprefix("=")
    return name == "lo" or (name.startswith("lo") and name[2:].isdecimal())


def interface_towards(address: str) -> str:
    """Return the interface by which this host reaches an address, "" where that cannot be told.

    Gloo takes that of the host's name if it is not told, which is the loopback on many hosts.
    """
    try:
        import fcntl  # not on every system

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # sends nothing: the route alone is looked up
            own = socket.inet_aton(asked.getsockname()[0])
            for _, name in socket.if_nameindex():
                try:
                    told = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:  # an interface without an address
                    continue
                if told[20:24] == own:
                    return name
    except (ImportError, OSError):
        pass
    return ""


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


def check_same_software(told: Sequence[Mapping[str, Any]]) -> None:
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


def meet_all_ranks(
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
