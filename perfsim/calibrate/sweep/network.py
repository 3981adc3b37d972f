"""``perfsim calibrate network``: from the ranks of this job to a network file of their cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from perfsim.calibrate.launch import Launch, find_launch
from perfsim.calibrate.making import Made, check_name, make_network
from perfsim.calibrate.network_fit import order
from perfsim.calibrate.sweep.beginning import open_journal, same_request
from perfsim.calibrate.sweep.curves import curves_of
from perfsim.calibrate.sweep.groups import groups
from perfsim.calibrate.sweep.guard import guard
from perfsim.calibrate.sweep.journal import Journal, Point
from perfsim.calibrate.sweep.sweep import Asked, Rule, asked, sizes, sweep
from perfsim.calibrate.sweep.wire import Wire
from perfsim.errors import DataError, unknown

__all__ = ["BACKENDS", "Wanted", "measure_network"]

BACKENDS = ("nccl", "gloo", "mpi")
SCHEMA = "perfsim/calibrate-network/1"
LEAST_BYTES = 1024
"""From the issue's range: latency shows below 1 KiB no more than at it."""


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    Parameters
    ----------
    out : the network file, NAME.toml; its curves go beside it
    backend : nccl, gloo or mpi; None is nccl where PyTorch sees GPUs, else gloo
    collectives : to measure; empty is all that the library has
    most_bytes : the largest message [B]
    budget_s : of the whole sweep [s]; None lets every point end by its interval or 2 s
    tolerance : half the 90 % interval of a median over it at which a point is done
    nics_per_node : NICs that the ranks of a node share
    transport, title : words for the file
    patience_s : a collective that takes longer is an error [s]
    fresh : measure anew what an interrupted run has left
    force : replace a network file that is there
    """

    out: Path
    backend: str | None = None
    collectives: tuple[str, ...] = ()
    most_bytes: int = 256 * 2**20
    budget_s: float | None = None
    tolerance: float = 0.02
    nics_per_node: int = 1
    transport: str = "unknown"
    title: str | None = None
    patience_s: float = 300.0
    fresh: bool = False
    force: bool = False

    def request(self) -> dict[str, Any]:
        """Return what all ranks must have been asked alike: they decide by it when a point ends."""
        names = ("backend", "collectives", "most_bytes", "budget_s", "tolerance")
        return {name: getattr(self, name) for name in names}


def measure_network(
    wanted: Wanted,
    progress: Callable[[Sequence[Asked]], Callable[[Asked, Point | None], None]],
    environ: Mapping[str, str] | None = None,
    profiles: str | Path | None = None,
) -> Made | None:
    """Measure, fit and write a network; every rank of the job calls it.

    Parameters
    ----------
    wanted : what was asked for
    progress : given the points to measure, returns what is told of each
    environ : variables of the process, None for its own
    profiles : a folder of the user's own profiles

    Returns
    -------
    Made on rank 0, None on the others.

    Raises
    ------
    RequestError
        If this is no job of several ranks, the ranks do not agree in versions or request, or a
        file cannot be written.
    BrokenOffError
        If a rank dies, the network fails or a signal comes; what was measured is kept.
    DataError
        If what was measured tells no link.
    """
    launch = find_launch(os.environ if environ is None else environ)
    check_name(wanted.out.stem, wanted.transport, wanted.nics_per_node)
    wire = open_wire(launch, wanted)
    told = wire.ranks
    hosts = [str(one["host"]) for one in told]
    found = groups(hosts)
    same_request(wire, hosts, wanted.request())
    journal, done = open_journal(wire, wanted.out, fresh=wanted.fresh, force=wanted.force)
    points = [
        point
        for point in asked(_collectives(wire, wanted), found, sizes(LEAST_BYTES, wanted.most_bytes))
        if point.key not in done
    ]
    rule = Rule(tolerance=wanted.tolerance)
    if wanted.budget_s is not None and points:
        share = wanted.budget_s / len(points)
        rule = replace(rule, budget_s=share, whole_s=wanted.budget_s)
    with guard(launch, wire, hosts, journal):
        sweep(wire, points, rule, journal, progress(points) if journal else _quiet)
    wire.close()
    if journal is None:
        return None
    made = _made(journal, wire, wanted, _note(told, hosts, rule), profiles)
    journal.remove()
    return made


def _made(
    journal: Journal, wire: Wire, wanted: Wanted, note: str, profiles: str | Path | None
) -> Made:
    """Fit and write; where the fit is impossible the record stays."""
    told = wire.ranks
    try:
        return make_network(
            sorted(curves_of(journal.points, wire, told[0]), key=order),
            wanted.out.stem,
            folder=wanted.out.parent,
            title=wanted.title,
            source=f"{len(told)} ranks, {wire.library} {wire.version}",
            transport=wanted.transport,
            nics_per_node=wanted.nics_per_node,
            date=date.today().isoformat(),
            notes=[note],
            schema=SCHEMA,
            force=wanted.force,
            profiles=profiles,
        )
    except DataError as error:
        raise DataError(f"{error}; what was measured is kept in {journal.path}") from None


def open_wire(launch: Launch, wanted: Wanted) -> Wire:
    """Return the library that was asked for, joined to the job."""
    if wanted.backend not in (None, *BACKENDS):
        raise unknown("--backend", str(wanted.backend), BACKENDS)
    if wanted.backend == "mpi":
        from perfsim.calibrate.sweep.mpi_wire import MpiWire

        return MpiWire(launch.local_rank)
    from perfsim.calibrate.sweep.torch_wire import TorchWire

    return TorchWire(launch, wanted.backend, wanted.patience_s)


def _collectives(wire: Wire, wanted: Wanted) -> tuple[str, ...]:
    have = wire.collectives()
    for name in wanted.collectives:
        if name not in have:
            raise unknown("--collectives", name, have)
    return wanted.collectives or have


def _note(told: Sequence[Mapping[str, Any]], hosts: Sequence[str], rule: Rule) -> str:
    return (
        f"{len(hosts)} ranks on {len(set(hosts))} hosts ({told[0]['system']}), {told[0]['library']}"
        f", perfsim {told[0]['perfsim']}; medians of the slowest rank, each repeated until its"
        f" 90 % interval was within {rule.tolerance:.0%} or {rule.budget_s:.3g} s were spent."
    )


def _quiet(_: Asked, __: Point | None) -> None:
    """Tell nothing: only rank 0 speaks."""
