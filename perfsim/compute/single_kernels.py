"""What one kernel takes on a GPU: product, attention, normalisation, stream, optimizer step.

``kernel_times("h100", Catalog())`` prices them. Each answer has its 90 % error, by how the GPU is
known. A matrix product takes (c^p + m^p)^(1/p) + launch, c its operations over the rate of large
products and m its bytes over memory bandwidth, times a ratio interpolated by size in
``profiles/devices/<gpu>.products.csv``; a GPU without that file takes ``any.products.csv``, the
mean of the measured GPUs. ``profiles/build/kernel_record.py`` makes these files and says how wrong
the times are on shapes and GPUs left out. Whole iterations are priced by ``kernel_time``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import product
from math import exp, log
from pathlib import Path
from typing import Literal, NamedTuple

from perfsim.compute.attention import (
    ATTENTION,
    BACKWARD_WORK,
    MASKED,
    attended_share,
    fused_attention,
    known_attention,
    usual_kernel,
)
from perfsim.compute.device import ANY_GPU, Device, load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import FITTED, PASSES_BY_OPERATION, UPDATE_PASSES
from perfsim.compute.profile import (
    OPERAND_BYTES,
    OPTIMIZER_LAUNCHES,
    PRECISIONS,
    precision_bytes,
)
from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_kind, read_table
from perfsim.errors import DataError, RequestError, shown, unknown
from perfsim.quantity import COUNT_LIMIT, NumberLimit
from perfsim.sums import sum_in_order

__all__ = [
    "FUSED_UPDATES",
    "KernelTime",
    "KernelTimes",
    "ProductRatios",
    "kernel_times",
    "read_products",
]

PRODUCTS_SCHEMA = "perfsim/products/1"
PRODUCTS_COLUMNS = ("precision", "m", "n", "k", "ratio", "kind")
PRODUCTS_SUFFIX = ".products.csv"

Known = Literal["table", "rate", "data sheet"]
"""How a GPU is known: its products were measured by size, one rate was, or only its data sheet."""

PRODUCT_SPREADS: dict[str, dict[Known, float]] = {
    "amp-bf16": {"table": 0.12, "rate": 0.15, "data sheet": 0.23},
    "fp8": {"table": 0.11, "rate": 0.28, "data sheet": 0.30},
    "nvfp4": {"table": 0.13, "rate": 0.29, "data sheet": 0.29},
    "fp32": {"table": 0.15, "rate": 0.26, "data sheet": 0.41},
}
ATTENTION_SPREADS: dict[Known, float] = {"table": 0.15, "rate": 0.26, "data sheet": 0.26}
NORM_SPREADS = {"cudnn": 0.21, "compiled": 0.37, "eager": 0.60}
STREAM_SPREADS: dict[Known, float] = {"table": 0.04, "rate": 0.04, "data sheet": 0.16}
"""90 % of times were within these, by how the GPU is known: profiles/measurements/kernels.csv
(fp16 and tf32 as bf16). For attention, "table" is a kernel and architecture that was measured."""

_POWER = 2.6
_GAP_S = 2.8e-6
"""How a product's computation and data movement add, and its least time [s]: fitted to 13,179 bf16
products of seven GPUs (ai-dynamo/aiconfigurator@095f58a, Apache-2.0)."""
_RATIO_LIMIT = NumberLimit(0.05, 20.0, "a ratio from 0.05 to 20")


class KernelTime(NamedTuple):
    """A kernel's time [s], the relative error that 90 % of such times stay within, and why."""

    seconds: float
    spread: float
    known: Known


class ProductRatios(NamedTuple):
    """A grid of ln(measured / roofline) over the sizes of a product, at one precision."""

    m: tuple[float, ...]
    n: tuple[float, ...]
    k: tuple[float, ...]
    logarithms: Mapping[tuple[float, float, float], float]

    def at(self, m: float, n: float, k: float) -> float:
        """Return the ratio at a size: linear between nodes in logarithms, flat beyond them.

        Examples
        --------
        >>> grid = ProductRatios((1,), (1, 4), (8,), {(1, 1, 8): 0.0, (1, 4, 8): log(4)})
        >>> round(grid.at(5, 2, 9), 3), round(grid.at(5, 64, 9), 3)
        (2.0, 4.0)
        """
        sides = (_weights(self.m, m), _weights(self.n, n), _weights(self.k, k))
        return exp(
            sum_in_order(
                a * b * c * self.logarithms[x, y, z]
                for (x, a), (y, b), (z, c) in product(*sides)
                if a * b * c
            )
        )


def _weights(nodes: tuple[float, ...], size: float) -> list[tuple[float, float]]:
    """Return the nodes about a size and the weight of each."""
    above = bisect_right(nodes, size)
    if above == 0:
        return [(nodes[0], 1.0)]
    if above == len(nodes):
        return [(nodes[-1], 1.0)]
    low, high = nodes[above - 1], nodes[above]
    share = log(size / low) / log(high / low)
    return [(low, 1.0 - share), (high, share)]


_WAVE = 0.43
"""Tiles of 128 queries that each multiprocessor waits for beside its own, fitted with the rates."""
_FUSED_KERNELS = dict.fromkeys(kernel for kernel, _ in ATTENTION)
"""Fused kernels of attention that may be asked for."""
_ATTENTION_GAP_S = 15e-6
"""What attention takes beside its work [s]. No source was kept; it is judged with the rates
(profiles/measurements/kernels.csv)."""
_WIDE = 0.8
"""Power of head_dim / 128 by which wider heads are slower backward: 1.19 for 192 and 128, fitted to
NVIDIA/cudnn-frontend@3929da2 on GB200 and GB300."""


class NormRate(NamedTuple):
    """Share of streaming bandwidth that a pass of a normalisation reaches, and its least time."""

    share: float
    least_s: float


NORM_KERNELS = {
    "cudnn": (NormRate(0.92, 2.5e-6), NormRate(0.88, 7.7e-6)),
    "compiled": (NormRate(0.83, 2.1e-6), NormRate(0.40, 8.1e-6)),
    "eager": (NormRate(0.83, 7.6e-6), NormRate(0.41, 24e-6)),
}
"""Forward (2 passes over the values) and backward (3): fitted to RMSNorm and a few LayerNorm in
bf16 on H200, GB200 and GB300, NVIDIA/cudnn-frontend@3929da2 benchmark/norms (MIT)."""
_STREAM_GAP_S = 4.5e-6
"""What an element-wise kernel takes beside its traffic [s]. No source was kept; it is judged as the
others (profiles/measurements/kernels.csv)."""

FUSED_UPDATES: dict[tuple[str, str], tuple[float, float]] = {
    ("plain-sgd", "fused"): (12, 0),
    ("sgd", "fused"): (4.0 * UPDATE_PASSES["sgd"], 0),
    ("adam", "fused"): (4.0 * UPDATE_PASSES["adam"], 0),
    ("adamw", "fused"): (4.0 * UPDATE_PASSES["adam"], 0),
    ("lamb", "fused"): (48, 0),
    **{
        (name, "by operation"): (4.0 * PASSES_BY_OPERATION[passes], launches)
        for name, passes, launches in (
            ("plain-sgd", "plain-sgd", OPTIMIZER_LAUNCHES["plain-sgd"]),
            ("sgd", "sgd", OPTIMIZER_LAUNCHES["sgd"]),
            ("adam", "adam", OPTIMIZER_LAUNCHES["adam"]),
            ("adamw", "adamw-by-operation", OPTIMIZER_LAUNCHES["adamw-by-operation"]),
            ("lamb", "lamb", 16),
        )
    },
}
"""(optimizer, how it runs) -> bytes a parameter in fp32, launches a tensor (0: one kernel for many
tensors). Fused: each of weight, gradient and moments is read once, all but the gradient written
once; LAMB writes its direction, reads weight and direction for their norms, then again for the
update. By operation: the reads and writes of each operation that ``OPTIMIZER_LAUNCHES`` counts;
LAMB is Adam's, the decay, two norms, their ratio and the update (derived from You et al., arXiv
1904.00962, algorithm 2)."""
_TENSORS_A_LAUNCH, _ELEMENTS_A_LAUNCH = 252, 65536 * 2240
"""Tensors of four lists, and elements of 2,240 blocks, in a launch of PyTorch's multi-tensor
kernels (aten/src/ATen/native/cuda/MultiTensorApply.cuh, CUDA 12.1 and later)."""


class KernelTimes(NamedTuple):
    """Times of single kernels on one GPU; ``own`` and ``shared`` are ratios by precision."""

    device: Device
    own: Mapping[str, ProductRatios]
    shared: Mapping[str, ProductRatios]

    def product(self, m: int, n: int, k: int, precision: str = "amp-bf16") -> KernelTime:
        """Return the time of a product of m x k by k x n values, its result written once.

        fp8 and nvfp4 include the quantisation of the m x k values. fp16 is as fast as bf16; tf32
        has bf16's ratios.

        Raises
        ------
        RequestError
            If a size is not positive or the GPU does not compute at that precision.

        Examples
        --------
        >>> times = kernel_times("h100", Catalog())
        >>> large, small = times.product(8192, 8192, 8192), times.product(512, 1024, 1024)
        >>> f"{large.seconds * 1e6:.0f} us +-{large.spread:.0%} by {large.known}"
        '1371 us +-12% by table'
        >>> small.seconds < 1e-5
        True
        """
        _check(m=m, n=n, k=k)
        known, ratios = self._ratios(precision)
        seconds = product_roofline(self.device, m, n, k, precision)
        if ratios is not None:
            seconds *= ratios.at(m, n, k)
        return KernelTime(seconds, PRODUCT_SPREADS[_table_of(precision)][known], known)

    def attention(
        self,
        batch: int,
        tokens: int,
        heads: int,
        head_dim: int,
        *,
        kv_heads: int | None = None,
        causal: bool = True,
        window: int | None = None,
        backward: bool = False,
        kernel: str | None = None,
        precision: str = "amp-bf16",
    ) -> KernelTime:
        """Return the time of one layer's attention, without the products of its weights.

        Parameters
        ----------
        kv_heads : heads of keys and values, those of the queries if None
        window : tokens that a token attends to at most, all if None
        kernel : cudnn, aiter, flash2, flash3, flash4 or serving (fused), efficient (PyTorch's, with
            a mask in 16 bits, for which it computes all scores), or unfused; the architecture's
            usual one if None; fp32 values go through the kernel that takes them
            (`attention.fused_attention`)

        Raises
        ------
        RequestError
            If a size is not positive, or there is no such kernel.

        Examples
        --------
        >>> times = kernel_times("h100", Catalog())
        >>> fused = times.attention(8, 4096, 32, 128)
        >>> slow = times.attention(8, 4096, 32, 128, kernel="unfused")
        >>> fused.seconds < slow.seconds / 3
        True
        """
        kv_heads = heads if kv_heads is None else kv_heads
        reached = tokens if window is None else window
        _check(batch=batch, tokens=tokens, heads=heads, head_dim=head_dim, kv_heads=kv_heads)
        _check(window=reached)
        architecture = self.device.architecture
        width = precision_bytes(precision)
        values = batch * tokens * head_dim * (2.0 * heads + 2.0 * kv_heads)
        flops = 4.0 * batch * heads * float(tokens) ** 2 * head_dim
        name = kernel or usual_kernel(architecture)
        if name == "unfused":
            scores = batch * heads * float(tokens) ** 2
            return self._unfused(flops, values, scores, precision, backward)
        if name not in _FUSED_KERNELS:
            raise unknown("kernel", name, [*_FUSED_KERNELS, "unfused"])
        rate, large = fused_attention(name, self.device, _plain(precision))
        share = min(1.0, reached / tokens)
        masked = rate is MASKED
        if masked:
            causal, share = False, 1.0
        flops *= attended_share(causal, share) * (BACKWARD_WORK if backward else 1.0)
        slower = rate.narrower_pass(head_dim, backward=backward)
        if backward:
            slower *= max(1.0, head_dim / 128) ** _WIDE
        compute_s = flops * slower / (large * (rate.backward if backward else rate.forward))
        compute_s *= rate.short(tokens, causal, share)
        tiles = batch * heads * -(-tokens // 128)
        compute_s *= 1.0 + _WAVE * self.device.multiprocessors / tiles
        moved = width * values * (2.0 if backward else 1.0)
        memory_s = moved / self.device.memory_bandwidth.value
        known: Known = "table" if known_attention(name, self.device) and not masked else "rate"
        seconds = max(compute_s, memory_s) + _ATTENTION_GAP_S
        return KernelTime(seconds, ATTENTION_SPREADS[known], known)

    def norm(
        self,
        rows: int,
        width: int,
        *,
        backward: bool = False,
        kernel: str = "eager",
        precision: str = "amp-bf16",
    ) -> KernelTime:
        """Return the time of a normalisation of rows (RMSNorm, LayerNorm): eager, compiled, cudnn.

        Raises
        ------
        RequestError
            If a size is not positive or there is no such kernel.
        """
        _check(rows=rows, width=width)
        if kernel not in NORM_KERNELS:
            raise unknown("kernel", kernel, NORM_KERNELS)
        moved = precision_bytes(precision) * rows * width * (3.0 if backward else 2.0)
        rate = NORM_KERNELS[kernel][backward]
        seconds = moved / (self.device.memory_bandwidth.value * rate.share) + rate.least_s
        return KernelTime(seconds, NORM_SPREADS[kernel], self._memory_known())

    def stream(self, moved_bytes: float, launches: float = 1.0) -> KernelTime:
        """Return the time of element-wise kernels that read and write so many bytes in all.

        Raises
        ------
        RequestError
            If the bytes are not positive.

        Examples
        --------
        >>> f"{kernel_times('a100', Catalog()).stream(2e9).seconds * 1e3:.2f} ms"
        '1.14 ms'
        """
        _check(moved_bytes=moved_bytes, launches=launches)
        known = self._memory_known()
        seconds = moved_bytes / self.device.memory_bandwidth.value + launches * _STREAM_GAP_S
        return KernelTime(seconds, STREAM_SPREADS[known], known)

    def softmax(self, rows: int, width: int, *, backward: bool = False) -> KernelTime:
        """Return the time of a softmax with its loss over rows of fp32 values, one pass each way.

        Forward reads twice and writes once, backward reads two tensors and writes one.
        """
        _check(rows=rows, width=width)
        return self.stream(4.0 * 3.0 * rows * width, 1.0)

    def embedding(
        self, tokens: int, width: int, vocabulary: int, *, backward: bool = False
    ) -> KernelTime:
        """Return the time of a table look-up in fp32; backward fills a whole gradient."""
        _check(tokens=tokens, width=width, vocabulary=vocabulary)
        if backward:
            return self.stream(4.0 * width * (vocabulary + 3.0 * tokens), 2.0)
        return self.stream(4.0 * 2.0 * tokens * width)

    def optimizer(
        self, parameters: int, tensors: int, name: str = "adamw", how: str = "fused"
    ) -> KernelTime:
        """Return the time of an update of fp32 parameters on the GPU, its launches included.

        Parameters
        ----------
        name : plain-sgd, sgd (momentum and decay), adam, adamw, lamb
        how : fused, or "by operation" (each operation of each tensor is a kernel)

        Raises
        ------
        RequestError
            If there is no such optimizer, or a number is not positive.

        Examples
        --------
        >>> times = kernel_times("a100", Catalog())
        >>> fused = times.optimizer(340_000_000, 398)
        >>> by_operation = times.optimizer(340_000_000, 398, how="by operation")
        >>> by_operation.seconds > 2 * fused.seconds
        True
        """
        _check(parameters=parameters, tensors=tensors)
        names = dict.fromkeys(one for one, _ in FUSED_UPDATES)
        if name not in names:
            raise unknown("optimizer", name, names)
        if (name, how) not in FUSED_UPDATES:
            raise RequestError("how", f"found {shown(how)}; allowed: fused, by operation.")
        each_bytes, each_launches = FUSED_UPDATES[name, how]
        launches = each_launches * tensors or max(
            -(-tensors // _TENSORS_A_LAUNCH), -(-parameters // _ELEMENTS_A_LAUNCH)
        )
        return self.stream(each_bytes * parameters, launches)

    def _ratios(self, precision: str) -> tuple[Known, ProductRatios | None]:
        table = _table_of(precision)
        if precision != "tf32" and table in self.own:
            return "table", self.own[table]
        rate = self.device.matrix_rate(precision)
        return "data sheet" if rate.kind == "derived" else "rate", self.shared.get(table)

    def _memory_known(self) -> Known:
        return "data sheet" if self.device.memory_bandwidth.kind == "derived" else "rate"

    def _unfused(
        self, flops: float, values: float, scores: float, precision: str, backward: bool
    ) -> KernelTime:
        """Return the time of two batched products, or four, and the passes over the scores."""
        passes = execution_of("torch2").passes.scores[backward]
        width, products = precision_bytes(precision), 4 if backward else 2
        moved = width * (products * (values / 2 + scores) + passes * scores)
        large = self.device.matrix_rate(_plain(precision)).value
        compute_s = flops * (2.0 if backward else 1.0) / (large * FITTED.batched)
        seconds = compute_s + moved / self.device.memory_bandwidth.value
        launches = products + round(passes / 2)
        return KernelTime(
            seconds + launches * _STREAM_GAP_S, ATTENTION_SPREADS["data sheet"], "rate"
        )


def product_roofline(device: Device, m: int, n: int, k: int, precision: str) -> float:
    """Return what a product takes by the GPU's rate of large products and its bandwidth [s].

    With narrower operands a kernel before it reads m x k values of two bytes and writes them so.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision.
    """
    bandwidth = device.memory_bandwidth.value
    compute_s = 2.0 * m * n * k / device.matrix_rate(precision).value
    width = precision_bytes(precision)
    narrow = OPERAND_BYTES.get(precision)
    moved = (narrow or width) * float(m * k + k * n) + width * m * n
    seconds: float = (compute_s**_POWER + (moved / bandwidth) ** _POWER) ** (1 / _POWER) + _GAP_S
    return seconds + ((width + narrow) * m * k / bandwidth + _GAP_S if narrow else 0.0)


def kernel_times(gpu: str, catalog: Catalog) -> KernelTimes:
    """Return what prices single kernels on a GPU, by its name or an alias.

    Raises
    ------
    RequestError
        If there is no such GPU.
    DataError
        If one of its files is damaged.

    Examples
    --------
    >>> times = kernel_times("mi250", Catalog())
    >>> times.product(8192, 8192, 8192).known
    'data sheet'
    """
    device = load_device(gpu, catalog)
    measured = device.measured_as or device.name
    return KernelTimes(device, _products(measured, catalog), _products(ANY_GPU, catalog))


def _products(name: str, catalog: Catalog) -> Mapping[str, ProductRatios]:
    path = catalog.beside("devices", name, PRODUCTS_SUFFIX)
    return {} if path is None else catalog.once(("products", path), lambda: read_products(path))


def read_products(path: Path) -> dict[str, ProductRatios]:
    """Read and check a file of ratios to the roofline: a whole grid of sizes for each precision.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, row, column and what was found.
    """
    found: dict[str, dict[tuple[float, float, float], float]] = {}
    last_row = 1
    gpu = path.name.removesuffix(PRODUCTS_SUFFIX)
    for row, cells in read_table(path, PRODUCTS_SCHEMA, PRODUCTS_COLUMNS, (gpu,)):
        precision, last_row = cells["precision"], row
        if precision not in PRECISIONS:
            why = f"found {shown(precision)}; allowed: {', '.join(PRECISIONS)}"
            raise DataError(why, path=path, row=row, column="precision")
        sizes = [
            cell_number(cells[key], key, path, row, positive=True, whole=True, within=COUNT_LIMIT)
            for key in "mnk"
        ]
        ratio = cell_number(cells["ratio"], "ratio", path, row, positive=True, within=_RATIO_LIMIT)
        check_kind(cells["kind"], path, row)
        nodes = found.setdefault(precision, {})
        size = (sizes[0], sizes[1], sizes[2])
        if size in nodes:
            raise DataError("this size stands twice", path=path, row=row, column="m")
        nodes[size] = log(ratio)
    return {
        precision: _grid(nodes, precision, path, last_row) for precision, nodes in found.items()
    }


def _grid(
    nodes: Mapping[tuple[float, float, float], float], precision: str, path: Path, row: int
) -> ProductRatios:
    m, n, k = (tuple(sorted({size[side] for size in nodes})) for side in range(3))
    missing = next((size for size in product(m, n, k) if size not in nodes), None)
    if missing is not None:
        size = " x ".join(f"{side:g}" for side in missing)
        raise DataError(f"{precision} has no ratio at {size}", path=path, row=row, column="m")
    return ProductRatios(m, n, k, nodes)


def _table_of(precision: str) -> str:
    return "amp-bf16" if precision in ("amp-fp16", "tf32") else precision


def _plain(precision: str) -> str:
    """Return the precision of all but dense products."""
    return "amp-bf16" if precision in OPERAND_BYTES else precision


def _check(**numbers: float) -> None:
    """Refuse a size that is not above zero.

    Raises
    ------
    RequestError
        If one is not; the message names it.
    """
    for name, value in numbers.items():
        if not value > 0:
            raise RequestError(name, f"found {value:g}, allowed is a number above 0.", value=value)
