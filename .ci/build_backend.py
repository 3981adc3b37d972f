"""The build backend: setuptools', with archives that come out the same each time.

pip and ``python -m build`` call these functions (PEP 517). Archives hold no time, owner or rights
of the machine that builds them, so that the same setuptools makes the same bytes from the same
files. ``SOURCE_DATE_EPOCH`` [s] sets the time that is written instead.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import setuptools

OLDEST = 77
"""The first setuptools that reads a licence as pyproject.toml states it (PEP 639)."""

if int(setuptools.__version__.partition(".")[0]) < OLDEST:
    raise SystemExit(
        f"perfsim is built by setuptools {OLDEST} or newer, and {setuptools.__version__} is here:"
        f" run pip install 'setuptools>={OLDEST}', or leave out --no-build-isolation."
    )

from setuptools import build_meta  # noqa: E402
from setuptools.build_meta import (  # noqa: E402
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.egg_info import manifest_maker  # noqa: E402

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

manifest_maker.template = ".ci/sdist.in"  # MANIFEST.in, which would stand at the top

DATE = 1577836800
"""The time of files [s since 1970] where SOURCE_DATE_EPOCH is not set: the start of 2020."""


def build_wheel(folder: str, settings: Any = None, metadata: str | None = None) -> str:
    """Build the wheel into a folder and return its name."""
    name = build_meta.build_wheel(folder, settings, metadata)
    path = Path(folder, name)
    with zipfile.ZipFile(path) as built:
        files = [(one, built.read(one)) for one in built.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for one, content in files:
            same = zipfile.ZipInfo(one.filename, time.gmtime(_date())[:6])
            same.external_attr = 0o100644 << 16
            wheel.writestr(same, content, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(folder: str, settings: Any = None) -> str:
    """Build the archive of sources into a folder and return its name."""
    name = build_meta.build_sdist(folder, settings)
    path = Path(folder, name)
    content = io.BytesIO()
    with (
        tarfile.open(path) as built,
        tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for one in sorted(built.getmembers(), key=lambda member: member.name):
            same = tarfile.TarInfo(one.name)
            same.type, same.size, same.mtime = one.type, one.size, _date()
            same.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
            archive.addfile(same, built.extractfile(one))
    path.write_bytes(gzip.compress(content.getvalue(), mtime=_date()))
    return name


def _date() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", DATE))
