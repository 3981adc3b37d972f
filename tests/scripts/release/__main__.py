"""Build what is released, and try it on each Python.

``python tests/scripts/release [--python PYTHON ...] [--keep FOLDER]`` prints a line a check and
ends with 1 if one fails (``results.txt``: what it last printed). It builds the archives twice, in
copies of other rights, times and folders; installs each in fresh environments; asks for a
prediction; and runs a short set of tests from the unpacked archive of sources. Without
``--python``, it takes all of python3.11 to python3.14 that are on the PATH and names those that are
not. It needs the extra `release` and a package index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
QUESTION = "predict --model resnet50 --gpus 64 --net 1gbe --method dgc --json"
TESTS = (
    "tests/test_api.py",
    "tests/test_prediction.py",
    "tests/cli/test_predict.py",
    "tests/collectives",
    "tests/data",
    "tests/product/test_oracle.py",
    "tests/product/test_structure.py",
    "tests/product/test_wheel.py",
    "tests/test_sums.py",
)
"""Some tests of each kind, a minute in all; one builds the wheel again."""

TOO_OLD = "setuptools==68.2.2"
MADE_BY_BUILD = {"PKG-INFO", "setup.cfg"}


class FailedError(Exception):
    """A check failed; the message says how."""


def run(*words: object, folder: Path, fails: bool = False) -> str:
    """Run a command without settings of whoever runs this; return what it printed."""
    own = ("PYTHONPATH", "PERFSIM_PATH", "PYTHONHOME", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH")
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key not in own},
        capture_output=True,
        text=True,
        check=False,
    )
    printed = f"{done.stdout}{done.stderr}"
    if (done.returncode != 0) != fails:
        raise FailedError(f"{words[0]}: exit {done.returncode}: {printed[-2000:]}")
    return printed if fails else done.stdout


def tracked() -> list[str]:
    """Return the paths of the files that git tracks."""
    return run("git", "ls-files", folder=ROOT).splitlines()


def copied(folder: Path, rights: int, date: int) -> Path:
    """Copy the tracked files into a folder, with rights of their own and a date [s]."""
    for name in tracked():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path)
        path.chmod(rights | (path.stat().st_mode & 0o100))
        os.utime(path, (date, date))
    return folder


def built(work: Path) -> tuple[Path, Path, str]:
    """Build twice and return the wheel, the archive of sources and what is said of them."""
    found = []
    first = copied(work / "checkout0", 0o644, 1_600_000_000)
    second = copied(work / "checkout1", 0o600, 1_700_000_000)
    for number, source in enumerate((first, second)):
        dist = work / f"dist{number}"
        # By the archive of sources the first time, from the checkout itself the second.
        way = () if number == 0 else ("--sdist", "--wheel")
        run(sys.executable, "-m", "build", *way, "--outdir", dist, source, folder=work)
        found.append({path.name: digest(path) for path in sorted(dist.iterdir())})
    if found[0] != found[1] or len(found[0]) != 2:
        raise FailedError(f"two builds differ: {found}")
    wheel, sources = sorted((work / "dist0").iterdir(), key=lambda path: path.suffix != ".whl")
    told = "; ".join(f"{name} {code[:12]}" for name, code in found[0].items())
    return wheel, sources, f"the same bytes, the wheel also from the sdist ({told})"


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def complete(wheel: Path, sources: Path) -> str:
    """Check that the archive of sources holds all that git tracks, and nothing else."""
    with tarfile.open(sources) as archive:
        names = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    names = {name for name in names if not name.startswith("perfsim.egg-info/")} - MADE_BY_BUILD
    if names != (want := set(tracked())):
        raise FailedError(f"missing: {sorted(want - names)}; too many: {sorted(names - want)}")
    with zipfile.ZipFile(wheel) as archive:
        count = len(archive.namelist())
    sizes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sources)]
    return f"wheel {count} files, {sizes[0]}; sdist {len(names)} files, {sizes[1]}"


def schemas(work: Path) -> str:
    """Check the citation and the workflows against their schemas."""
    flows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    for schema, files in (
        ("citation-file-format", [ROOT / "CITATION.cff"]),
        ("github-workflows", flows),
    ):
        words = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
        run(*words, *files, folder=work)
    return f"CITATION.cff, {', '.join(path.name for path in flows)}"


def refused_by_old(sources: Path, work: Path) -> str:
    """Check what is said where setuptools is too old to build."""
    python = environment(sys.executable, work / "old")
    install(python, TOO_OLD, "wheel", folder=work)
    told = run(*pip(python), "install", "--no-build-isolation", sources, folder=work, fails=True)
    lines = [line.strip() for line in told.splitlines() if "perfsim is built by" in line]
    if not lines or "Traceback" in told:
        raise FailedError(told[-2000:])
    return lines[0]


def environment(python: str, folder: Path) -> Path:
    """Make an empty environment and return its interpreter."""
    run(python, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    return folder / "bin" / "python"


def pip(python: Path) -> tuple[object, ...]:
    """Return the words of this pip for an environment."""
    return (sys.executable, "-m", "pip", "--quiet", "--python", python)


def install(python: Path, *what: object, folder: Path) -> None:
    """Install packages or archives into an environment."""
    run(*pip(python), "install", *what, folder=folder)


def answer(python: Path, folder: Path) -> str:
    """Ask for the main prediction, in an empty folder, and return its time."""
    printed = run(python.parent / "perfsim", *QUESTION.split(), folder=folder)
    return f"{json.loads(printed)['iteration_s']:.9g} s"


def tried(python: str, wheel: Path, sources: Path, work: Path) -> str:
    """Install both archives on one Python and ask and test them there."""
    own = environment(python, work / "wheel")
    install(own, wheel, folder=work)
    empty = work / "empty"
    empty.mkdir()
    first = answer(own, empty)
    other = environment(python, work / "sdist")
    install(other, f"perfsim[test] @ {sources.as_uri()}", folder=work)
    second = answer(other, empty)
    if first != second or list(empty.iterdir()):
        raise FailedError(
            f"the wheel says {first}, the sdist {second}; left: {list(empty.iterdir())}"
        )
    with tarfile.open(sources) as archive:
        archive.extractall(work, filter="data")
    (unpacked,) = work.glob("perfsim-*")
    install(other, "--editable", unpacked, "pip", folder=work)
    words = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *TESTS)
    return f"{first}; {run(other, *words, folder=unpacked).splitlines()[-1].strip('= ')}"


def line(name: str, check: Callable[[], str]) -> bool:
    """Print what a check says, and say whether it passed."""
    try:
        told, passed = check(), True
    except FailedError as error:
        told, passed = str(error), False
    print(f"{name:16}{'ok' if passed else 'FAILED':8}{told}", flush=True)
    return passed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="*", help="interpreters; else all on the PATH")
    parser.add_argument("--keep", type=Path, help="a folder for the archives")
    asked = parser.parse_args()
    absent = [] if asked.python else [v for v in VERSIONS if not shutil.which(f"python{v}")]
    pythons = asked.python or [f"python{v}" for v in VERSIONS if v not in absent]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        try:
            wheel, sources, told = built(work)
        except FailedError as error:
            sys.exit(f"build: {error}")
        good = [line("two builds", lambda: told)]
        good.append(line("complete", lambda: complete(wheel, sources)))
        check = (sys.executable, "-m", "twine", "check", "--strict", wheel, sources)
        good.append(
            line(
                "metadata", lambda: f"twine check: {run(*check, folder=work).count('PASSED')} of 2"
            )
        )
        good.append(line("schemas", lambda: schemas(work)))
        good.append(line("old setuptools", lambda: refused_by_old(sources, work)))
        for number, python in enumerate(pythons):
            version = run(
                python, "-c", "import platform as p; print(p.python_version())", folder=work
            )
            own = work / f"python{number}"
            own.mkdir()
            good.append(
                line(f"Python {version.strip()}", lambda: tried(python, wheel, sources, own))  # noqa: B023
            )
        for version in absent:
            print(f"Python {version:9}absent  no python{version} on the PATH")
        if asked.keep and all(good):
            asked.keep.mkdir(parents=True, exist_ok=True)
            for path in (wheel, sources):
                shutil.copy(path, asked.keep)
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
