"""From measured curves of one cluster to its network file: fitted, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from perfsim.calibrate.inside import inside_link
from perfsim.calibrate.link_fit import LinkFit
from perfsim.calibrate.network_files import write_network
from perfsim.calibrate.network_fit import NetworkFit, fit_network
from perfsim.calibrate.network_report import network_report
from perfsim.calibrate.network_toml import network_toml
from perfsim.catalog import Catalog, shipped
from perfsim.cluster.measured import Curve
from perfsim.cluster.network import NUMBER
from perfsim.errors import RequestError
from perfsim.limits import shown

__all__ = ["DEFAULT", "Made", "check_name", "make_network"]

DEFAULT = Path("profiles") / "networks"
SCHEMA = "perfsim/calibrate-import/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Made:
    """What was written, the report of the fit, and the damaged lines that were left out."""

    name: str
    network: Path
    curves: Path
    report: str
    fit: NetworkFit
    skipped: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def use(self) -> str:
        """The command that predicts on the network."""
        gpus = max(curve.ranks for curve in self.fit.curves)
        command = f"now: perfsim predict --model resnet50 --gpus {gpus} --net"
        folder = self.network.parent
        if folder == DEFAULT:
            return f"{command} {self.name}"
        if folder.name == DEFAULT.name:
            return f"{command} {self.name} --profiles {quote(str(folder.parent))}"
        return f"{command} {quote(str(self.network))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the object that --json of ``calibrate import`` and ``network`` prints."""
        return {
            "schema": self.schema,
            "name": self.name,
            "network": str(self.network),
            "curves": str(self.curves),
            "links": {of: _link(found) for of, found in self.fit.links.items()},
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


def _link(found: LinkFit) -> dict[str, Any]:
    link = found.link
    return {
        "rate_bytes_per_s": link.rate.value,
        "rate_relative_stderr": found.errors.get("rate", 0.0) / link.rate.value,
        "rate_residual_p90": link.rate.spread,
        "tree_rate_bytes_per_s": link.tree_rate.value,
        "gamma_s_per_byte": link.gamma.value,
        "stderr": dict(found.errors),
        "protocols": {
            protocol: {"rate_bytes_per_s": held.rate.value, "alpha_s": held.alpha.value}
            for protocol, held in link.protocols.items()
        },
        "ranks": list(link.ranks or ()),
    }


def make_network(
    curves: Sequence[Curve],
    name: str,
    *,
    folder: Path | None = None,
    title: str | None = None,
    source: str = "",
    transport: str = "unknown",
    nics_per_node: int = 1,
    date: str = "not stated",
    notes: Sequence[str] = (),
    schema: str = SCHEMA,
    skipped: Sequence[str] = (),
    full: bool = False,
    force: bool = False,
    profiles: str | Path | None = None,
) -> Made:
    """Fit a network to curves and write ``NAME.toml`` and ``NAME.curves.csv``.

    Parameters
    ----------
    curves : of one cluster, one for each measurement, in the order of `order`
    name : of the network, checked by `check_name`
    folder : to write to; None is profiles/networks below the working folder
    title : one line on the cluster; None is that it was measured, and ``source``
    source : the files or the run, for the title
    transport, nics_per_node, date, notes : as the network file holds them
    schema, skipped : of the answer
    full : let the report hold that of each fit behind it
    force : replace a network of that name

    Raises
    ------
    RequestError
        If the folder is not allowed.
    DataError
        If the data cannot tell any link; nothing is written then.
    """
    fit = fit_network(curves, nics_per_node, inside_link(Catalog(profiles)))
    first = curves[0]
    gpus = {curve.gpus_per_node for curve in curves if curve.nodes > 1}
    head = {
        "name": name,
        "title": " ".join((title or "").split()) or f"measured: {source}"[:200],
        "transport": transport,
        "gpus_per_node": max(gpus) if gpus else max(curve.gpus_per_node for curve in curves),
        "nics_per_node": nics_per_node,
        "notes": list(notes),
    }
    about = {
        "network": name,
        "title": str(head["title"]),
        "gpu": first.gpu or "not stated",
        "intra": first.fabric or "not stated",
        "inter": first.fabric or "not stated",
        "library": first.library,
        "version": first.version,
        "source": "; ".join(dict.fromkeys(curve.source for curve in curves)),
        "licence": "the user's own",
        "date": date,
    }
    network, beside = write_network(
        folder if folder is not None else DEFAULT,
        network_toml(fit, head, knots=False),
        curves,
        about,
        replaces=force,
    )
    report = network_report(fit, name, full=full)
    return Made(name, network, beside, report, fit, tuple(skipped), schema)


def check_name(name: str, transport: str, nics_per_node: int) -> None:
    """Refuse a name that no network may have, an empty transport, no NIC."""
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
