"""Read files of measured collectives and make a network of them (``perfsim calibrate import``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfsim.calibrate.formats import read_log
from perfsim.calibrate.formats.rows import collective_name
from perfsim.calibrate.network_fit import curve_order
from perfsim.calibrate.write_network import MadeNetwork, check_name, make_network
from perfsim.collectives import COLLECTIVES
from perfsim.errors import RequestError, shown, unknown
from perfsim.network.measured import CollectiveCurve, merge
from perfsim.network.network_file import CURVES_SUFFIX, NETWORK_SUFFIX, Noticed, read_network

__all__ = ["import_files"]

_ONE_OF_EACH = {"library": "libraries", "version": "versions", "gpu": "GPUs", "fabric": "fabrics"}
"""What the file of a network's curves states once for all of them, and its plural."""


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
    node: str | None = None,
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
    title : one line on the cluster; None names the files
    transport : what carries the bytes (tcp, ib, efa, nvlink, ...)
    collective, ranks, nodes, gpus_per_node : what the files do not say themselves
    nics_per_node : NICs that the GPUs of a node share
    node : the node type, or its file; the report holds the files beside its data sheet
    skip_bad : leave damaged lines out and list them
    full : let the report hold that of each fit behind it
    force : replace a network of that name
    profiles : folder of the user's own files, for the preset of the links inside a node

    Raises
    ------
    RequestError
        If the name or folder is not allowed.
    DataError
        If a file or the network file beside its curves is damaged, or the data determine no link;
        nothing is written then.
    """
    check_name(name, transport, nics_per_node)
    if collective is not None and not collective_name(collective):
        raise unknown("collective", collective, COLLECTIVES)
    curves: list[CollectiveCurve] = []
    noticed: list[Noticed] = []
    skipped: list[str] = []
    for file in files:
        reading = read_log(
            file,
            collective=collective,
            ranks=ranks,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            skip_bad=skip_bad,
        )
        curves += [replace(curve, series=name) for curve in reading.curves]
        skipped += reading.skipped
        noticed += _noticed_beside(file)
    return make_network(
        merge(_of_one_cluster(sorted(curves, key=curve_order))),
        name,
        folder=folder,
        title=title,
        source=", ".join(sorted(map(str, files))),
        transport=transport,
        nics_per_node=nics_per_node,
        node=node,
        skipped=skipped,
        full=full,
        noticed=noticed,
        force=force,
        profiles=profiles,
    )


def _noticed_beside(file: Path) -> tuple[Noticed, ...]:
    """Return what calibration noticed of curves that it wrote, by the network file beside them."""
    network = file.with_name(f"{file.name.removesuffix(CURVES_SUFFIX)}{NETWORK_SUFFIX}")
    if not file.name.endswith(CURVES_SUFFIX) or not network.is_file():
        return ()
    return read_network(network).noticed


def _of_one_cluster(curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return the curves with the one library, version, GPU and fabric that any of them states."""
    stated: dict[str, str] = {}
    for field, plural in _ONE_OF_EACH.items():
        values = list(dict.fromkeys(filter(None, (getattr(curve, field) for curve in curves))))
        if len(values) > 1:
            some = " and ".join(shown(value) for value in values[:2])
            raise RequestError(
                "",
                f"FILE: the measurements name several {plural}, such as {some}; a network has one,"
                " so import each under a `name` of its own.",
                value=values,
            )
        stated[field] = values[0] if values else ""
    return [replace(curve, **stated) for curve in curves]  # type: ignore[arg-type]
