"""doctor(): which optional parts are installed here, and what this machine could measure.

Nothing is measured and nothing is written. PyTorch is imported if it is there, since only it knows
whether it sees a GPU.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perfsim import __version__
from perfsim.data.catalog import FILE_SUFFIXES, Catalog, is_own, shipped

__all__ = ["DOCTOR_SCHEMA", "Diagnosis", "Part", "doctor"]

DOCTOR_SCHEMA = "perfsim/doctor/1"

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Commands of browsers that Kaleido draws with."""

_INTERFACES = Path("/sys/class/net")
"""Where Linux lists network interfaces."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something optional that is here or not.

    Parameters
    ----------
    purpose : what it is for
    found : what is here, with its version; "" if it is missing
    mend : what to type or do where it is missing
    """

    purpose: str
    found: str
    mend: str

    @property
    def there(self) -> bool:
        """Whether it is here."""
        return bool(self.found)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `doctor` found; `to_dict` has it as plain data.

    Parameters
    ----------
    own_files : the user's data files that are read besides those that ship, by kind
    optional : optional parts of perfsim
    measuring : what measuring on this machine needs
    """

    perfsim: str
    python: str
    system: str
    own_files: dict[str, list[str]]
    optional: list[Part]
    measuring: list[Part]

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data, by the contract perfsim/doctor/1."""
        return {"schema": DOCTOR_SCHEMA, **asdict(self)}


def doctor(profiles: str | Path | None = None) -> Diagnosis:
    """Say which optional parts are installed, and what this machine could measure.

    Parameters
    ----------
    profiles : a folder of the user's own data files

    Raises
    ------
    RequestError
        If ``profiles`` is no folder of data files.

    Examples
    --------
    >>> [part.purpose for part in doctor().optional][:2]
    ['charts in notebooks (.plot())', 'pictures (--png)']
    """
    return Diagnosis(
        __version__,
        platform.python_version(),
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        _own_files(Catalog(profiles)),
        list(_optional()),
        [*_measuring(), _found_here(Catalog(profiles))],
    )


def _own_files(catalog: Catalog) -> dict[str, list[str]]:
    """Return the user's own data files by kind; a copy of a shipped file is none."""
    found = {
        kind: [
            str(path)
            for name, path in catalog.files(kind).items()
            if is_own(path) and (not _ships(kind, name) or catalog.shadowed(kind, name))
        ]
        for kind in FILE_SUFFIXES
    }
    return {kind: paths for kind, paths in found.items() if paths}


def _ships(kind: str, name: str) -> bool:
    """Tell whether a data file of that name ships with perfsim."""
    return (shipped() / kind / f"{name}{FILE_SUFFIXES[kind]}").is_file()


def _optional() -> Iterator[Part]:
    yield _packages("charts in notebooks (.plot())", "report", "plotly")
    pictures = _packages("pictures (--png)", "png", "plotly", "kaleido")
    browser = next((name for name in _BROWSERS if shutil.which(name)), "")
    if pictures.there and not browser:
        pictures = Part(pictures.purpose, "", "install Chrome or Chromium: Kaleido draws with it")
    elif pictures.there:
        pictures = Part(pictures.purpose, f"{pictures.found}, {browser}", "")
    yield pictures
    yield _packages("what-if page (perfsim app)", "app", "flask")
    yield _packages("pandas tables (to_pandas)", "pandas", "pandas")
    yield _packages("Parquet files of sweeps", "parquet", "pyarrow")
    yield _packages("sweeps on many machines", "dask", "dask", "distributed")


def _packages(purpose: str, extra: str, *names: str) -> Part:
    """Return whether all packages of an extra are installed."""
    found = [(name, _installed(name)) for name in names]
    if all(number for _, number in found):
        return Part(purpose, ", ".join(f"{name} {number}" for name, number in found), "")
    return Part(purpose, "", f"pip install 'perfsim[{extra}]'")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _measuring() -> Iterator[Part]:
    torch = _packages("calibrate compute, kernels, network", "calibrate", "torch")
    yield torch
    yield _gpus(torch.there)
    yield _command("starting ranks on several hosts", "torchrun", "comes with PyTorch")
    if _installed("mpi4py") and shutil.which("mpirun"):
        yield Part("calibrate network --backend mpi", f"mpi4py {_installed('mpi4py')}, mpirun", "")
    else:
        yield Part(
            "calibrate network --backend mpi", "", "pip install mpi4py, and install Open MPI"
        )
    yield _network()


def _gpus(torch_there: bool) -> Part:
    """Return which GPUs PyTorch sees, and by which names perfsim knows them."""
    purpose = "a GPU that PyTorch sees"
    if not torch_there:
        return Part(purpose, "", "install PyTorch first")
    import torch

    if not torch.cuda.is_available():
        driver = next((name for name in ("nvidia-smi", "rocm-smi") if shutil.which(name)), "")
        why = f"{driver} is here: this PyTorch is built without it" if driver else "no GPU here"
        return Part(purpose, "", f"{why}; measuring on the CPU works (--device cpu)")
    from perfsim.calibrate.measure.device import device_name

    catalog = Catalog()
    known = catalog.files("devices")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    words = []
    for name, count in counts.items():
        own = device_name(name, catalog)
        as_known = f"{own} here" if own in known else f"no device file: it would be {own}"
        words.append(f"{count} x {name} ({as_known})")
    return Part(purpose, ", ".join(words), "")


def _found_here(catalog: Catalog) -> Part:
    """Return what this machine and the job on it say of themselves, as `perfsim init` takes it."""
    from perfsim.machine import look_around

    machine = look_around(catalog)
    words = [
        f"{name.replace('_', ' ')} {found.value} ({found.source})"
        for name, found in machine.fields.items()
    ]
    mend = " ".join(machine.remarks) or "no job, GPU or cloud's node type that says so: name yours"
    return Part("GPUs and node type (perfsim init)", ", ".join(words), "" if words else mend)


def _command(purpose: str, name: str, mend: str) -> Part:
    """Return whether a command is there, on the path or beside this Python."""
    beside = Path(sys.executable).with_name(name)
    there = shutil.which(name) is not None or beside.exists()
    return Part(purpose, name if there else "", mend if not there else "")


def _network() -> Part:
    """Return the network interfaces that ranks of several hosts could use."""
    purpose = "a network to other hosts"
    names = sorted(path.name for path in _INTERFACES.glob("*")) if _INTERFACES.is_dir() else []
    up = [name for name in names if name != "lo" and _is_up(name)]
    if not up:
        return Part(purpose, "", "no interface but loopback is up (one host can be measured)")
    cards = Path("/sys/class/infiniband")
    rdma = sorted(path.name for path in cards.glob("*")) if cards.is_dir() else []
    words = ", ".join(up) + (f"; RDMA: {', '.join(rdma)}" if rdma else "")
    return Part(purpose, words, "")


def _is_up(name: str) -> bool:
    try:
        return (_INTERFACES / name / "operstate").read_text().strip() in ("up", "unknown")
    except OSError:
        return False
