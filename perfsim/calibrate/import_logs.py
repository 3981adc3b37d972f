"""From files of measured collectives to a network file and its curves, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfsim.calibrate.formats import read_file
from perfsim.calibrate.formats.rows import collective_name
from perfsim.calibrate.network_fit import order
from perfsim.calibrate.write_network import MadeNetwork, check_name, make_network
from perfsim.collectives import COLLECTIVES
from perfsim.errors import RequestError, shown, unknown
from perfsim.network.measured import CollectiveCurve, merge

__all__ = ["import_files"]

ONCE = {"library": "libraries", "version": "versions", "gpu": "GPUs", "fabric": "fabrics"}
"""What the file of a network's curves says once for all of them."""


def import_files(
    files: Sequence[Path],
    name: str,
    *,
    folder: Path | None = None,
    title: str | None = None,
    transport: str = "unknown",
    collective: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    nics_per_node: int = 1,
    skip_bad: bool = False,
    full: bool = False,
    force: bool = False,
    profiles: str | Path | None = None,
) -> MadeNetwork:
    """Read files, fit a network and write ``NAME.toml`` and ``NAME.curves.csv``.

    Parameters
    ----------
    files : of any format that `perfsim.calibrate.formats` knows
    name : of the network
    folder : to write to; None is profiles/networks below the working folder
    collective, ranks, nodes, gpus_per_node : what the files do not say themselves
    nics_per_node : NICs that the GPUs of a node share
    skip_bad : leave damaged lines out and list them
    full : let the report hold that of each fit behind it
    force : replace a network of that name

    Raises
    ------
    RequestError
        If the name or folder is not allowed.
    DataError
        If a file is damaged, or the data cannot tell any link; nothing is written then.
    """
    check_name(name, transport, nics_per_node)
    if collective is not None and not collective_name(collective):
        raise unknown("collective", collective, COLLECTIVES)
    curves: list[CollectiveCurve] = []
    skipped: list[str] = []
    for file in files:
        reading = read_file(
            file,
            collective=collective,
            ranks=ranks,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            skip_bad=skip_bad,
        )
        curves += [replace(curve, series=name) for curve in reading.curves]
        skipped += reading.skipped
    return make_network(
        merge(_one_cluster(sorted(curves, key=order))),
        name,
        folder=folder,
        title=title,
        source=", ".join(sorted(map(str, files))),
        transport=transport,
        nics_per_node=nics_per_node,
        skipped=skipped,
        full=full,
        force=force,
        profiles=profiles,
    )


def _one_cluster(curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return curves that agree in what one network's file says once, stated or not."""
    said: dict[str, str] = {}
    for field, word in ONCE.items():
        stated = list(dict.fromkeys(filter(None, (getattr(one, field) for one in curves))))
        if len(stated) > 1:
            named = " and ".join(shown(one) for one in stated[:2])
            raise RequestError(
                f"FILE: the measurements name several {word}, such as {named}; a network has one,"
                " so import each under a `name` of its own."
            )
        said[field] = stated[0] if stated else ""
    return [replace(curve, **said) for curve in curves]  # type: ignore[arg-type]
