"""From measured curves of one cluster to its network file: fitted, written whole or not at all."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.formats.own_csv import CURVES_CSV_SCHEMA
from perfsim.calibrate.link_fit import LinkFit, inside_link
from perfsim.calibrate.network_fit import NetworkFit, fit_network
from perfsim.calibrate.network_report import network_report, network_toml
from perfsim.data.catalog import Catalog, shipped
from perfsim.data.files import write_text
from perfsim.errors import DataError, RequestError, shown
from perfsim.network.measured import CollectiveCurve, write_curves
from perfsim.network.network_file import _BARE_NUMBER, _CURVES_SUFFIX, read_network

__all__ = [
    "DEFAULT",
    "MadeNetwork",
    "as_csv",
    "check_name",
    "make_network",
    "write_csv",
    "write_network",
]


def write_network(
    folder: Path,
    text: str,
    curves: Sequence[CollectiveCurve],
    about: Mapping[str, str],
    *,
    replaces: bool = False,
) -> tuple[Path, Path]:
    """Write both files, read them back, and only then put them in their place.

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
    paths = folder / f"{name}.toml", folder / f"{name}{_CURVES_SUFFIX}"
    for path in paths:
        if path.exists() and not path.is_file():
            raise RequestError("out", f"{str(path)!r} is there and is no file.")
        if path.exists() and not replaces:
            raise RequestError("name", f"{str(path)!r} is there already; `force` replaces it.")
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
        told = f"`out`: {str(folder)!r} cannot be written: {error.strerror}."
        raise RequestError(told) from None
    return paths


def _read_back(path: Path) -> None:
    try:
        read_network(path)
    except DataError as error:
        told = str(error).partition(f"{path.name}: ")[2] or str(error)
        raise DataError(
            f"what was measured makes no network ({told}); is a time or size in another unit?"
        ) from None


DEFAULT = Path("profiles") / "networks"
IMPORT_LOGS_SCHEMA = "perfsim/calibrate-import/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class MadeNetwork:
    """What was written, the report of the fit, and the damaged lines that were left out."""

    name: str
    network: Path
    curves: Path
    report: str
    fit: NetworkFit
    skipped: tuple[str, ...] = ()
    schema: str = IMPORT_LOGS_SCHEMA

    @property
    def use(self) -> str:
        """The command that predicts on the network."""
        gpus = max(curve.ranks for curve in self.fit.curves)
        command = f"now: perfsim predict --model resnet50 --gpus {gpus} --net"
        folder = self.network.parent
        if folder == DEFAULT:
            return f"{command} {self.name}"
        if folder.name == DEFAULT.name:
            return f"{command} {self.name} `profiles` {quote(str(folder.parent))}"
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
    curves: Sequence[CollectiveCurve],
    name: str,
    *,
    folder: Path | None = None,
    title: str | None = None,
    source: str = "",
    transport: str = "unknown",
    nics_per_node: int = 1,
    date: str = "not stated",
    notes: Sequence[str] = (),
    schema: str = IMPORT_LOGS_SCHEMA,
    skipped: Sequence[str] = (),
    full: bool = False,
    force: bool = False,
    profiles: str | Path | None = None,
) -> MadeNetwork:
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
    return MadeNetwork(name, network, beside, report, fit, tuple(skipped), schema)


def check_name(name: str, transport: str, nics_per_node: int) -> None:
    """Refuse a name that no network may have, an empty transport, no NIC."""
    if not NAME.fullmatch(name):
        raise RequestError(
            "name",
            f"{shown(name)} is no name of a network; letters, digits, '.', '_' and '-',"
            " at most 64, such as our-cluster.",
        )
    if _BARE_NUMBER.fullmatch(name):
        raise RequestError(
            "name", f"{shown(name)} reads as a number, which `net` takes for a rate; add a letter."
        )
    if (shipped() / "networks" / f"{name}.toml").is_file():
        raise RequestError(
            "name", f"{name!r} is a network that ships with perfsim; take another name."
        )
    if not transport.strip():
        raise RequestError("transport", "is empty; write a word such as tcp, ib, efa or nvlink.")
    if nics_per_node < 1:
        raise RequestError("nics_per_node", f"{nics_per_node}; at least 1.")


FIELDS = (
    "source", "kind", "series", "gpu", "fabric", "library", "version", "algorithm", "protocol",
    "spread",
)  # fmt: skip
DEFAULTS = {"algorithm": "", "protocol": "", "version": "", "gpu": "", "fabric": "", "spread": None}
BASE = ("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us")


def as_csv(curves: Sequence[CollectiveCurve]) -> str:
    """Return the table: what all curves share in the header, what differs in columns.

    Raises
    ------
    DataError
        If there is no curve, or a text holds a line break.

    Examples
    --------
    >>> curve = CollectiveCurve("reduce", 2, 2, 1, (8.0,), (1.25e-05,), "measured", "here", series="two")
    >>> print(as_csv([curve]), end="")
    # schema: perfsim/curves/1
    # source: here
    # kind: measured
    # series: two
    # library: nccl
    collective,ranks,nodes,gpus_per_node,size_bytes,time_us
    reduce,2,2,1,8,12.5
    """
    if not curves:
        raise DataError("there is no curve to write")
    values = {field: [_text(getattr(curve, field)) for curve in curves] for field in FIELDS}
    shared = {field: told[0] for field, told in values.items() if len(set(told)) == 1}
    differing = [field for field in FIELDS if field not in shared]
    out = io.StringIO()
    out.write(f"# schema: {CURVES_CSV_SCHEMA}\n")
    for field, told in shared.items():
        if told or field not in DEFAULTS:
            out.write(f"# {field}: {told}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*BASE, *differing])
    for place, curve in enumerate(curves):
        fixed = [curve.collective, curve.ranks, curve.nodes, curve.gpus_per_node]
        rest = [values[field][place] for field in differing]
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
            writer.writerow([*fixed, _size(size), _microseconds(seconds), *rest])
    return out.getvalue()


def write_csv(curves: Sequence[CollectiveCurve], path: Path | str) -> None:
    """Write the table to a file, whole or not at all.

    Raises
    ------
    RequestError
        If the file cannot be written.
    """
    write_text(Path(path), as_csv(curves))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value).strip()
    if len(text.splitlines()) > 1:
        raise DataError(f"{text.splitlines()[0]!r}...: a text with a line break has no cell")
    return text


def _size(size: float) -> str:
    return str(int(size)) if size == int(size) and size < 2**53 else repr(size)


def _microseconds(seconds: float) -> str:
    """Return the microseconds to the last digit, so that reading gives the same seconds."""
    return format(Decimal(repr(seconds)).scaleb(6).normalize(), "f")
