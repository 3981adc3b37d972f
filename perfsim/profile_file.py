"""Profile files: reading and checking one.

A profile file is CSV: ``# key: value`` lines, then one row a gradient in forward order
(``profiles/README.md`` is the dictionary of its fields). Times are read in milliseconds and
kept in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import cast, get_args

from perfsim.errors import DataError, newer
from perfsim.limits import COUNT, ELEMENTS, TIME, shown
from perfsim.profile import PRECISIONS, Gradient, Layer, Profile
from perfsim.quantity import Kind
from perfsim.table import number, read_lines, rows

__all__ = ["COLUMNS", "SCHEMA", "read_profile"]

SCHEMA = "perfsim/profile/1"
COLUMNS = (
    "layer",
    "kind",
    "tensor",
    "shape",
    "elements",
    "forward_ms",
    "backward_ms",
    "ready_ms",
)
LONGEST_AXIS = 15
"""Digits of an axis of a shape."""

NEEDED = ("schema", "model", "gpu", "precision", "batch", "iteration_ms", "optimizer_ms", "source")
KINDS_OF = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms", "optimizer_ms")


def read_profile(path: Path) -> Profile:
    """Read and check one profile file.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format; names file, line, column and finding.
    """
    lines = read_lines(path)
    header, places = _read_header(lines, path)
    layers, gradients, tensor_rows = _read_rows(rows(lines, len(places), COLUMNS, path), path)

    def count(key: str) -> int:
        text, row = header[key], places[key]
        return int(number(text, key, path, row, positive=True, whole=True, within=COUNT))

    if "sequence" in header:
        count("sequence")
    profile = Profile(
        model=header["model"],
        gpu=header["gpu"],
        precision=header["precision"],
        batch=count("batch"),
        iteration_s=_seconds(
            header["iteration_ms"], "iteration_ms", path, places["iteration_ms"], positive=True
        ),
        optimizer_s=_seconds(header["optimizer_ms"], "optimizer_ms", path, places["optimizer_ms"]),
        layers=tuple(layers),
        gradients=tuple(gradients),
        kinds=_read_kinds(header["kind"], path, places["kind"]),
        header=header,
        path=str(path),
    )
    _check_sums(profile, path, places["iteration_ms"], tensor_rows)
    return profile


def _seconds(text: str, column: str, path: Path, row: int, *, positive: bool = False) -> float:
    return number(text, column, path, row, positive=positive, within=TIME, unit=1e-3) / 1e3


def _read_header(lines: list[str], path: Path) -> tuple[dict[str, str], dict[str, int]]:
    header: dict[str, str] = {}
    rows: dict[str, int] = {}
    for row, line in enumerate(lines, 1):
        if not line.startswith("#"):
            break
        key, colon, value = (part.strip() for part in line[1:].partition(":"))
        if not colon:
            raise DataError(f"header line {shown(line)} is not '# key: value'", path=path, row=row)
        if key in header:
            raise DataError(
                f"header key {shown(key)} stands on line {rows[key]} already", path=path, row=row
            )
        header[key], rows[key] = value, row
    _check_header(header, rows, path)
    return header, rows


def _check_header(header: dict[str, str], rows: dict[str, int], path: Path) -> None:
    for key in (*NEEDED, "kind"):
        if not header.get(key):
            raise DataError(f"the header has no {key!r} line ('# {key}: ...')", path=path)
    if header["schema"] != SCHEMA:
        raise DataError(
            f"schema is {shown(header['schema'])}, this perfsim reads {SCHEMA!r}"
            + newer(header["schema"], SCHEMA),
            path=path,
            row=rows["schema"],
        )
    model = path.name.removesuffix(".csv").split(".")[0]
    if header["model"] != model:
        raise DataError(
            f"model is {shown(header['model'])}, the file's name up to its first dot says"
            f" {model!r}",
            path=path,
            row=rows["model"],
        )
    if header["precision"] not in PRECISIONS:
        raise DataError(
            f"precision is {shown(header['precision'])}; allowed: {', '.join(PRECISIONS)}",
            path=path,
            row=rows["precision"],
        )


def _read_rows(
    table: Iterable[tuple[int, dict[str, str]]], path: Path
) -> tuple[list[Layer], list[Gradient], dict[str, int]]:
    """Return the layers, the gradients and the line of each tensor."""
    layers: list[Layer] = []
    gradients: list[Gradient] = []
    seen: dict[str, int] = {}
    index: dict[str, int] = {}
    for row, cells in table:
        name, tensor = cells["layer"], cells["tensor"]
        _check_names(name, tensor, seen, path, row)
        seen[tensor] = row
        if name not in index:
            index[name] = len(layers)
            layers.append(_read_layer(cells, path, row))
        elif cells["forward_ms"] or cells["backward_ms"]:
            raise DataError(
                f"layer {shown(name)} has its times on its first tensor already; leave these empty",
                path=path,
                row=row,
                column="forward_ms" if cells["forward_ms"] else "backward_ms",
            )
        axes = _read_axes(cells["shape"], cells["elements"], path, row)
        ready_s = _seconds(cells["ready_ms"], "ready_ms", path, row)
        gradients.append(Gradient(tensor, axes, ready_s, index[name]))
    if not gradients:
        raise DataError("holds no gradient", path=path)
    return layers, gradients, seen


def _check_names(name: str, tensor: str, seen: dict[str, int], path: Path, row: int) -> None:
    for column, value in (("layer", name), ("tensor", tensor)):
        if not value:
            raise DataError("is empty", path=path, row=row, column=column)
    if tensor in seen:
        raise DataError(
            f"tensor {shown(tensor)} stands on line {seen[tensor]} already",
            path=path,
            row=row,
            column="tensor",
        )


def _read_layer(cells: dict[str, str], path: Path, row: int) -> Layer:
    forward_s, backward_s = (
        _seconds(cells[column], column, path, row) for column in ("forward_ms", "backward_ms")
    )
    return Layer(cells["layer"], cells["kind"], forward_s, backward_s)


def _read_axes(shape: str, elements: str, path: Path, row: int) -> tuple[int, ...]:
    """Return the axes of a shape such as 64x3x7x7, whose product are the elements."""
    parts = shape.split("x")
    if not all(part.isdecimal() and len(part) <= LONGEST_AXIS and int(part) for part in parts):
        raise DataError(
            f"{shown(shape)} is not a shape such as 64x3x7x7", path=path, row=row, column="shape"
        )
    axes = tuple(int(part) for part in parts)
    count = number(elements, "elements", path, row, positive=True, whole=True, within=ELEMENTS)
    if math.prod(axes) != count:
        raise DataError(
            f"{elements} is not the product of shape {shown(shape)[1:-1]}",
            path=path,
            row=row,
            column="elements",
        )
    return axes


def _read_kinds(text: str, path: Path, row: int) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for part in text.split(";"):
        column, _, kind = (piece.strip() for piece in part.partition("="))
        if column not in KINDS_OF or kind not in get_args(Kind):
            raise DataError(
                f"header line 'kind' has {shown(part.strip())}; it names {', '.join(KINDS_OF)} as"
                f" 'column=kind', kind one of {', '.join(get_args(Kind))}, separated by ';'",
                path=path,
                row=row,
            )
        kinds[column] = cast(Kind, kind)
    missing = [column for column in KINDS_OF if column not in kinds]
    if missing:
        raise DataError(f"header line 'kind' lacks {', '.join(missing)}", path=path, row=row)
    return kinds


def _check_sums(profile: Profile, path: Path, row: int, tensor_rows: dict[str, int]) -> None:
    total = profile.forward_s + profile.backward_s + profile.optimizer_s
    if total > profile.iteration_s * (1 + 1e-6):
        raise DataError(
            f"forward, backward and optimizer sum to {total * 1e3:.6g} ms, more than"
            f" iteration_ms {profile.iteration_s * 1e3:.6g}",
            path=path,
            row=row,
        )
    last = max(profile.gradients, key=lambda gradient: gradient.ready_s)
    if last.ready_s > profile.backward_s * (1 + 1e-6) + 1e-9:
        raise DataError(
            f"{shown(last.name)} is ready at {last.ready_s * 1e3:.6g} ms, after the end of the"
            f" backward pass at {profile.backward_s * 1e3:.6g} ms",
            path=path,
            row=tensor_rows[last.name],
            column="ready_ms",
        )
