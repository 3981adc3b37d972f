"""From files of measured collectives to a network file and its curves, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsim.calibrate.cells import collective_name
from perfsim.calibrate.inside import inside_link
from perfsim.calibrate.network_files import write_network
from perfsim.calibrate.network_fit import NetworkFit, fit_network, order
from perfsim.calibrate.network_report import network_report
from perfsim.calibrate.network_toml import network_toml
from perfsim.calibrate.reading import read_file
from perfsim.catalog import Catalog, shipped
from perfsim.cluster.measured import Curve, merge
from perfsim.cluster.network import NUMBER
from perfsim.collectives import COLLECTIVES
from perfsim.errors import RequestError, unknown
from perfsim.limits import shown

__all__ = ["Imported", "import_files"]

DEFAULT = Path("profiles") / "networks"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SCHEMA = "perfsim/calibrate-import/1"
ONCE = {"library": "libraries", "version": "versions", "gpu": "GPUs", "fabric": "fabrics"}
"""What the file of a network's curves says once for all of them."""


@dataclass(frozen=True)
class Imported:
    """What was written, the report of the fit, and the damaged lines that were left out."""

    name: str
    network: Path
    curves: Path
    report: str
    fit: NetworkFit
    skipped: tuple[str, ...]

    @property
    def use(self) -> str:
        """The command that predicts on the network, or what must come before it."""
        gpus = max(curve.ranks for curve in self.fit.curves)
        command = f"perfsim predict --model resnet50 --gpus {gpus} --net {self.name}"
        folder = self.network.parent
        if folder == DEFAULT:
            return f"now: {command}"
        if folder.name == DEFAULT.name:
            return f"now: {command} --profiles {folder.parent}"
        return (
            f"--net finds networks in a folder named {DEFAULT.name!r}; move both files into one,"
            f" then: {command} --profiles THE_FOLDER_ABOVE"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate import --json`` prints."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "network": str(self.network),
            "curves": str(self.curves),
            "links": {
                of: {
                    "rate_bytes_per_s": link.link.rate.value,
                    "rate_relative_stderr": link.errors.get("rate", 0.0) / link.link.rate.value,
                    "rate_residual_p90": link.link.rate.spread,
                    "tree_rate_bytes_per_s": link.link.tree_rate.value,
                    "gamma_s_per_byte": link.link.gamma.value,
                    "stderr": dict(link.errors),
                    "protocols": {
                        protocol: {
                            "rate_bytes_per_s": held.rate.value,
                            "alpha_s": held.alpha.value,
                        }
                        for protocol, held in link.link.protocols.items()
                    },
                    "ranks": list(link.link.ranks or ()),
                }
                for of, link in self.fit.links.items()
            },
            "measured": [
                {
                    "collective": curve.collective,
                    "ranks": curve.ranks,
                    "nodes": curve.nodes,
                    "sizes": len(curve.size_bytes),
                    "from_bytes": curve.size_bytes[0],
                    "to_bytes": curve.size_bytes[-1],
                    "knots": len(fit.curve.size_bytes),
                    "residual_p90": fit.curve.spread,
                }
                for curve, fit in zip(self.fit.curves, self.fit.fits, strict=True)
            ],
            "not_told": list(self.fit.refused),
            "warnings": self.fit.warnings(),
            "skipped": list(self.skipped),
        }


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
) -> Imported:
    """Read files, fit a network and write ``NAME.toml`` and ``NAME.curves.csv``.

    Parameters
    ----------
    files : of any format that `perfsim.calibrate.reading` knows
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
    _check(name, transport, nics_per_node, collective)
    catalog = Catalog(profiles)
    curves: list[Curve] = []
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
    merged = merge(_one_cluster(sorted(curves, key=order)))
    fit = fit_network(merged, nics_per_node, inside_link(catalog))
    first = merged[0]
    where = folder if folder is not None else DEFAULT
    gpus = {curve.gpus_per_node for curve in merged if curve.nodes > 1}
    head = {
        "name": name,
        "title": _line(title) or f"measured: {', '.join(sorted(map(str, files)))}"[:200],
        "transport": transport,
        "gpus_per_node": max(gpus) if gpus else max(curve.gpus_per_node for curve in merged),
        "nics_per_node": nics_per_node,
    }
    about = {
        "network": name,
        "title": str(head["title"]),
        "gpu": first.gpu or "not stated",
        "intra": first.fabric or "not stated",
        "inter": first.fabric or "not stated",
        "library": first.library,
        "version": first.version,
        "source": "; ".join(dict.fromkeys(curve.source for curve in merged)),
        "licence": "the user's own",
        "date": "not stated",
    }
    network, beside = write_network(
        where, network_toml(fit, head, knots=False), merged, about, replaces=force
    )
    return Imported(
        name, network, beside, network_report(fit, name, full=full), fit, tuple(skipped)
    )


def _check(name: str, transport: str, nics_per_node: int, collective: str | None) -> None:
    if not NAME.fullmatch(name):
        raise RequestError(
            f"--name: {shown(name)} is no name of a network; letters, digits, '.', '_' and '-',"
            " at most 64, such as our-cluster."
        )
    if NUMBER.fullmatch(name):
        raise RequestError(
            f"--name: {shown(name)} reads as a number, which --net takes for a rate; add a letter."
        )
    if (shipped() / "networks" / f"{name}.toml").is_file():
        raise RequestError(
            f"--name: {name!r} is a network that ships with perfsim; take another name."
        )
    if not transport.strip():
        raise RequestError("--transport: is empty; write a word such as tcp, ib, efa or nvlink.")
    if nics_per_node < 1:
        raise RequestError(f"--nics-per-node: {nics_per_node}; at least 1.")
    if collective is not None and not collective_name(collective):
        raise unknown("--collective", collective, COLLECTIVES)


def _one_cluster(curves: Sequence[Curve]) -> list[Curve]:
    """Return curves that agree in what one network's file says once, stated or not."""
    said: dict[str, str] = {}
    for field, word in ONCE.items():
        stated = list(dict.fromkeys(filter(None, (getattr(one, field) for one in curves))))
        if len(stated) > 1:
            named = " and ".join(shown(one) for one in stated[:2])
            raise RequestError(
                f"FILE: the measurements name several {word}, such as {named}; a network has one,"
                " so import each under a --name of its own."
            )
        said[field] = stated[0] if stated else ""
    return [replace(curve, **said) for curve in curves]  # type: ignore[arg-type]


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
