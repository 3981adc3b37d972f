"""Devices: the memory and rates of one GPU, and what a kernel costs on it.

A device is ``profiles/devices/<gpu>.toml`` (memory, rates, launch) and, beside it,
``<gpu>.kernels.csv`` (measured points of named kernels). ``any.kernels.csv`` holds points for every
GPU without its own. A kernel's cost is interpolated in the GPU's own points, else scaled from a
reference GPU's points, else built from bytes, operations and launches. Points count in the software
eras that they were measured in (`perfsim.compute.software`).

In this file: measured points as curves, the two kinds of files, then ``Device`` and how it is
loaded.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Literal, NamedTuple, TypedDict

from perfsim.compute.host_link import MAX_LANES, link_words, rate_of_copy
from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import PRECISIONS
from perfsim.compute.software import NEWEST, eras_of, is_newest, nearest_era, software_era
from perfsim.data.catalog import Catalog, owners_of
from perfsim.data.files import read_text
from perfsim.data.tables import cell_number, check_kind, read_table, repeat_spread
from perfsim.data.toml import (
    BytesPerSecond,
    Check,
    KindOfNumber,
    RelativeSpread,
    Text,
    Texts,
    WrongValue,
    check_of,
    in_unit,
    plain_number,
    read_checked,
    table_check,
    toml_refusal,
    whole_number,
)
from perfsim.errors import (
    DataError,
    RequestError,
    nearest,
    plain_name,
    shown,
    unknown,
    unknown_in_file,
)
from perfsim.quantity import (
    COUNT_LIMIT,
    ELEMENTS_LIMIT,
    LAUNCH_LIMIT,
    MATRIX_RATE_LIMIT,
    MEMORY_LIMIT,
    POWER_LIMIT,
    TIME_LIMIT,
    Cost,
    Grade,
    Kind,
    NumberLimit,
    Quantity,
    Term,
    weakest,
)
from perfsim.sums import sum_in_order
from perfsim.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_seconds,
)

__all__ = [
    "ANY_GPU",
    "Device",
    "DeviceFile",
    "KernelCurve",
    "device_named",
    "load_device",
    "load_rates",
    "log_between",
    "measured_kernels",
    "nearest_gpu",
    "read_device",
    "read_device_file",
    "read_kernels",
    "time_at",
    "time_beyond",
    "usable_bytes",
]

KERNELS_SCHEMA = "perfsim/kernels/1"
KERNELS_COLUMNS = ("kernel", "elements", "width", "time_us", "kind", "software", "source", "note")
ANY_GPU = "any"
"""The GPU that a file of points names if they hold for every GPU."""
_NEAR = 4.0
"""Factor around a lone point within which its flat-below, linear-above rule is in range."""


class KernelCurve(NamedTuple):
    """Measured times of one kernel at one width, by rising size; repeats of a size combined.

    Between points the time is a straight line in log size and log time; below the smallest it
    stays flat (bound by launches); above the largest it grows linearly: proportionally from a
    lone point, along the last two points otherwise.

    Examples
    --------
    >>> twice = ("measured",) * 2, ("here",) * 2, (None,) * 2
    >>> curve = KernelCurve(0, (100.0, 400.0), (1e-5, 2e-5), *twice)
    >>> [round(curve.at(size) * 1e6, 3) for size in (10, 200, 400, 700)]
    [10.0, 14.142, 20.0, 30.0]
    """

    width: int
    sizes: tuple[float, ...]
    times_s: tuple[float, ...]
    kinds: tuple[Kind, ...]
    sources: tuple[str, ...]
    spreads: tuple[float | None, ...]

    def at(self, size: float, min_s_per_element: float = 0.0) -> float:
        """Return the time [s] at ``size``; past the last point it grows at least so fast."""
        sizes, times = self.sizes, self.times_s
        if size <= sizes[0]:
            return times[0]
        if size >= sizes[-1]:
            if len(sizes) == 1:
                return times[0] * size / sizes[0]
            slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
            return times[-1] + (size - sizes[-1]) * max(slope, min_s_per_element)
        above = next(index for index, known in enumerate(sizes) if known >= size)
        return log_between(size, sizes[above - 1 : above + 1], times[above - 1 : above + 1])

    def near(self, size: float) -> slice:
        """Return which points decide the time at ``size``."""
        for index, known in enumerate(self.sizes):
            if known == size or (known > size and index == 0):
                return slice(index, index + 1)
            if known > size:
                return slice(index - 1, index + 1)
        return slice(-1, None)

    def covers(self, size: float) -> bool:
        """Tell whether ``size`` lies in the range of the points."""
        high = self.sizes[-1] * (_NEAR if len(self.sizes) == 1 else 1.0)
        return self.sizes[0] / _NEAR <= size <= high


def log_between(at: float, ends: tuple[float, ...], times: tuple[float, ...]) -> float:
    """Return the time [s] at ``at`` on the line through two points in log size and log time."""
    share = math.log(at / ends[0]) / math.log(ends[1] / ends[0])
    return times[0] * math.pow(times[1] / times[0], share)


def time_beyond(
    curve: KernelCurve, curves: tuple[KernelCurve, ...], size: float, min_s_per_element: float
) -> float:
    """Return the time [s] on one width's curve; past its end it grows as the longest curve does.

    Of several curves that reach as far, the one of the nearest width counts.
    ``min_s_per_element`` is the least growth that bandwidth and matrix rate allow.
    """
    top = curve.sizes[-1]
    further = [other for other in curves if other.sizes[-1] > top and other.width > 0]
    if size <= top or not further or curve.width <= 0:
        return curve.at(size, min_s_per_element)
    furthest = max(other.sizes[-1] for other in further)
    longest = [other for other in further if other.sizes[-1] == furthest]
    nearest = min(longest, key=lambda other: abs(math.log(other.width / curve.width)))
    growth = nearest.at(size, min_s_per_element) / nearest.at(top, min_s_per_element)
    return curve.times_s[-1] * max(1.0, growth)


def time_at(
    curves: tuple[KernelCurve, ...], size: float, width: int, min_s_per_element: float
) -> tuple[float, Quantity, bool]:
    """Return a kernel's time [s], its origin, and whether size or width lies outside the points.

    Between two widths the time is a line in log width and log time. Beyond the widest it grows
    linearly; below the narrowest it stays. ``min_s_per_element`` is the least growth past the
    last point.
    """
    above = next((i for i, curve in enumerate(curves) if curve.width >= width), len(curves))
    if above < len(curves) and (above == 0 or curves[above].width == width):
        used = curves[above : above + 1]
    else:
        used = curves[max(0, above - 1 - (above == len(curves))) : above + 1]
    times = [time_beyond(curve, curves, size, min_s_per_element) for curve in used]
    widths = tuple(float(curve.width) for curve in used)
    if len(used) == 1:
        wider = width > widths[0] > 0
        seconds = times[0] * (width / widths[0] if wider else 1.0)
    elif above == len(curves):
        first_s = [curve.times_s[0] for curve in used]
        slope = max(0.0, 1 - first_s[0] / first_s[1]) / (widths[1] - widths[0])
        seconds = times[1] * (1 + slope * (width - widths[1]))
    else:
        seconds = log_between(float(width), widths, (times[0], times[1]))
    near = [(curve, curve.near(size)) for curve in used]
    kinds = [kind for curve, points in near for kind in curve.kinds[points]]
    exact = len(kinds) == 1 and used[0].width == width and size in used[0].sizes
    spreads = [s for curve, points in near for s in curve.spreads[points] if s is not None]
    quantity = Quantity(
        seconds,
        "s",
        kinds[0] if exact else weakest([*kinds, "derived"]),
        "; ".join(dict.fromkeys(s for curve, points in near for s in curve.sources[points])),
        max(spreads) if spreads else None,
        min(curve.sizes[0] for curve in used),
        max(curve.sizes[-1] for curve in used),
        "elements",
    )
    inside = curves[0].width <= width <= curves[-1].width
    return seconds, quantity, not (inside and all(curve.covers(size) for curve in used))


class KernelTable(NamedTuple):
    """Measured kernels as they hold in one software era.

    ``points`` has one curve a width for each kernel. ``other_eras`` says, for those kernels that
    were measured in other eras only, whose points they are: those of the nearest era.
    """

    points: Mapping[str, tuple[KernelCurve, ...]]
    other_eras: Mapping[str, str]


class _Point(NamedTuple):
    """One row of a file of kernels; ``eras`` is empty where it holds in every era."""

    width: int
    size: float
    time_s: float
    kind: Kind
    source: str
    eras: tuple[str, ...]


def read_kernels(
    path: Path, without: Collection[str] = frozenset()
) -> dict[str, tuple[KernelCurve, ...]]:
    """Read measured kernel points of all eras; several of one size become their geometric mean.

    A larger size never costs less: where noise has it so, the smaller size's time is kept.

    Parameters
    ----------
    without : owners of repositories, in small letters, whose points are left out

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    points_of = _points_without(_read_points(path), without)
    return {name: _curves(points) for name, points in points_of.items()}


def _kernels_in_era(points_of: Mapping[str, Sequence[_Point]], software: str) -> KernelTable:
    """Return the points of an era, or of the nearest era that has any.

    Points of no era join them.
    """
    points: dict[str, tuple[KernelCurve, ...]] = {}
    other_eras: dict[str, str] = {}
    for name, known in points_of.items():
        eras = {era for point in known for era in point.eras}
        era = nearest_era(software, eras) if eras else software
        if era != software:
            other_eras[name] = era
        points[name] = _curves([one for one in known if not one.eras or era in one.eras])
    return KernelTable(points, other_eras)


def _points_without(
    points_of: Mapping[str, Sequence[_Point]], without: Collection[str]
) -> Mapping[str, Sequence[_Point]]:
    """Return the points that none of some owners published, of the kernels that have any."""
    if not without:
        return points_of
    kept = {
        name: [one for one in points if owners_of(one.source).isdisjoint(without)]
        for name, points in points_of.items()
    }
    return {name: points for name, points in kept.items() if points}


def _read_points(path: Path) -> dict[str, list[_Point]]:
    """Read the rows of a file by kernel."""
    found: dict[str, list[_Point]] = {}
    gpu = path.name.removesuffix(".kernels.csv")
    for row, cells in read_table(
        path, KERNELS_SCHEMA, KERNELS_COLUMNS, tuple(dict.fromkeys((gpu, ANY_GPU)))
    ):
        for column in ("kernel", "source"):
            if not cells[column]:
                raise DataError("is empty", path=path, row=row, column=column)
        size = cell_number(
            cells["elements"],
            "elements",
            path,
            row,
            positive=True,
            whole=True,
            within=ELEMENTS_LIMIT,
        )
        width = int(
            cell_number(cells["width"] or "0", "width", path, row, whole=True, within=COUNT_LIMIT)
        )
        time_s = 1e-6 * cell_number(
            cells["time_us"], "time_us", path, row, positive=True, within=TIME_LIMIT, unit=1e-6
        )
        kind = check_kind(cells["kind"], path, row)
        points = found.setdefault(cells["kernel"], [])
        if points and (width == 0) != (points[0].width == 0):
            raise DataError(
                f"{width} beside {points[0].width} further up: either no row of"
                f" {cells['kernel']!r} has a width, or each",
                path=path,
                row=row,
                column="width",
            )
        eras = eras_of(cells["software"])
        points.append(_Point(width, size, time_s, kind, cells["source"], eras))
    return found


def measured_kernels(catalog: Catalog, owners: Collection[str]) -> bool:
    """Tell whether owners of repositories, in small letters, measured kernels of any GPU."""
    names = (ANY_GPU, *catalog.files("devices"))
    paths = (catalog.beside("devices", name, KERNELS_SUFFIX) for name in names)
    return any(not _owners_in(path, catalog).isdisjoint(owners) for path in paths if path)


def _owners_in(path: Path, catalog: Catalog) -> frozenset[str]:
    """Return the owners of all repositories that a file of kernels names."""
    return catalog.once(("owners of kernels", path), lambda: owners_of(read_text(path)))


def _curves(points: Sequence[_Point]) -> tuple[KernelCurve, ...]:
    """Return a kernel's curves by rising width."""
    widths: dict[int, dict[float, list[_Point]]] = {}
    for point in points:
        widths.setdefault(point.width, {}).setdefault(point.size, []).append(point)
    return tuple(_curve(width, widths[width]) for width in sorted(widths))


def _curve(width: int, sizes: Mapping[float, list[_Point]]) -> KernelCurve:
    known = sorted(sizes)
    times: list[float] = []
    for size in known:
        mean = geometric_mean(point.time_s for point in sizes[size])
        times.append(max(mean, times[-1]) if times else mean)
    return KernelCurve(
        width,
        tuple(known),
        tuple(times),
        tuple(weakest([point.kind for point in sizes[size]]) for size in known),
        tuple("; ".join(dict.fromkeys(point.source for point in sizes[size])) for size in known),
        tuple(repeat_spread([point.time_s for point in sizes[size]]) for size in known),
    )


DEVICE_SCHEMA = "perfsim/device/1"
_PEAK = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?([GT]FLOP/s)", re.ASCII)
_FLOPS = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
_MIN_ACHIEVED, _MAX_ACHIEVED = 0.01, 1.2
"""Achieved over peak rate: a board may run above its data sheet's clock, but not by more.

The least is chosen, a thirtieth of the least that ships: less is a slip of the unit."""
_MAX_PCIE = 7
"""The newest generation of PCIe: PCI-SIG published its specification in 2025."""
_MOST_SHOWN = 2.0**30 / 1e9
"""Times the memory of a data sheet that a driver may show: some name GiB as GB."""
_MULTIPROCESSORS = NumberLimit(1.0, 10000.0, "1 to 10000")
_USUAL_MULTIPROCESSORS = 100.0
"""Of a GPU whose file does not say: the middle of those that ship (13 to 304)."""
_ACCUMULATION = NumberLimit(0.1, 1.0, "0.1 to 1")
_KERNEL_PRECISION = "fp32"
"""Methods' kernels compute at this precision, so every GPU states its rate."""

_text, _texts = check_of(Text), check_of(Texts)
_kind, _spread = check_of(KindOfNumber), check_of(RelativeSpread)


def _quantity(check_value: Check, unit: str) -> Check:
    """Return the check of a table that states a value, its kind, its source and its spread."""
    keys = {"value": check_value, "spread": _spread, "kind": _kind, "source": _text}
    check_table = table_check(keys, optional=("spread",))

    def check(values: object) -> Quantity:
        table = check_table(values)
        return Quantity(table["value"], unit, table["kind"], table["source"], table.get("spread"))

    return check


def _peak(value: object) -> tuple[str, str]:
    """Return a peak rate's number, as stated, and its unit."""
    match = _PEAK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise WrongValue(f"found {shown(value)}, allowed is such as '15.7 TFLOP/s'")
    number, unit = match.groups()
    if not MATRIX_RATE_LIMIT.holds(float(number) * _FLOPS[unit]):
        raise WrongValue(f"found {shown(value)}, allowed is {MATRIX_RATE_LIMIT.words}")
    return number, unit


def _achieved(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and _MIN_ACHIEVED <= value < _MAX_ACHIEVED:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    allowed = f"a fraction of the peak, {_MIN_ACHIEVED} or more and below {_MAX_ACHIEVED}"
    raise WrongValue(f"found {shown(value)}, allowed is {allowed}")


_check_rate = table_check(
    {
        "peak": _peak,
        "achieved": _achieved,
        "achieved_source": _text,
        "sustained": _achieved,
        "sustained_source": _text,
        "spread": _spread,
        "kind": _kind,
        "source": _text,
    },
    optional=("achieved", "achieved_source", "sustained", "sustained_source", "spread", "kind"),
)


class MatrixRate(NamedTuple):
    """What matrix products reach at a precision, and the data sheet's peak [FLOP/s].

    ``sustained`` is the share of what single products reach that those of training do, one after
    the other for seconds.
    """

    reached: Quantity
    peak: float
    sustained: float = 1.0


def _matrix_rate(values: object) -> MatrixRate:
    """Return the rate of matrix products: what they achieve of the peak, else the peak."""
    table = _check_rate(values)
    number, unit = table["peak"]
    peak = float(number) * _FLOPS[unit]
    rate, kind, source = peak, "published", table["source"]
    if "achieved" in table or "achieved_source" in table:
        for key in ("achieved", "achieved_source"):
            if key not in table:
                raise WrongValue("is missing", key)
        achieved, how = table["achieved"], table["achieved_source"]
        rate, kind = rate * achieved, "fitted"
        source = f"{source}: {number} {unit} x {achieved}, {how}"
        if not MATRIX_RATE_LIMIT.holds(rate):
            why = f"found {shown(achieved)}, allowed is {MATRIX_RATE_LIMIT.words}"
            raise WrongValue(why, "achieved")
    if "sustained" in table and "sustained_source" not in table:
        raise WrongValue("is missing", "sustained_source")
    kind = table.get("kind", kind)
    reached = Quantity(rate, "FLOP/s", kind, source, table.get("spread"))
    return MatrixRate(reached, peak, table.get("sustained", 1.0))


def _pcie(value: object) -> int:
    """Return a generation of PCIe."""
    generation = whole_number(value)
    if generation > _MAX_PCIE:
        raise WrongValue(f"found {generation}, allowed is a generation of PCIe, 1 to {_MAX_PCIE}")
    return generation


def _lanes(value: object) -> int:
    """Return how many lanes of PCIe a board has."""
    lanes = whole_number(value)
    if lanes not in (MAX_LANES // 2, MAX_LANES):
        raise WrongValue(f"found {lanes}, allowed is {MAX_LANES // 2} or {MAX_LANES}")
    return lanes


_check_device = table_check(
    {
        "name": _text,
        "title": _text,
        "aliases": _texts,
        "memory": check_of(Annotated[float, in_unit(parse_bytes, MEMORY_LIMIT)]),
        "visible_memory": _quantity(
            check_of(Annotated[float, in_unit(parse_bytes, MEMORY_LIMIT)]), "B"
        ),
        "host_gpus": whole_number,
        "power_w": check_of(Annotated[float, plain_number(POWER_LIMIT)]),
        "architecture": _text,
        "board": _text,
        "multiprocessors": check_of(Annotated[float, plain_number(_MULTIPROCESSORS)]),
        "fp32_accumulation": check_of(Annotated[float, plain_number(_ACCUMULATION)]),
        "succeeds": _text,
        "measured_as": _text,
        "pcie": _pcie,
        "pcie_lanes": _lanes,
        "c2c_gpus": whole_number,
        "link": _text,
        "intra_net": _text,
        "intra_net_why": _text,
        "usual_node": _text,
        "references": _texts,
        "memory_bandwidth": _quantity(check_of(BytesPerSecond), "B/s"),
        "launch": _quantity(check_of(Annotated[float, in_unit(parse_seconds, LAUNCH_LIMIT)]), "s"),
        "rates": table_check(
            dict.fromkeys(PRECISIONS, _matrix_rate),
            optional=[precision for precision in PRECISIONS if precision != _KERNEL_PRECISION],
        ),
    },
    optional=(
        *("visible_memory", "host_gpus"),
        *("aliases", "power_w", "multiprocessors", "fp32_accumulation", "succeeds"),
        "measured_as",
        *("architecture", "board", "pcie", "pcie_lanes", "c2c_gpus", "link", "references"),
        *("intra_net", "intra_net_why", "usual_node"),
    ),
)


class DeviceFile(TypedDict):
    """The values of a device file, by the names of ``Device``'s fields."""

    name: str
    title: str
    aliases: tuple[str, ...]
    memory_bytes: float
    memory_bandwidth: Quantity
    launch_s: Quantity
    rates: Mapping[str, Quantity]
    peaks: Mapping[str, float]
    sustained: Mapping[str, float]
    reference_names: tuple[str, ...]
    power_w: float | None
    multiprocessors: float
    fp32_accumulation: float
    visible_memory: Quantity | None
    host_gpus: int | None
    succeeds: str
    measured_as: str
    architecture: str
    board: str
    pcie: int | None
    pcie_lanes: int
    c2c_gpus: int | None
    link: str
    intra_net: str
    intra_net_why: str
    usual_node: str


def read_device_file(path: Path) -> DeviceFile:
    """Read and check one device file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, line, key, what was found, what is
        allowed.
    """
    table, text = read_checked(path, DEVICE_SCHEMA, _check_device)
    name, references = table["name"], table.get("references", ())
    if name in references:
        raise toml_refusal(f"{name!r} is this GPU itself", ("references",), path, text)
    shown_memory = table.get("visible_memory")
    if shown_memory is not None and shown_memory.value > _MOST_SHOWN * table["memory"]:
        why = (
            f"{format_bytes(shown_memory.value)} is more than the memory that the data sheet names"
        )
        raise toml_refusal(why, ("visible_memory", "value"), path, text)
    return DeviceFile(
        name=name,
        title=table["title"],
        aliases=tuple(alias.lower() for alias in table.get("aliases", ())),
        memory_bytes=table["memory"],
        memory_bandwidth=table["memory_bandwidth"],
        launch_s=table["launch"],
        rates={name: rate.reached for name, rate in table["rates"].items()},
        peaks={name: rate.peak for name, rate in table["rates"].items()},
        sustained={name: rate.sustained for name, rate in table["rates"].items()},
        reference_names=references,
        power_w=table.get("power_w"),
        multiprocessors=table.get("multiprocessors", _USUAL_MULTIPROCESSORS),
        fp32_accumulation=table.get("fp32_accumulation", 1.0),
        visible_memory=table.get("visible_memory"),
        host_gpus=table.get("host_gpus"),
        succeeds=table.get("succeeds", ""),
        measured_as=table.get("measured_as", ""),
        architecture=table.get("architecture", ""),
        board=table.get("board", ""),
        pcie=table.get("pcie"),
        pcie_lanes=table.get("pcie_lanes", MAX_LANES),
        c2c_gpus=table.get("c2c_gpus"),
        link=table.get("link", ""),
        intra_net=table.get("intra_net", ""),
        intra_net_why=table.get("intra_net_why", ""),
        usual_node=table.get("usual_node", ""),
    )


_USABLE = 0.983
"""Share of a GPU's memory that CUDA shows: the median of 15.78 of 16 GiB (V100, huggingface/
transformers@0016acf7 docs/source/en/perf_train_gpu_one.mdx), 23.65 of 24 (Titan RTX, huggingface/
blog@00e67ae4 pytorch-fsdp.md), 10.73 of 11 (RTX 2080 Ti, traveller59/second.pytorch issue 143) and
11.77 of 12 (RTX 3060, mboudiaf/RePRI-for-Few-Shot-Segmentation issue 20)."""


def usable_bytes(memory: float) -> float:
    """Return the bytes that training may take of a GPU's memory, by the memory of its data sheet.

    Examples
    --------
    >>> round(usable_bytes(80 * 2**30) / 2**30, 1)
    78.6
    """
    return _USABLE * memory


KERNELS_SUFFIX = ".kernels.csv"
"""End of the name of a file of measured points, after the GPU's name."""


@dataclass(frozen=True)
class Device:
    """One GPU: memory, rates, launch overhead and measured kernels.

    ``rates`` [FLOP/s] by precision are what matrix products reach where that was measured, else
    the data sheet's peak; ``peaks`` are those of the data sheet. ``multiprocessors`` run its tiles
    (streaming multiprocessors, compute units). ``fp32_accumulation`` is the share of their rate
    that tensor cores keep where products of fp16 are summed in fp32: a half on GeForce. ``points``
    holds one curve a width for each kernel name. ``references`` are GPUs whose points may be
    scaled to this one. ``succeeds`` is the board of its line before it, which is no faster.
    ``measured_as`` is the same board with other memory or links: its measurements hold here too.
    ``visible_memory`` is what CUDA or ROCm show of the memory, where somebody saw it. ``host_gpus``
    are those that one operating system drives at most, where the links that make a node join more.
    ``board`` is its form (SXM5, PCIe), ``pcie`` the generation of its PCIe, ``pcie_lanes`` how many
    lanes of it there are, ``c2c_gpus`` how many share the NVLink-C2C of a Grace where they are on
    one, ``link`` what joins the GPUs of a node, in the data sheet's words.
    ``intra_net`` is the network used for that link where no other is named, and
    ``intra_net_why`` says what is assumed by it, if anything. ``usual_node`` is the node type that
    joins several nodes of it where neither network nor node is named. Kernels are those of the era
    ``software``; ``other_eras`` names those measured in another era only, with that era.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    memory_bytes: float
    memory_bandwidth: Quantity
    launch_s: Quantity
    rates: Mapping[str, Quantity]
    points: Mapping[str, tuple[KernelCurve, ...]] = field(default_factory=dict)
    references: tuple[Device, ...] = ()
    reference_names: tuple[str, ...] = ()
    power_w: float | None = None
    software: str = NEWEST
    other_eras: Mapping[str, str] = field(default_factory=dict)
    multiprocessors: float = _USUAL_MULTIPROCESSORS
    fp32_accumulation: float = 1.0
    peaks: Mapping[str, float] = field(default_factory=dict)
    sustained: Mapping[str, float] = field(default_factory=dict)
    visible_memory: Quantity | None = None
    host_gpus: int | None = None
    succeeds: str = ""
    measured_as: str = ""
    architecture: str = ""
    board: str = ""
    pcie: int | None = None
    pcie_lanes: int = MAX_LANES
    c2c_gpus: int | None = None
    link: str = ""
    intra_net: str = ""
    intra_net_why: str = ""
    usual_node: str = ""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What tells it from others in a session.

        A GPU that no file describes is known by a profile (`device_of_profile`), and two profiles
        may show one name with other rates.
        """
        rates = tuple((name, rate.value) for name, rate in self.rates.items())
        return self.name, self.memory_bandwidth.value, self.launch_s.value, rates

    @property
    def usable_bytes(self) -> float:
        """The bytes that training may take of its memory."""
        shown = self.visible_memory
        return usable_bytes(self.memory_bytes) if shown is None else shown.value

    @property
    def derived(self) -> tuple[str, ...]:
        """Return which of its numbers are derived: neither measured nor published for this GPU."""
        named = {"memory bandwidth": self.memory_bandwidth, "launch": self.launch_s, **self.rates}
        return tuple(name for name, quantity in named.items() if quantity.kind == "derived")

    def matrix_rate(self, precision: str) -> Quantity:
        """Return the matrix rate [FLOP/s] at a precision.

        Raises
        ------
        RequestError
            If this GPU does not compute at that precision.
        """
        if precision not in self.rates:
            raise RequestError(
                "precision",
                f"{self.name} has no {precision!r} rate; allowed on this GPU:"
                f" {', '.join(self.rates)}.",
            )
        return self.rates[precision]

    def cost(self, kernel: Kernel) -> Cost:
        """Return what one kernel costs on this GPU, run by the software of this era.

        The GPU's own measured points come first (see ``KernelCurve`` and ``time_at``). Else
        those of a reference GPU: the growth of its time beyond its smallest point is multiplied
        by the ratio of memory bandwidths; the flat part below is launches and stays. Else
        max(moved_bytes / bandwidth, flops / fp32 rate) + launches x launch overhead; its spread is
        that of the bound in use and of the launch, each for its share of the time.

        A method's code (a kernel with ``parts``) has points of its own era only. The newest
        eras price its parts where it was measured before them; older eras take the points of the
        nearest era. Kernels of libraries, such as cuSOLVER's, take those of the nearest era always.

        References
        ----------
        Flat below, linear above a lone point: Wang et al. 2023 (Espresso, EuroSys), section 5.

        Examples
        --------
        >>> from perfsim.data.catalog import Catalog
        >>> v100 = load_device("v100", Catalog(), "torch1.8")
        >>> cost = v100.cost(Kernel("randk_encode", 2**20, 0.0))
        >>> round(cost.seconds * 1e6), cost.terms[0].quantity.kind
        (54, 'measured')
        """
        latency_s = kernel.launches * self.launch_s.value
        if (rate := rate_of_copy(kernel, self)) is not None:
            return self._over_pcie(kernel, rate, latency_s)
        source = self._measured_on(kernel)
        if source is None:
            return self._of_parts(kernel) if kernel.parts else self._built(kernel, latency_s)
        seconds, quantity, outside = (
            self._read(kernel) if source is self else self._scaled(kernel, source)
        )
        term = Term(f"kernel {kernel.name} at {kernel.elements:,} elements", quantity, outside)
        grade: Grade = "measured" if source is self and not outside else "modelled"
        latency_s = min(latency_s, seconds)
        return Cost(seconds, latency_s, spread=quantity.spread, terms=(term,), grade=grade)

    def seconds(self, kernel: Kernel) -> float:
        """Return the time of one kernel [s] as ``cost`` does, without its provenance."""
        priced_by = self._priced_by(kernel)
        if priced_by == "rates":
            return self._stream_s(kernel) + kernel.launches * self.launch_s.value
        if priced_by == "parts":
            return sum_in_order([self.seconds(part) for part in kernel.parts])
        return self.cost(kernel).seconds

    def _priced_by(self, kernel: Kernel) -> Literal["rates", "parts", "cost"]:
        """Return what prices kernels of this name: rates, their parts, or more (see ``cost``)."""
        if self._measured_on(kernel) is not None:
            return "cost"
        if kernel.parts:
            return "parts"
        return "rates" if rate_of_copy(kernel, self) is None else "cost"

    def measured_here(self, kernel: Kernel) -> bool:
        """Tell whether a kernel was measured in this era, on this GPU or a reference of it."""
        return any(
            kernel.name in one.points and kernel.name not in one.other_eras
            for one in (self, *self.references)
        )

    def _measured_on(self, kernel: Kernel) -> Device | None:
        """Return the GPU whose points price a kernel in this era, None where none does."""
        name = kernel.name
        having = [one for one in (self, *self.references) if name in one.points]
        if having and kernel.parts:
            of_era = [one for one in having if name not in one.other_eras]
            return of_era[0] if of_era else None if is_newest(self.software) else having[0]
        return having[0] if having else None

    def describe(self) -> dict[str, str]:
        """Return the figures of this GPU in words with units."""
        table = {
            "gpu": self.name,
            "title": self.title,
            "aliases": ", ".join(self.aliases) or "none",
            "architecture": self.architecture or "not stated",
            "board": self.board or "not stated",
            "PCIe generation": str(self.pcie or "not stated") + self._fewer_lanes,
            **({"link to the host": link_words(self)} if self.c2c_gpus else {}),
            "power": f"{self.power_w:g} W" if self.power_w else "not stated",
            "link inside a node": self.link or "not stated",
            "network inside a node": self._inside_words(),
            "network between nodes": (
                f"{self.usual_node}, its usual node's, where you name none"
                if self.usual_node
                else "the default, where you name none"
            ),
            "memory": format_bytes(self.memory_bytes),
            "memory that training may take": self._usable_words(),
            "memory bandwidth": _in_words(self.memory_bandwidth, format_rate),
            "kernel launch": _in_words(self.launch_s, format_seconds),
        }
        for precision, rate in self.rates.items():
            table[f"matrix rate {precision}"] = _in_words(rate, lambda x: f"{x / 1e12:.4g} TFLOP/s")
        table["derived"] = ", ".join(self.derived) or "none of these"
        for name, curves in sorted(self.points.items()):
            sizes = [size for curve in curves for size in curve.sizes]
            kinds = weakest([kind for curve in curves for kind in curve.kinds])
            table[f"kernel {name}"] = (
                f"{len(sizes)} points, {format_count(min(sizes))} to {format_count(max(sizes))}"
                f" elements, {kinds}"
            )
        table["scaled from"] = ", ".join(self.reference_names) or "no other GPU"
        return table

    @property
    def _fewer_lanes(self) -> str:
        return "" if self.pcie_lanes == MAX_LANES else f", {self.pcie_lanes} lanes"

    def _usable_words(self) -> str:
        shown = self.visible_memory
        if shown is not None:
            return _in_words(shown, format_bytes)
        return f"{format_bytes(self.usable_bytes)}, derived: {_USABLE:.1%} of it, as on other GPUs"

    def _inside_words(self) -> str:
        why = f" ({self.intra_net_why})" if self.intra_net_why else ""
        return f"{self.intra_net}{why}" if self.intra_net else "none named"

    def _stream_s(self, kernel: Kernel) -> float:
        moved_s = kernel.moved_bytes / self.memory_bandwidth.value
        if not kernel.flops:
            return moved_s
        return max(moved_s, kernel.flops / self.matrix_rate("fp32").value)

    def _built(self, kernel: Kernel, latency_s: float) -> Cost:
        rate = self.rates.get("fp32")
        bound = ("memory bandwidth", self.memory_bandwidth)
        if rate and kernel.flops / rate.value > kernel.moved_bytes / self.memory_bandwidth.value:
            bound = ("matrix rate fp32", rate)
        terms = (Term(*bound), Term("kernel launch", self.launch_s))
        stream_s = self._stream_s(kernel)
        seconds = stream_s + latency_s
        parts = [(stream_s, bound[1].spread), (latency_s, self.launch_s.spread)]
        known = [part_s * spread for part_s, spread in parts if spread is not None]
        spread = sum_in_order(known) / seconds if known and seconds > 0 else None
        return Cost(seconds, latency_s, spread=spread, terms=terms)

    def _over_pcie(self, kernel: Kernel, rate: float, latency_s: float) -> Cost:
        """Return the cost of a copy between the GPU and pinned memory of its host."""
        why = f"copies of 1 GB over {link_words(self)} (perfsim/compute/host_link.py)"
        kind: Kind = "derived" if (self.c2c_gpus or 1) > 1 else "measured"
        terms = (
            Term(kernel.name.replace("_", " "), Quantity(rate, "B/s", kind, why)),
            Term("kernel launch", self.launch_s),
        )
        seconds = kernel.moved_bytes / rate + latency_s
        return Cost(seconds, latency_s, terms=terms, grade="modelled")

    def _of_parts(self, kernel: Kernel) -> Cost:
        """Return what the operations of a method's code cost, one after another."""
        costs = [self.cost(part) for part in kernel.parts]
        seconds = sum_in_order(cost.seconds for cost in costs)
        spread_s = sum_in_order(
            cost.seconds * cost.spread for cost in costs if cost.spread is not None
        )
        return Cost(
            seconds,
            sum_in_order(cost.latency_s for cost in costs),
            spread=spread_s / seconds if spread_s else None,
            terms=tuple(dict.fromkeys(term for cost in costs for term in cost.terms)),
        )

    def _read(self, kernel: Kernel) -> tuple[float, Quantity, bool]:
        size = float(kernel.elements)
        min_s_per_element = self._stream_s(kernel) / size if size > 0 else 0.0
        return time_at(self.points[kernel.name], size, kernel.width, min_s_per_element)

    def _scaled(self, kernel: Kernel, source: Device) -> tuple[float, Quantity, bool]:
        seconds, quantity, outside = source._read(kernel)
        ratio = source.memory_bandwidth.value / self.memory_bandwidth.value
        flat_s = source._read(kernel._replace(elements=1))[0]
        seconds = max(flat_s + (seconds - flat_s) * ratio, self._stream_s(kernel))
        words = f"{source.name}, growth x {ratio:.3g} (memory bandwidths): {quantity.source}"
        return (
            seconds,
            quantity._replace(value=seconds, kind="derived", source=words, spread=None),
            outside,
        )


def _in_words(quantity: Quantity, format_value: Callable[[float], str]) -> str:
    return f"{format_value(quantity.value)}, {quantity.kind}: {quantity.source}"


def _unknown_gpu(name: str, files: Mapping[str, Path]) -> RequestError:
    """Return the error for a GPU that nobody knows, with the way to describe one."""
    error = unknown("gpu", name, files, "gpus", compared=_product(name))
    return error.or_else("describe yours (profiles/devices/README.md).")


def load_rates(name: str, catalog: Catalog) -> Device:
    """Return the device of a file name with its rates and memory, and no kernels of methods.

    Raises
    ------
    RequestError
        If no device has that name.
    DataError
        If its file is damaged.
    """
    files = catalog.files("devices")
    if name not in files:
        raise _unknown_gpu(name, files)
    return catalog.once(("rates", name), lambda: Device(**read_device_file(files[name])))


def load_device(name: str, catalog: Catalog, software: str = NEWEST) -> Device:
    """Return the device of a name or alias, with its reference GPUs and the points of any GPU.

    Its kernels are those of the era ``software``.

    The name is looked up as given, then in any case and without dashes, then as `device_named`
    does.

    Raises
    ------
    RequestError
        If no device has that name or alias.
    DataError
        If one of its files is damaged, or names a GPU that does not exist.
    """
    files = catalog.files("devices")
    name = _stem(name, files)
    software = software_era(software).name
    shared = _table(catalog.beside("devices", ANY_GPU, KERNELS_SUFFIX), catalog, software)
    device = _with_points(name, catalog, software, shared)
    others = [("references", other) for other in device.reference_names]
    others += [("measured_as", device.measured_as)] if device.measured_as else []
    for key, other in others:
        if other not in files:
            raise unknown_in_file(files[name], key, other, files, "gpus")
    references = [
        _with_points(other, catalog, software, _NO_KERNELS) for other in device.reference_names
    ]
    return replace(device, references=tuple(references))


def _stem(name: str, files: Mapping[str, Path]) -> str:
    if name in files:
        return name
    plain = {plain_name(stem): stem for stem in files}
    if (asked := plain_name(name)) in plain:
        return plain[asked]
    asked = _without_makers(name)
    spelled = {
        stem: _spellings(stem, read_device_file(path))
        for stem, path in files.items()  # parsing is slower than reading
        if asked and (_model_number(stem) in asked or asked in plain_name(read_text(path)))
    }
    for words in (asked, _MEMORY_KIND.sub("", asked)):
        named = [stem for stem, spellings in spelled.items() if words in spellings]
        if len(named) == 1:
            return named[0]
    raise _unknown_gpu(name, files)


def device_named(words: str, catalog: Catalog) -> str | None:
    """Return the GPU that a driver or a data sheet calls so; None if there is none.

    Makers, brands and kinds of memory do not count. The form of the board and the size of its
    memory may be left out, but must be true where they stand: a V100 of 16 GB is not one of 32.
    What an alias states is always true.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> words = "NVIDIA H100 80GB HBM3", "A100 80GB PCIe", "NVIDIA GeForce RTX 4090 Ti"
    >>> [device_named(one, Catalog()) for one in words]
    ['h100', 'a100-pcie', None]
    """
    try:
        return _stem(words, catalog.files("devices"))
    except RequestError:
        return None


def nearest_gpu(words: str, catalog: Catalog) -> str:
    """Return the known GPU whose name is most like that of an unknown one; "" if none is."""
    return nearest(_product(words), catalog.files("devices"))


def _product(name: str) -> str:
    """Return what names a GPU apart from maker, form of the board and memory."""
    words = re.split(r"[-_\s]+", name.lower())
    kinds = (_FORM, _MEMORY_SIZE, _MEMORY_KIND)
    told = [word for word in words if not any(kind.fullmatch(word) for kind in kinds)]
    return _without_makers("-".join(told)) or name


def _without_makers(name: str) -> str:
    """Return a GPU's name as it is compared, without the words of makers and brands.

    Examples
    --------
    >>> _without_makers("NVIDIA A100-SXM4-80GB"), _without_makers("AMD Instinct MI300X")
    ('a100sxm480gb', 'mi300x')
    """
    return _BRAND_AFTER.sub("", _BRAND_BEFORE.sub("", plain_name(name)))


_BRAND_BEFORE = re.compile(r"^(?:nvidia|amd|geforce|tesla|instinct)+")
_BRAND_AFTER = re.compile(r"(?:tensorcore)?(?:gpu|accelerator)$")
"""What makers write before and behind a GPU's name, which does not tell it from others."""
_MEMORY_KIND = re.compile(r"(?:hbm|gddr)\d[ex]?")
_MEMORY_SIZE = re.compile(r"(\d+)g(?:i?b)?")
_FORM = re.compile(r"sxm\d?|pcie|oam")


def _model_number(stem: str) -> str:
    """Return the first number in a GPU's name, "" for none; most of its spellings have it too."""
    found = re.search(r"\d+", stem)
    return found[0] if found else ""


def _spellings(stem: str, device: DeviceFile) -> set[str]:
    """Return what a GPU's name and aliases become by `_without_makers`, however they are written.

    Form and memory of the board may follow the name in any order. A name that states them is none
    without them: h100-pcie is not h100.
    """
    boards = {"", *_FORM.findall(device["board"].lower())}
    boards |= {board.rstrip("0123456789") for board in boards}
    memory = device["memory_bytes"]
    memories = {"", *(f"{memory / unit:.0f}" for unit in (1e9, 2**30) if memory % unit == 0)}
    spelled = set()
    for name in (stem, *device["aliases"]):
        words = re.split(r"[-_\s]+", name)
        forms = {word for word in words if _FORM.fullmatch(word)}
        sizes = {found[1] for word in words if (found := _MEMORY_SIZE.fullmatch(word))}
        spelled.add(_without_makers(name))
        if _MEMORY_KIND.search(name):
            continue  # it is another GPU with another kind: the H100 with HBM2e has PCIe
        product = _product(name)
        for form, size in itertools.product(forms or boards, sizes or memories):
            for unit in ("g", "gb", "gib") if size else ("",):
                spelled |= {product + form + size + unit, product + size + unit + form}
    return spelled


def _with_points(name: str, catalog: Catalog, software: str, common: KernelTable) -> Device:
    device = load_rates(name, catalog)
    measured = device.measured_as or name
    own = _table(catalog.beside("devices", measured, KERNELS_SUFFIX), catalog, software)
    common_eras = {
        kernel: era for kernel, era in common.other_eras.items() if kernel not in own.points
    }
    return replace(
        device,
        points={**common.points, **own.points},
        software=software,
        other_eras={**common_eras, **own.other_eras},
    )


_NO_KERNELS = KernelTable({}, {})


def _table(path: Path | None, catalog: Catalog, software: str) -> KernelTable:
    """Return a file's kernels in an era; a GPU and those that are scaled from it share them."""
    if path is None:
        return _NO_KERNELS

    def found() -> KernelTable:
        points = catalog.once(("points of kernels", path), lambda: _read_points(path))
        return _kernels_in_era(_points_without(points, catalog.without_kernels), software)

    return catalog.once(("kernels", path, software), found)


def read_device(path: Path) -> Device:
    """Read and check one device file, with the kernel points of all eras beside it, if any.

    Raises
    ------
    DataError
        If a file cannot be read or breaks the format.
    """
    beside = path.with_name(path.name.removesuffix(".toml") + KERNELS_SUFFIX)
    points = read_kernels(beside) if beside.is_file() else {}
    return Device(**read_device_file(path), points=points)
