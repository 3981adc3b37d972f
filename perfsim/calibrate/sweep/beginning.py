"""Before a sweep: all ranks were asked the same, and rank 0 has opened its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsim.calibrate.sweep.journal import Journal
from perfsim.calibrate.sweep.wire import Wire
from perfsim.errors import RequestError

__all__ = ["open_journal", "same_request"]


def same_request(wire: Wire, hosts: Sequence[str], request: Mapping[str, Any]) -> None:
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
    wire: Wire, out: Path, *, fresh: bool, force: bool
) -> tuple[Journal | None, set[tuple[str, int, int, int]]]:
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
            journal = Journal(out.with_suffix(".part"), _setting(wire), resume=not fresh)
        except Exception as raised:
            error = raised
    done, wrong = wire.gather((journal.done() if journal else set(), error is not None))[0]
    if error is not None:
        raise error
    if wrong:
        raise RequestError("calibrate network: rank 0 could not begin; its message says why.")
    return journal, done


def _setting(wire: Wire) -> dict[str, Any]:
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
        raise RequestError(f"--out: {str(out)!r} does not end in .toml, as a network file does.")
    if out.exists() and not force:
        raise RequestError(f"--out: {str(out)!r} is there already; --force replaces it.")
    if not out.parent.is_dir():
        raise RequestError(f"--out: the folder {str(out.parent)!r} is not there.")
