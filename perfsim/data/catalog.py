"""Where data files are: a user's own folders first, then what ships with perfsim."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from filecmp import cmp
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

from perfsim.data.files import Stamp, forbidden, is_there, near_file, no_file, noting
from perfsim.errors import (
    DataError,
    MissingFileError,
    RequestError,
    UnknownNameError,
    any_of,
    own_name,
    shown,
    unknown,
)

__all__ = [
    "RECORDS",
    "Catalog",
    "OwnFiles",
    "is_changed",
    "is_own",
    "own_files_noted",
    "owner_of",
    "owners_of",
    "read_elsewhere",
    "shipped",
    "unknown_name",
]

Made = TypeVar("Made")

FILE_SUFFIXES = {
    "models": ".csv",
    "devices": ".toml",
    "networks": ".toml",
    "nodes": ".toml",
    "measurements": ".csv",
}
_BESIDE_SUFFIXES = {
    "models": (".positions.csv",),
    "devices": (".kernels.csv", ".anchors.csv", ".products.csv"),
    "networks": (".curves.csv",),
    "measurements": (
        *("limits.csv", "sources.csv", "record.csv", "summary.csv", "uncertainty.csv"),
        "clusters.csv",
        "kernels.csv",
        *("low_communication.csv", "memory.csv", "one_gpu_errors.csv", "parallel.csv"),
        "peer_cases.csv",
    ),
}
"""Endings of files that belong to another file of their folder and are no data set themselves."""


RECORDS = ("measurements", "learning", "methods")
"""Folders of records: how wrong predictions have been, what tables' words mean, how methods learn.

They decide intervals and verdicts of every answer, so a folder of these counts only where the user
names it (``profiles``), not where it is found."""

_KINDS = tuple(dict.fromkeys((*FILE_SUFFIXES, *RECORDS)))
"""Folders of which ``profiles`` holds at least one."""


@dataclass(slots=True)
class OwnFiles:
    """What was read of the user's folders in a block of `own_files_noted`.

    ``passed_over`` are records that no one asked for: they lie in a folder that was only found.
    ``elsewhere`` says that other processes, or an earlier run, read files of the folders as well;
    ``told`` that the user knows.
    """

    read: dict[str, Stamp] = field(default_factory=dict)
    folders: dict[Path, None] = field(default_factory=dict)
    passed_over: dict[Path, None] = field(default_factory=dict)
    elsewhere: bool = False
    told: bool = False

    def differing(self) -> list[Path]:
        """Return the files of the user's folders that were read and are no copy of what ships."""
        paths = list(map(Path, self.read))
        if self.elsewhere:
            paths += [path for folder in self.folders for path in _files_in(folder)]
        folders = [(folder, folder.resolve()) for folder in self.folders]
        found: dict[Path, None] = {}
        for path in paths:
            whole = path.resolve()
            for _, folder in folders:
                if whole.is_relative_to(folder) and not _is_copy(
                    path, shipped() / whole.relative_to(folder)
                ):
                    found[path] = None
        return list(found)

    def records_passed_over(self) -> list[Path]:
        """Return the records that were looked for, and lie in a folder that was only found."""
        return [
            path
            for path in self.passed_over
            if not _is_copy(path, shipped() / path.parent.name / path.name)
        ]


_OWN: ContextVar[OwnFiles | None] = ContextVar("_OWN", default=None)


@contextmanager
def own_files_noted() -> Iterator[OwnFiles]:
    """Note which files of the user's folders are read meanwhile.

    Examples
    --------
    >>> with own_files_noted() as own:
    ...     folders = Catalog().folders
    >>> own.differing()
    []
    """
    own = OwnFiles()
    token = _OWN.set(own)
    try:
        with noting(own.read):
            yield own
    finally:
        _OWN.reset(token)


def read_elsewhere() -> OwnFiles | None:
    """Note that other processes read the user's files, or an earlier run did: all of them count.

    Returns what is noted, None outside of `own_files_noted`.
    """
    own = _OWN.get()
    if own is not None:
        own.elsewhere = True
    return own


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the data files of a user's folder."""
    for kind, suffix in FILE_SUFFIXES.items():
        yield from (folder / kind / name for name in _names(folder / kind, suffix))


def _names(folder: Path, suffix: str) -> list[str]:
    """Return the names in a folder that end so, sorted; none of a folder that cannot be listed."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(suffix))
    except OSError:
        return []


def _is_copy(path: Path, ships: Path) -> bool:
    try:
        return cmp(path, ships, shallow=False)
    except OSError:
        return False


@cache
def shipped(folder: str = "profiles") -> Path:
    """Return the shipped ``profiles`` or ``scenarios`` folder, of a wheel or of a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def is_own(path: str | Path) -> bool:
    """Tell whether a data file is the user's own, not one that ships."""
    return not Path(path).resolve().is_relative_to(shipped().resolve())


def is_changed(path: str | Path, kind: str = "models") -> bool:
    """Tell whether a data file of some kind is the user's own and no copy of the shipped one."""
    return (
        bool(path) and is_own(path) and not _is_copy(Path(path), shipped() / kind / Path(path).name)
    )


_OWNERS = re.compile(r"(?<![a-z0-9-])([a-z0-9][a-z0-9-]{0,38})/")
"""Owners of the repositories that a source names in small letters, and words like them."""


def owner_of(source: str) -> str:
    """Return the owner of the repository that a source names first, in small letters."""
    return source.partition("/")[0].lower()


@lru_cache(maxsize=256)  # the rows of a file name few sources, which each session reads again
def owners_of(source: str) -> frozenset[str]:
    """Return the owners of all repositories that a source names, in small letters.

    Words before a slash that are no owners are among them.

    Examples
    --------
    >>> sorted(owners_of("A. Person 2022 (authors of Some-Lab/code), also other/code @1"))
    ['other', 'some-lab']
    """
    return frozenset(_OWNERS.findall(source.lower()))


class Catalog:
    """Finds data files by kind and name; the first folder that has a name wins.

    The folders are ``profiles``, those of the environment variable PERFSIM_PATH, ./profiles, and
    the shipped one. Records (`RECORDS`) are taken from ``profiles`` and the shipped folder alone.

    Parameters
    ----------
    profiles : the first folder to look in
    without : owners of repositories, in small letters, whose whole training iterations (anchors,
        totals of profiles) are left out: so predictions of what they published are judged
    without_kernels : the same of measured kernels

    Raises
    ------
    RequestError
        If ``profiles`` or an entry of PERFSIM_PATH is not a folder, or one without data.
    DataError
        If perfsim's own data are in no folder.
    """

    given: str | Path | None = None
    folders: list[Path]
    record_folders: list[Path]
    without: frozenset[str] = frozenset()
    without_kernels: frozenset[str] = frozenset()

    def __init__(
        self,
        profiles: str | Path | None = None,
        without: Collection[str] = frozenset(),
        without_kernels: Collection[str] = frozenset(),
    ) -> None:
        self.given, self.without = profiles, frozenset(without)
        self.without_kernels = frozenset(without_kernels)
        if isinstance(profiles, str) and not profiles.strip():
            why = f"is empty; give a folder that holds {_any_folder(_KINDS)}."
            raise RequestError("profiles", why)
        named = [("profiles", profiles)] if profiles is not None else []
        named += [
            ("PERFSIM_PATH", part)
            for part in os.environ.get("PERFSIM_PATH", "").split(os.pathsep)
            if part
        ]
        given = [_folder(field, Path(name)) for field, name in named]
        local = Path("profiles")
        folders = given + ([local] if local.is_dir() else [])
        if not shipped().is_dir():
            why = "is no folder; perfsim needs its data files there, and runs from no zip file"
            raise DataError(why, path=shipped())
        folders.append(shipped())
        self.folders = list({folder.resolve(): folder for folder in folders}.values())
        asked = {folder.resolve() for folder in (*given[: profiles is not None], shipped())}
        self.record_folders = [one for one in self.folders if one.resolve() in asked]
        own = _OWN.get()
        if own is not None:
            own.folders |= dict.fromkeys(folder for folder in self.folders if is_own(folder))

    def folders_of(self, kind: str) -> list[Path]:
        """Return the folders in which files of one kind count; records only where they are named.

        Records are what `RECORDS` lists.
        """
        return self.record_folders if kind in RECORDS else self.folders

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of this catalog's files; a `Session` keeps it by its key."""
        return make()

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind (models, devices, networks)."""
        suffix = FILE_SUFFIXES[kind]
        paths: dict[str, Path] = {}
        for folder in [folder / kind for folder in self.folders_of(kind)]:
            for name in _names(folder, suffix):
                hidden = name.startswith(".") or forbidden(name)
                if not hidden and not name.endswith(_BESIDE_SUFFIXES.get(kind, ())):
                    paths.setdefault(name.removesuffix(suffix), folder / name)
        return paths

    def shadowed(self, kind: str, name: str) -> Path | None:
        """Return the user's file that replaces a shipped one of this name, None where none does.

        For a device, its kernel points or anchors count too. A copy of the shipped file, as in a
        checkout, replaces nothing.
        """
        own = shipped().resolve()
        names = [
            f"{name}{suffix}" for suffix in (FILE_SUFFIXES[kind], *_BESIDE_SUFFIXES.get(kind, ()))
        ]
        ships = [file for file in names if (own / kind / file).is_file()]
        for folder in self.folders:
            if folder.resolve() == own:
                break
            for file in ships:
                path = folder / kind / file
                if path.is_file() and not cmp(path, own / kind / file, shallow=False):
                    return path
        return None

    def own_record(self, kind: str, name: str) -> Path | None:
        """Return the user's record that takes the place of a shipped one; None where it is a copy.

        It lies in the folder that the user names.
        """
        path = self.beside(kind, "", name)
        if path is None or not is_own(path) or _is_copy(path, shipped() / kind / name):
            return None
        return path

    def beside(self, kind: str, name: str, suffix: str) -> Path | None:
        """Return the first file ``name`` + ``suffix`` of one kind, None where no folder has it."""
        folders = self.folders_of(kind)
        own = _OWN.get()
        if own is not None:
            for folder in self.folders:
                path = folder / kind / f"{name}{suffix}"
                if folder not in folders and path.is_file():
                    own.passed_over[path] = None
        paths = (folder / kind / f"{name}{suffix}" for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    def path(self, kind: str, name: str, field: str, listing: str) -> Path:
        """Return the file of one name, in any case, with or without dashes.

        Raises
        ------
        RequestError
            If there is none; the message gives the nearest match.
        """
        files = self.files(kind)
        name = own_name(name, files)
        if name not in files:
            raise unknown_name(field, name, files, listing)
        return files[name]

    def scenarios(self) -> dict[str, Path]:
        """Return the shipped scenarios by name."""
        folder = shipped("scenarios")
        return {name.removesuffix(".toml"): folder / name for name in _names(folder, ".toml")}

    def scenario(self, name: str) -> Path:
        """Return a scenario's file: a path that exists, or the name of a shipped one.

        Raises
        ------
        RequestError
            If it is neither.
        """
        path = Path(name)
        names = self.scenarios()
        if is_there(name):
            return path
        if name in names:
            return names[name]
        if path.suffix == ".toml" or len(path.parts) > 1:
            raise MissingFileError(
                "scenario",
                f"there is no file {shown(name)}{near_file(path, ('.toml',))};"
                " `perfsim list scenarios` shows those that ship.",
                value=name,
            )
        raise unknown_name("scenario", name, names, "scenarios")


def unknown_name(field: str, name: str, names: Iterable[str], listing: str) -> RequestError:
    """Return the error for a name that is none, which says so where a folder has that name.

    Examples
    --------
    >>> print(unknown_name("net", "/", ["1gbe"], "networks"))
    net: '/' is a folder. Allowed: 1gbe (`perfsim list networks` shows them).
    """
    error = unknown(field, name, names, listing)
    found = no_file(name)
    if not found:
        return error
    why = f"{shown(name)} is {found}{error.why.removeprefix(f'no {shown(name)}')}"
    return UnknownNameError(field, why, value=name)


def _folder(field: str, folder: Path) -> Path:
    # PERFSIM_PATH is no field of a scenario: it is named as the source of the folder.
    field, source = ("", field) if field == "PERFSIM_PATH" else (field, "")
    if not _there(folder.is_dir):
        kind = RequestError if is_there(str(folder)) else MissingFileError
        raise kind(field, f"{shown(str(folder))} is not a folder.", source=source)
    kinds = _KINDS if field else tuple(FILE_SUFFIXES)  # records of PERFSIM_PATH do not count
    if not any(_there((folder / kind).is_dir) for kind in kinds):
        why = f"{shown(str(folder))} holds no {_any_folder(kinds)}."
        raise RequestError(field, why, source=source)
    return folder


def _any_folder(kinds: Sequence[str]) -> str:
    return any_of([f"{kind}/" for kind in kinds])


def _there(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a name too long, a folder that may not be entered
        return False
