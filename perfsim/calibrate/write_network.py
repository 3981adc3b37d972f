"""Fit the curves of one cluster and write its two files: the network and its measured curves.

Both are made first and read back; then each is put in place whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.data_sheet import (
    RateFinding,
    beside_data_sheet,
    check_curves_fit,
    rate_findings,
)
from perfsim.calibrate.link_fit import LinkFit, inside_link, rate_points
from perfsim.calibrate.measure.stability import poor_fit
from perfsim.calibrate.network_fit import NetworkFit, fit_network
from perfsim.calibrate.network_report import network_report, network_toml
from perfsim.data.catalog import Catalog, shipped
from perfsim.data.files import not_noting
from perfsim.errors import DataError, RequestError, shown
from perfsim.network.measured import CollectiveCurve, write_curves
from perfsim.network.network_file import _BARE_NUMBER, CURVES_SUFFIX, Noticed, read_network
from perfsim.network.node_type import load_node_type

__all__ = ["MadeNetwork", "check_name", "make_network", "poor_fits"]

_DEFAULT_FOLDER = Path("profiles") / "networks"
"""Below the working folder."""

_IMPORT_SCHEMA = "perfsim/calibrate-import/1"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name that every file system and shell takes as it is."""


@dataclass(frozen=True)
class MadeNetwork:
    """A network that was written, the report of its fit, and the damaged lines left out.

    ``beside`` is what its largest messages say beside the data sheet of its nodes, ``noticed`` what
    makes it doubtful.
    """

    name: str
    network: Path
    curves: Path
    report: str
    fit: NetworkFit
    skipped: tuple[str, ...] = ()
    schema: str = _IMPORT_SCHEMA
    beside: tuple[RateFinding, ...] = ()
    noticed: tuple[Noticed, ...] = ()

    @property
    def use(self) -> str:
        """The shell command that predicts on the network."""
        gpus = max(curve.ranks for curve in self.fit.curves)
        command = f"now: perfsim predict --model resnet50 --gpus {gpus} --net"
        folder = self.network.parent
        if folder == _DEFAULT_FOLDER:
            return f"{command} {self.name}"
        if folder.name == _DEFAULT_FOLDER.name:
            return f"{command} {self.name} --profiles {quote(str(folder.parent))}"
        return f"{command} {quote(str(self.network))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate import`` and ``calibrate network`` print as JSON."""
        return {
            "schema": self.schema,
            "name": self.name,
            "network": str(self.network),
            "curves": str(self.curves),
            "links": {name: _link_dict(link) for name, link in self.fit.links.items()},
            "measured": [
                {
                    "collective": curve.collective,
                    "ranks": curve.ranks,
                    "nodes": curve.nodes,
                    "sizes": len(curve.size_bytes),
                    "from_bytes": curve.size_bytes[0],
                    "to_bytes": curve.size_bytes[-1],
                    "knots": len(knots.curve.size_bytes),
                    "residual_p90": knots.curve.spread,
                }
                for curve, knots in zip(self.fit.curves, self.fit.fits, strict=True)
            ],
            **({"data_sheet": [one.to_dict() for one in self.beside]} if self.beside else {}),
            "not_told": list(self.fit.undetermined),
            **({"noticed": [one._asdict() for one in self.noticed]} if self.noticed else {}),
            "warnings": self.fit.warnings(),
            "skipped": list(self.skipped),
        }


def _link_dict(fit: LinkFit) -> dict[str, Any]:
    link = fit.link
    return {
        "rate_bytes_per_s": link.rate.value,
        "rate_relative_stderr": fit.errors.get("rate", 0.0) / link.rate.value,
        "rate_residual_p90": link.rate.spread,
        "tree_rate_bytes_per_s": link.tree_rate.value,
        "gamma_s_per_byte": link.gamma.value,
        "stderr": dict(fit.errors),
        "protocols": {
            protocol: {"rate_bytes_per_s": held.rate.value, "alpha_s": held.alpha.value}
            for protocol, held in link.protocols.items()
        },
        "ranks": list(link.ranks or ()),
    }


def check_name(name: str, transport: str, nics_per_node: int) -> None:
    """Refuse a name that no network may have, an empty transport, no NIC."""
    if not _NAME.fullmatch(name):
        raise RequestError(
            "name",
            f"{shown(name)} is no name of a network; letters, digits, '.', '_' and '-',"
            " at most 64, such as our-cluster.",
            value=name,
        )
    if _BARE_NUMBER.fullmatch(name):
        raise RequestError(
            "name",
            f"{shown(name)} reads as a number, which `net` takes for a rate; add a letter.",
            value=name,
        )
    if (shipped() / "networks" / f"{name}.toml").is_file():
        raise RequestError(
            "name",
            f"{name!r} is a network that ships with perfsim; take another name.",
            value=name,
        )
    if not transport.strip():
        raise RequestError(
            "transport", "is empty; write a word such as tcp, ib, efa or nvlink.", value=transport
        )
    if nics_per_node < 1:
        why = f"{nics_per_node} is not allowed: it must be 1 or more."
        raise RequestError("nics_per_node", why, value=nics_per_node)


def make_network(
    curves: Sequence[CollectiveCurve],
    name: str,
    *,
    folder: Path | None = None,
    title: str | None = None,
    source: str = "",
    transport: str = "unknown",
    nics_per_node: int = 1,
    node: str | None = None,
    date: str = "not stated",
    notes: Sequence[str] = (),
    schema: str = _IMPORT_SCHEMA,
    skipped: Sequence[str] = (),
    full: bool = False,
    noticed: Sequence[Noticed] = (),
    checks_fit: bool = False,
    force: bool = False,
    profiles: str | Path | None = None,
) -> MadeNetwork:
    """Fit a network to curves and write ``NAME.toml`` and ``NAME.curves.csv``.

    Parameters
    ----------
    curves : of one cluster, one for each measurement, in `curve_order`
    name : of the network, checked by `check_name`
    folder : to write to; None is profiles/networks below the working folder
    title : one line on the cluster; None is that it was measured, and ``source``
    source : the files or the run, for the title
    transport, nics_per_node, date, notes : as the network file holds them
    node : the node type of its nodes, or a node type's file, where they are as its data sheet says
    schema, skipped : of the answer
    full : let the report hold that of each fit behind it
    noticed : what makes the curves doubtful, for the file and the report
    checks_fit : refuse a fit that misses the curves by far more than their repeats differ
    force : replace a network of that name, and write a poor fit, which the file then says
    profiles : folder of the user's own files, for the preset of the links inside a node

    Raises
    ------
    RequestError
        If the folder is not allowed, or the curves cannot have run on such nodes.
    DataError
        If the data determine no link, or the fit is poor; nothing is written then.
    """
    catalog, beside, findings = Catalog(profiles), [], []
    # Drivers put the maker before the name by which GPUs are known.
    curves = [replace(one, gpu=one.gpu.removeprefix("NVIDIA ")) for one in curves]
    if node is not None:
        kind = load_node_type(node, catalog, "node")
        check_curves_fit(kind, curves)
        beside = beside_data_sheet(kind, curves, catalog)
        findings = rate_findings(kind, curves, catalog)
        if nics_per_node == 1 and kind.nics is not None:
            nics_per_node = min(kind.nics.number, kind.gpus)
    fit = fit_network(curves, nics_per_node, inside_link(catalog))
    noticed = list(noticed)
    if checks_fit:
        noticed += poor_fits(fit, noticed, force=force)
    first = curves[0]
    gpus = {curve.gpus_per_node for curve in curves if curve.nodes > 1}
    head = {
        "name": name,
        "title": " ".join((title or "").split()) or f"measured: {source}"[:200],
        "transport": transport,
        "gpus_per_node": max(gpus) if gpus else max(curve.gpus_per_node for curve in curves),
        "nics_per_node": nics_per_node,
        "node_type": node,
        "notes": list(notes),
        "noticed": [one._asdict() for one in noticed],
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
    text = network_toml(fit, head, knots=False)
    folder = folder if folder is not None else _DEFAULT_FOLDER
    network, curves_file = _write_both(folder, text, curves, about, replaces=force)
    warned = [one.text for one in noticed]
    report = "\n".join([network_report(fit, name, warned, full=full), *beside])
    return MadeNetwork(
        *(name, network, curves_file, report, fit, tuple(skipped), schema, tuple(findings)),
        noticed=tuple(noticed),
    )


def poor_fits(fit: NetworkFit, noticed: Sequence[Noticed], *, force: bool) -> list[Noticed]:
    """Return what is to be said of rates that miss the messages they were fitted to.

    Parameters
    ----------
    fit : links with the curves behind their rates
    noticed : what else was noticed, which may be the reason
    force : the network is written all the same

    Raises
    ------
    DataError
        If a fit is poor and is not to be written.
    """
    found = []
    for link in fit.links.values():
        sizes = [size for size, _ in rate_points(link.rate_curve)]
        off = [math.expm1(residual) for residual in link.rate_fit.residuals]
        stated = link.rate_curve.spread or 0.0
        poor = poor_fit(link.rate_fit.p90, stated, sizes, off)
        if poor:
            found.append(f"the rate fitted to {link.rate_curve.name} misses its times: {poor}")
    if found and not force:
        why = f"; {noticed[0].text.rstrip('.')}" if noticed else ""
        raise DataError(f"no network file is written, since {found[0]}{why}; `force` writes it")
    return [Noticed("poor_fit", f"{one}; it was written by force.") for one in found]


def _write_both(
    folder: Path,
    text: str,
    curves: Sequence[CollectiveCurve],
    about: Mapping[str, str],
    *,
    replaces: bool,
) -> tuple[Path, Path]:
    """Write both files, read them back, and only then move them to where they belong.

    Parameters
    ----------
    folder : made if it is not there
    text : of the network's file
    curves, about : measured curves, and the head of their file, which names the network
    replaces : whether files of that name may be replaced

    Raises
    ------
    RequestError
        If the folder cannot be written, or the network is there already.
    DataError
        If what would be written could not be read.
    """
    name = about["network"]
    paths = folder / f"{name}.toml", folder / f"{name}{CURVES_SUFFIX}"
    for path in paths:
        if path.exists() and not path.is_file():
            raise RequestError("out", f"{str(path)!r} is there and is no file.", value=path)
        if path.exists() and not replaces:
            raise RequestError(
                "name", f"{str(path)!r} is there already; `force` replaces it.", value=name
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=f".{name}.") as work:
            parts = [Path(work) / path.name for path in paths]
            parts[0].write_text(text, encoding="utf-8")
            write_curves(parts[1], curves, about, "own")
            _read_back(parts[0])
            for part, path in zip(parts, paths, strict=True):
                part.replace(path)
    except OSError as error:
        why = f"{str(folder)!r} cannot be written: {error.strerror}."
        raise RequestError("out", why, value=folder) from None
    return paths


def _read_back(path: Path) -> None:
    """Read a network file on trial, which is no file of the user's yet."""
    try:
        with not_noting():
            read_network(path)
    except DataError as error:
        raise DataError(
            f"what was measured makes no network ({error.why}); is a time or size in another unit?"
        ) from None
