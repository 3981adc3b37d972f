"""Devices: what one GPU can do, and what a kernel costs on it.

A device is ``profiles/devices/<gpu>.toml`` (memory, rates, launch) and, beside it,
``<gpu>.kernels.csv`` (measured points of named kernels). ``any.kernels.csv`` holds points that
serve every GPU without own ones. A kernel's cost is read off own points, else scaled from a
reference GPU's points, else built from bytes, operations and launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfsim.catalog import Catalog
from perfsim.curve import ANY, Curve, read_kernels, read_off
from perfsim.device_file import read_device_file
from perfsim.errors import DataError, RequestError, unknown
from perfsim.kernel import Kernel
from perfsim.quantity import Cost, Grade, Quantity, Term, weakest
from perfsim.units import format_bytes, format_count, format_rate, format_seconds

__all__ = ["Device", "load_device", "read_device"]

POINTS = ".kernels.csv"
"""What follows a GPU's name in the file of its measured points."""


@dataclass(frozen=True)
class Device:
    """One GPU: memory, rates, launch overhead and measured kernels.

    ``rates`` [FLOP/s] by precision are what matrix products reach, not the data sheet's peak,
    where that was measured. ``points`` holds one curve a width for each kernel name.
    ``references`` are GPUs whose points may be scaled to this one.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    memory_bytes: float
    memory_bandwidth: Quantity
    launch_s: Quantity
    rates: Mapping[str, Quantity]
    points: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    references: tuple[Device, ...] = ()
    reference_names: tuple[str, ...] = ()
    power_w: float | None = None
    _costs: dict[Kernel, Cost] = field(default_factory=dict, init=False, repr=False, compare=False)

    def matrix_rate(self, precision: str) -> Quantity:
        """Return the matrix rate [FLOP/s] at a precision.

        Raises
        ------
        RequestError
            If this GPU does not compute at that precision.
        """
        if precision not in self.rates:
            raise RequestError(
                f"--precision: {self.name} has no {precision!r} rate; allowed on this GPU:"
                f" {', '.join(self.rates)}."
            )
        return self.rates[precision]

    def cost(self, kernel: Kernel) -> Cost:
        """Return what one kernel costs here.

        Own measured points come first (see ``Curve``; between two widths the time is a line in
        log width and log time, beyond the widest it is linear). Else those of a reference GPU:
        what its time grows beyond its smallest point is multiplied by the ratio of memory
        bandwidths, the flat part below is launches and stays. Else
        max(moved_bytes / bandwidth, flops / fp32 rate) + launches x launch overhead; its spread is
        that of the bound in use and of the launch, each for its share of the time.

        References
        ----------
        Flat below, linear above a lone point: Wang et al. 2023 (Espresso, EuroSys), section 5.

        Examples
        --------
        >>> from perfsim.catalog import Catalog
        >>> v100 = load_device("v100", Catalog())
        >>> cost = v100.cost(Kernel("randk_encode", 2**20, 0.0))
        >>> round(cost.seconds * 1e6), cost.terms[0].quantity.kind
        (54, 'measured')
        """
        cost = self._costs.get(kernel)
        if cost is None:
            cost = self._costs[kernel] = self._cost(kernel)
        return cost

    def _cost(self, kernel: Kernel) -> Cost:
        latency_s = kernel.launches * self.launch_s.value
        if kernel.name in self.points:
            seconds, quantity, outside = self._read(kernel)
        else:
            source = next((other for other in self.references if kernel.name in other.points), None)
            if source is None:
                return self._built(kernel, latency_s)
            seconds, quantity, outside = self._scaled(kernel, source)
        term = Term(f"kernel {kernel.name} at {kernel.elements:,} elements", quantity, outside)
        grade: Grade = "measured" if kernel.name in self.points and not outside else "modelled"
        latency_s = min(latency_s, seconds)
        return Cost(seconds, latency_s, spread=quantity.spread, terms=(term,), grade=grade)

    def describe(self) -> dict[str, str]:
        """Return what is known of this GPU, in words with units."""
        table = {
            "gpu": self.name,
            "title": self.title,
            "aliases": ", ".join(self.aliases) or "none",
            "memory": format_bytes(self.memory_bytes),
            "memory bandwidth": _said(self.memory_bandwidth, format_rate),
            "kernel launch": _said(self.launch_s, format_seconds),
        }
        for precision, rate in self.rates.items():
            table[f"matrix rate {precision}"] = _said(rate, lambda x: f"{x / 1e12:.4g} TFLOP/s")
        if self.power_w:
            table["power"] = f"{self.power_w:g} W"
        for name, curves in sorted(self.points.items()):
            sizes = [size for curve in curves for size in curve.sizes]
            kinds = weakest([kind for curve in curves for kind in curve.kinds])
            table[f"kernel {name}"] = (
                f"{len(sizes)} points, {format_count(min(sizes))} to {format_count(max(sizes))}"
                f" elements, {kinds}"
            )
        table["scaled from"] = ", ".join(self.reference_names) or "no other GPU"
        return table

    def _stream_s(self, kernel: Kernel) -> float:
        moved_s = kernel.moved_bytes / self.memory_bandwidth.value
        return max(moved_s, kernel.flops / self.matrix_rate("fp32").value if kernel.flops else 0.0)

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
        spread = sum(known) / seconds if known and seconds > 0 else None
        return Cost(seconds, latency_s, spread=spread, terms=terms)

    def _read(self, kernel: Kernel) -> tuple[float, Quantity, bool]:
        size = float(kernel.elements)
        least = self._stream_s(kernel) / size if size > 0 else 0.0
        return read_off(self.points[kernel.name], size, kernel.width, least)

    def _scaled(self, kernel: Kernel, source: Device) -> tuple[float, Quantity, bool]:
        seconds, quantity, outside = source._read(kernel)
        ratio = source.memory_bandwidth.value / self.memory_bandwidth.value
        flat_s = source._read(kernel._replace(elements=1))[0]
        seconds = max(flat_s + (seconds - flat_s) * ratio, self._stream_s(kernel))
        told = f"{source.name}, growth x {ratio:.3g} (memory bandwidths): {quantity.source}"
        return (
            seconds,
            quantity._replace(value=seconds, kind="derived", source=told, spread=None),
            outside,
        )


def _said(quantity: Quantity, words: Callable[[float], str]) -> str:
    return f"{words(quantity.value)}, {quantity.kind}: {quantity.source}"


def load_device(name: str, catalog: Catalog) -> Device:
    """Return the device of a name or alias, its reference GPUs and the points of any GPU.

    A name is looked for as it stands, then in any case and with ``_`` for ``-``, then as alias.

    Raises
    ------
    RequestError
        If no device has that name or alias.
    DataError
        If one of its files is damaged, or names a reference that is no GPU.
    """
    files = catalog.files("devices")
    name = _stem(name, files)
    shared = catalog.beside("devices", ANY, POINTS)
    device = _with_points(name, files, catalog, _points(shared, catalog))
    for other in device.reference_names:
        if other not in files:
            raise DataError(str(unknown("references", other, files, "gpus")), path=files[name])
    references = [_with_points(other, files, catalog, {}) for other in device.reference_names]
    return replace(device, references=tuple(references))


def _stem(name: str, files: Mapping[str, Path]) -> str:
    if name in files:
        return name
    plain = {_plain(stem): stem for stem in files}
    if _plain(name) not in plain:
        for stem, path in files.items():
            plain |= {_plain(alias): stem for alias in read_device_file(path)["aliases"]}
    if _plain(name) not in plain:
        raise unknown("--gpu", name, files, "gpus")
    return plain[_plain(name)]


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _with_points(
    name: str, files: Mapping[str, Path], catalog: Catalog, common: Mapping[str, tuple[Curve, ...]]
) -> Device:
    points = {**common, **_points(catalog.beside("devices", name, POINTS), catalog)}
    return Device(**read_device_file(files[name]), points=points)


def _points(path: Path | None, catalog: Catalog) -> Mapping[str, tuple[Curve, ...]]:
    """Return the points of a file, which one GPU's device and those scaled from it share."""
    if path is None:
        return {}
    return catalog.once(("kernels", path), lambda: read_kernels(path))


def read_device(path: Path) -> Device:
    """Read and check one device file, with the kernel points beside it if there are any.

    Raises
    ------
    DataError
        If a file cannot be read or breaks the format.
    """
    beside = path.with_name(path.name.removesuffix(".toml") + POINTS)
    points = read_kernels(beside) if beside.is_file() else {}
    return Device(**read_device_file(path), points=points)
