"""``perfsim calibrate kernels``: from the device at hand to its files of kernels and rates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from perfsim.calibrate.gpu_name import device_name
from perfsim.calibrate.kernels.bench import Bench
from perfsim.calibrate.kernels.benches import chosen
from perfsim.calibrate.kernels.device_of import NEEDED, Figures, device_text, figures
from perfsim.calibrate.kernels.journal import Journal
from perfsim.calibrate.kernels.place import Place
from perfsim.calibrate.kernels.points_file import check_points, other_rows, points_text
from perfsim.calibrate.kernels.report import Line, lines, noisy
from perfsim.calibrate.kernels.running import Tell, run
from perfsim.calibrate.kernels.timing import Rule
from perfsim.catalog import Catalog
from perfsim.device import POINTS, Device, read_device
from perfsim.errors import PerfsimError, RequestError
from perfsim.files import write_text

__all__ = ["Measured", "Wanted", "calibrate_kernels"]

SCHEMA = "perfsim/calibrate-kernels/1"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
MOST = {"cuda": 2**28, "cpu": 2**24}
"""fp32 values of the largest input: 1 GiB of a GPU, 64 MiB of a CPU, past the caches of either."""


class StoppedError(PerfsimError):
    """The user stopped a run, or the device failed."""


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    Parameters
    ----------
    out : folder of profiles; files go below its devices/
    gpu : the device's name in perfsim's words; None is found from what the driver says
    device : cuda or cpu; None is a GPU if there is one
    kernels : which; empty is all
    most : fp32 values of the largest input; None is `MOST`
    rule : when points, kernels and the run are done
    device_file : write GPU.toml even where that GPU is known, with its rates and new figures
    title : one line on what the device is; None is what the driver calls it
    fresh : measure anew what an interrupted run has left
    force : replace points of these kernels that are there
    """

    out: Path = Path("profiles")
    gpu: str | None = None
    device: str | None = None
    kernels: tuple[str, ...] = ()
    most: int | None = None
    rule: Rule = field(default_factory=Rule)
    device_file: bool = False
    title: str | None = None
    fresh: bool = False
    force: bool = False


@dataclass(frozen=True)
class Measured:
    """The files written, and what stands in them.

    Parameters
    ----------
    gpu : the device's name in perfsim's words
    points, device : files; None where no device file was to be written or too little was measured
    table, figures : what was found
    stopped : kernels that ended before their largest size, and why
    cut : kernels for which no time was left
    noisy : points with few repeats or a wide interval
    missing : figures without which the device file that was to be written was not
    """

    gpu: str
    points: Path
    device: Path | None
    table: tuple[Line, ...]
    figures: Figures
    stopped: tuple[str, ...]
    cut: tuple[str, ...]
    missing: tuple[str, ...]
    noisy: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate kernels --json`` prints."""
        return {
            "schema": SCHEMA,
            "gpu": self.gpu,
            "points": str(self.points),
            "device": str(self.device) if self.device else None,
            "figures": {name: value for name, (value, _, _) in self.figures.items()},
            "kernels": [{**asdict(line), "over": line.over} for line in self.table],
            "stopped": list(self.stopped),
            "out_of_time": list(self.cut),
            "noisy": list(self.noisy),
        }


def calibrate_kernels(wanted: Wanted, tell: Tell) -> Measured:
    """Measure kernels on this machine and write their points, and a device file where none is.

    Parameters
    ----------
    wanted : what was asked for
    tell : is told of progress

    Raises
    ------
    RequestError
        If the request cannot be met, or a file cannot be written.
    StoppedError
        If the user stops it or the device fails: what was measured is kept.
    """
    place = Place(wanted.device)
    known = Catalog(wanted.out if (wanted.out / "devices").is_dir() else None)
    name = wanted.gpu or device_name(place.word, known.files("devices"))
    if not NAME.fullmatch(name) or name == "any":
        raise RequestError(f"--gpu: {name!r} is no name; lower-case letters, digits and '-'.")
    benches = chosen(place, wanted.kernels)
    folder = wanted.out / "devices"
    journal = _journal(wanted, folder, name, place)
    try:
        most = wanted.most or MOST[place.device]
        cut = run(benches, place, most, wanted.rule, journal, tell)
    except (KeyboardInterrupt, RuntimeError) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else f"the device failed ({error})"
        raise StoppedError(
            f"calibrate kernels: {why.splitlines()[0]}; {len(journal.points)} points are kept in"
            f" {journal.path}, and the same command goes on from there."
        ) from None
    if not journal.points:
        journal.remove()
        why = f": {journal.stops[0].why}" if journal.stops else " in the time given"
        raise RequestError(f"calibrate kernels: no kernel could be measured{why}.")
    made = _write(wanted, place, known, name, benches, journal, cut)
    if not cut:
        journal.remove()
    return made


def _journal(wanted: Wanted, folder: Path, name: str, place: Place) -> Journal:
    """Return the record of this run, or of the one to go on with."""
    path = folder / f"{name}.kernels.jsonl"
    points = folder / f"{name}{POINTS}"
    if points.exists() and not (wanted.force or path.exists()):
        raise RequestError(
            f"--out: {str(points)!r} is there already; --force measures anew, and keeps the points"
            " of kernels that are not measured."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out: {str(folder)!r}: {error.strerror}.") from None
    setting = {"device": place.word, "software": place.software}
    return Journal(path, setting, fresh=wanted.fresh)


def _write(
    wanted: Wanted,
    place: Place,
    known: Catalog,
    name: str,
    benches: Sequence[Bench],
    journal: Journal,
    cut: Sequence[str],
) -> Measured:
    """Write the files, each whole and only if it reads back."""
    path = wanted.out / "devices" / f"{name}{POINTS}"
    stopped = list(map(str, journal.stops))
    today = date.today().isoformat()
    source = f"perfsim calibrate kernels on {place.word}, {today}"
    about = {
        "gpu": name,
        "software": place.software,
        "source": source,
        "licence": "the measurer's own",
        "date": today,
        "left out": "; ".join([*stopped, *(f"{one}: no time left" for one in cut)]),
    }
    before = path if path.is_file() else known.beside("devices", name, POINTS)
    kept = other_rows(before, {point.kernel for point in journal.points})
    text = points_text(benches, journal, about) + kept
    check_points(text, name)
    found = figures(journal)
    toml = _device_file(wanted, place, known, name, found, source)
    write_text(path, text)
    device = None
    if toml:
        device = path.with_name(f"{name}.toml")
        write_text(device, toml)
    counts = lines(benches, journal, _device(known, name, device))
    asked = wanted.device_file or name not in known.files("devices")
    missing = tuple(word for word in NEEDED if word not in found) if asked else ()
    left = tuple(stopped), tuple(cut), missing, tuple(noisy(journal.points))
    return Measured(name, path, device, tuple(counts), found, *left)


def _device_file(
    wanted: Wanted, place: Place, known: Catalog, name: str, found: Figures, source: str
) -> str | None:
    """Return the text of a device file where one is to be written and enough was measured."""
    from perfsim.toml_file import read_toml

    path = known.files("devices").get(name)
    if path and not wanted.device_file:
        return None
    before: Mapping[str, Any] | None = read_toml(path).values if path else None
    title = wanted.title or place.word
    return device_text(name, title, place.memory_bytes, found, source, before)


def _device(known: Catalog, name: str, written: Path | None) -> Device | None:
    path = written or known.files("devices").get(name)
    return read_device(path) if path else None
