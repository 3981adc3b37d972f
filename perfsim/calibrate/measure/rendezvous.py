"""How ranks meet before anything is measured: who is there, with what, and what is wrong where."""

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
    "PARTING_S",
    "check_same_request",
    "check_same_software",
    "hosts_apart",
    "identity",
    "infiniband_rates",
    "interface_speeds",
    "interface_towards",
    "is_loopback_interface",
    "meet_all_ranks",
    "named_interface",
    "open_journal",
    "processor_name",
    "tuning_variables",
]

POLL_S = 0.05
"""Pause between two looks at the store. No source: chosen."""
PARTING_S = 5.0
"""How long rank 0 serves the store for others to leave. No source: chosen."""
_FILTER_SIGNS = "^=,"
"""NCCL_SOCKET_IFNAME may hold prefixes, exclusions and lists (NCCL user guide, environment)."""
_SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""
_SOURCE = "calibrate network"
_NET, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
"""Where Linux says what network devices there are (Documentation/ABI/testing/sysfs-class-net)."""
_CPU_INFO = Path("/proc/cpuinfo")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A number that Linux draws when it starts (random(4))."""
_TUNING_PREFIXES = ("NCCL_", "GLOO_", "UCX_", "FI_")
_TUNING_PREFIXES_MPI = tuple(f"OMPI_MCA_{name}_" for name in ("coll", "btl", "pml", "mtl"))
_NOT_TUNING = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"})
"""Variables that change how a library sends, and some of theirs that do not."""


def meet_all_ranks(
    store: Any, rank: int, world_size: int, word: Mapping[str, Any], patience_s: float
) -> list[dict[str, Any]]:
    """Exchange a word with every rank and return all words, in order of ranks.

    A word that holds ``wrong`` says why its rank cannot go on; then no rank does.

    Parameters
    ----------
    store : the job's key-value store (set, get, check)
    rank, world_size : of this process
    word : what this rank says of itself, see `identity`
    patience_s : how long to wait for the others [s]

    Raises
    ------
    RequestError
        If a rank does not come, or cannot go on: names the first.
    """
    try:
        words = _words(store, rank, world_size, word, patience_s)
    except RuntimeError:
        why = "rank 0 has left before all ranks met; its message says why."
        raise RequestError("", why, source=_SOURCE) from None
    with suppress(RuntimeError):  # rank 0 may see first that all have read, and leave
        # Rank 0 serves the store until all have read, but no longer than they may take.
        store.add("met", 1)
        end = time.monotonic() + PARTING_S
        while store.add("met", 0) < world_size and time.monotonic() < end:
            time.sleep(POLL_S)
    for other, said in enumerate(words):
        if said.get("wrong") and other != rank:
            why = f"rank {other} on {said['host']} cannot go on: {said['wrong']}"
            raise RequestError("", why, source=_SOURCE)
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
                    "",
                    f"rank {other} of {world_size} has not come within"
                    f" {patience_s:.0f} s; does it run, and does it reach the same MASTER_ADDR?",
                    source=_SOURCE,
                )
            time.sleep(POLL_S)
        words.append(json.loads(store.get(f"meet/{other}")))
    return words


def identity(wire: Any, interface: str, local_rank: int) -> dict[str, Any]:
    """Return what a rank says of itself: where it runs, and what all ranks must have in common.

    Parameters
    ----------
    wire : with library, version, device
    interface : the network interface that was asked for or found
    local_rank : among the ranks of its node
    """
    from perfsim import __version__

    return {
        "host": socket.gethostname(),
        "boot": _boot_id(),
        "perfsim": __version__,
        "library": f"{wire.library} {wire.version}",
        "software": wire.software,
        "device": wire.device,
        "processor": processor_name(),
        "interface": interface,
        "speed": "; ".join([*interface_speeds(interface), *infiniband_rates()]),
        "variables": tuning_variables(os.environ),
        "local_rank": local_rank,
        "system": f"{platform.system()} {platform.release()}",
    }


def _boot_id() -> str:
    """Return what no other running host has, "" where the system does not say."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def hosts_apart(identities: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what ranks say of themselves, with a name of its own for each of several hosts.

    As for NCCL, ranks are on one host where its name and its boot are the same (NVIDIA/nccl@5067397
    src/misc/utils.cc, getHostHash).

    Examples
    --------
    >>> said = [{"host": "node", "boot": boot} for boot in ("5f", "5f", "a0")]
    >>> [rank["host"] for rank in hosts_apart(said)]
    ['node', 'node', 'node (2)']
    """
    boots: dict[str, list[str]] = {}
    named = []
    for who in identities:
        known = boots.setdefault(who["host"], [])
        boot = who.get("boot", "")
        if boot not in known:
            known.append(boot)
        number = known.index(boot) + 1
        named.append({**who, "host": f"{who['host']} ({number})"} if number > 1 else who)
    return named


def processor_name() -> str:
    """Return the model of this host's CPU, "" where the system does not say."""
    with suppress(OSError):
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def interface_speeds(name: str) -> list[str]:
    """Return the speeds of the interfaces whose name begins so, as Linux states them.

    Virtual interfaces and those without a link state none.
    """
    found = []
    for folder in sorted(_NET.glob(f"{name.removeprefix('=')}*")) if name else ():
        with suppress(OSError, ValueError):
            speed = int((folder / "speed").read_text())
            if speed > 0:
                found.append(f"{folder.name} {speed} Mbit/s")
    return found


def infiniband_rates() -> list[str]:
    """Return the rates of this host's InfiniBand and RoCE ports, as Linux states them."""
    found = []
    for rate in sorted(_INFINIBAND.glob("*/ports/*/rate")):
        with suppress(OSError):
            found.append(f"{rate.parts[-4]} port {rate.parts[-2]} {rate.read_text().strip()}")
    return found


def tuning_variables(environ: Mapping[str, str]) -> str:
    """Return the variables that change how a communication library sends, as NAME=value.

    Examples
    --------
    >>> tuning_variables({"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "HOME": "/root"})
    'NCCL_ALGO=Ring'
    """
    prefixes = (*_TUNING_PREFIXES, *_TUNING_PREFIXES_MPI)
    named = sorted(name for name in environ if name.startswith(prefixes))
    return " ".join(f"{name}={environ[name]}" for name in named if name not in _NOT_TUNING)


def check_same_software(identities: Sequence[Mapping[str, Any]]) -> None:
    """Refuse ranks that run different software or devices: they are no one cluster.

    Raises
    ------
    RequestError
        Naming the first rank that differs from rank 0, two ranks that cannot be on one node
        though its name is the same, or an interface that reaches no other host.
    """
    first = identities[0]
    for what in ("perfsim", "library", "software", "device"):
        for rank, other in enumerate(identities):
            if other[what] != first[what]:
                raise RequestError(
                    "",
                    f"rank 0 on {first['host']} has {what} {first[what]}, rank {rank} on"
                    f" {other['host']} has {other[what]}; install the same everywhere.",
                    source=_SOURCE,
                )
    _check_hosts(identities)


def _check_hosts(identities: Sequence[Mapping[str, Any]]) -> None:
    first_rank: dict[tuple[str, int], int] = {}
    for rank, who in enumerate(identities):
        other = first_rank.setdefault((who["host"], who["local_rank"]), rank)
        if other != rank and any(each["local_rank"] for each in identities):
            raise RequestError(
                "",
                f"ranks {other} and {rank} are both number {who['local_rank']}"
                f" on a host named {who['host']!r}; give every node a name of its own.",
                source=_SOURCE,
            )
    if len({who["host"] for who in identities}) < 2:
        return
    for rank, who in enumerate(identities):
        if is_loopback_interface(who["interface"]):
            raise RequestError(
                "",
                f"rank {rank} on {who['host']} would use the interface"
                f" {who['interface']!r}, which reaches no other host; set GLOO_SOCKET_IFNAME (with"
                " NCCL, NCCL_SOCKET_IFNAME) there to one that does.",
                source=_SOURCE,
            )


def named_interface(variable: str) -> str:
    """Return the network interface that an environment variable names, "" if it is not set.

    Raises
    ------
    RequestError
        If it names one interface that this host does not have.
    """
    name = os.environ.get(variable, "")
    present = [interface for _, interface in socket.if_nameindex()]
    plain = not any(sign in name for sign in _FILTER_SIGNS)
    if name and plain and not any(interface.startswith(name) for interface in present):
        why = f"{socket.gethostname()} has no interface {name!r}; there are {', '.join(present)}."
        raise RequestError("", why, value=name, source=variable)
    return name


def is_loopback_interface(interface: str) -> bool:
    """Say whether an interface reaches its own host alone.

    Examples
    --------
    >>> [is_loopback_interface(name) for name in ("lo", "=lo", "eth0")]
    [True, True, False]
    """
    name = interface.removeprefix("=")
    return name == "lo" or (name.startswith("lo") and name[2:].isdecimal())


def interface_towards(address: str) -> str:
    """Return the interface by which this host reaches an address, "" where that is not known.

    Gloo must be told: by itself it takes the interface of the host's name, which is the loopback
    on many hosts.
    """
    try:
        import fcntl  # not on every system

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing: only the route is looked up
            own = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                try:
                    reply = fcntl.ioctl(
                        probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15])
                    )
                except OSError:  # an interface without an address
                    continue
                if reply[20:24] == own:
                    return name
    except (ImportError, OSError):
        pass
    return ""


def check_same_request(wire: Backend, hosts: Sequence[str], request: Mapping[str, Any]) -> None:
    """Refuse ranks that were started with different options; all ranks call it.

    Parameters
    ----------
    wire : gathers the requests
    hosts : host name of each rank
    request : option -> value, as this rank was asked

    Raises
    ------
    RequestError
        Naming the first rank that differs from rank 0, and the option.
    """
    requests = wire.gather(dict(request))
    for rank, other in enumerate(requests):
        for name, value in requests[0].items():
            if other[name] != value:
                raise RequestError(
                    "",
                    f"rank 0 on {hosts[0]} was asked for {name} {value}, rank"
                    f" {rank} on {hosts[rank]} for {other[name]}; start all with the same options.",
                    source=_SOURCE,
                )


def open_journal(
    wire: Backend, out: Path, *, fresh: bool, force: bool
) -> tuple[NetworkJournal | None, set[tuple[str, int, int, int]]]:
    """Return rank 0's journal (None on other ranks), and the keys it holds, known to all ranks.

    Parameters
    ----------
    wire : its library, version, device and ranks make the setting of the journal
    out : the network file; the journal lies beside it as NAME.part
    fresh : do not resume a journal that is there
    force : the network file may be there already

    Raises
    ------
    RequestError
        On rank 0 if a file is in the way or cannot be written, and then on all ranks.
    DataError
        On rank 0 if the journal is damaged.
    """
    journal, error = None, None
    if wire.rank == 0:
        try:
            _check_out(out, force)
            journal = NetworkJournal(out.with_suffix(".part"), _setting(wire), fresh=fresh)
        except Exception as raised:
            error = raised
    measured, wrong = wire.gather(
        (journal.measured_keys() if journal else set(), error is not None)
    )[0]
    if error is not None:
        raise error
    if wrong:
        why = "rank 0 could not begin; its message says why."
        raise RequestError("", why, source=_SOURCE)
    return journal, measured


def _setting(wire: Backend) -> dict[str, Any]:
    """Return what must be the same for points to be of one network: by rank where ranks differ."""
    first, ranks = wire.ranks[0], wire.ranks
    return {
        "ranks": len(ranks),
        "nodes": len({rank["host"] for rank in ranks}),
        "perfsim": first["perfsim"],
        "library": wire.library,
        "version": wire.version,
        "software": first["software"],
        "device": wire.device,
        "forced algorithm": wire.held("all_reduce")[0],
        **{
            what: [rank[what] for rank in ranks]
            for what in ("host", "interface", "speed", "processor", "variables")
        },
    }


def _check_out(out: Path, force: bool) -> None:
    """Refuse a file that could not be written in the end; only rank 0's disk counts."""
    if out.suffix != ".toml":
        raise RequestError("out", f"{str(out)!r} does not end in .toml, as a network file does.")
    if out.exists() and not force:
        raise RequestError("out", f"{str(out)!r} is there already; `force` replaces it.")
    if not out.parent.is_dir():
        raise RequestError("out", f"the folder {str(out.parent)!r} is not there.")
