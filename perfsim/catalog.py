"""Where data files are: a user's own folders first, then what ships with perfsim."""

from __future__ import annotations

import os
from pathlib import Path

from perfsim.errors import RequestError, unknown

__all__ = ["Catalog", "shipped"]

SUFFIXES = {"models": ".csv", "devices": ".toml", "networks": ".toml", "measurements": ".csv"}


def shipped(folder: str = "profiles") -> Path:
    """Return the shipped ``profiles`` or ``scenarios`` folder, of a wheel or of a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


class Catalog:
    """Finds files by kind and name in --profiles DIR, PERFSIM_PATH, ./profiles and the shipped set.

    The first folder that has a name wins.

    Raises
    ------
    RequestError
        If --profiles or an entry of PERFSIM_PATH is not a folder.
    """

    def __init__(self, profiles: str | Path | None = None) -> None:
        named = [("--profiles", Path(profiles))] if profiles else []
        named += [
            ("PERFSIM_PATH", Path(part))
            for part in os.environ.get("PERFSIM_PATH", "").split(os.pathsep)
            if part
        ]
        for field, folder in named:
            if not folder.is_dir():
                raise RequestError(f"{field}: {str(folder)!r} is not a folder.")
        local = Path("profiles")
        folders = [folder for _, folder in named] + ([local] if local.is_dir() else [])
        folders.append(shipped())
        self.folders = list({folder.resolve(): folder for folder in folders}.values())

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind (models, devices, networks)."""
        suffix = SUFFIXES[kind]
        found: dict[str, Path] = {}
        for folder in self.folders:
            for path in sorted((folder / kind).glob(f"*{suffix}")):
                found.setdefault(path.name.removesuffix(suffix), path)
        return found

    def path(self, kind: str, name: str, field: str, listing: str) -> Path:
        """Return the file of one name.

        Raises
        ------
        RequestError
            If there is none; the message gives the nearest match.
        """
        files = self.files(kind)
        if name not in files:
            raise unknown(field, name, files, listing)
        return files[name]

    def scenarios(self) -> dict[str, Path]:
        """Return the shipped scenarios by name."""
        return {path.stem: path for path in sorted(shipped("scenarios").glob("*.toml"))}

    def scenario(self, name: str) -> Path:
        """Return a scenario's file: a path that exists, or the name of a shipped one.

        Raises
        ------
        RequestError
            If it is neither.
        """
        path = Path(name)
        found = self.scenarios()
        if path.is_file():
            return path
        if name in found:
            return found[name]
        raise unknown("--scenario", name, found, "scenarios")
