"""Fit the constants of ``perfsim/compute/kernel_time.py``, and judge them on what was left out.

    python profiles/build/compute_record.py --data ../shared/data
        [--fit] [--deviations] [--language]

Whole iterations come from the shipped anchors, from MLPerf's public logs of one node (derived, not
verified by MLCommons), from timm's table of one RTX 3090, and from NeuSight's transformers. Errors
are of the time, |predicted / measured - 1|. Every (source, GPU, precision, model, batch) weighs
alike in the fit; a loss that grows with the root of large errors keeps single rows from setting it.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from perfsim.compute.anchors import load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import FITTED, Constants, KernelRates, kernel_rates, model_time
from perfsim.compute.profile import read_profile
from perfsim.compute.residuals import FITTED_DEVIATIONS, IterationSetting
from perfsim.compute.transfer import REPEATS, TransferInputs, residual_of
from perfsim.data.catalog import Catalog
from perfsim.models import MODELS, TEXT_MODELS
from perfsim.session import Session


class Row(NamedTuple):
    """A measured iteration: where it is from, what ran on which GPU, and its time [s]."""

    source: str
    gpu: str
    precision: str
    model: str
    tokens: int | None
    batch: int
    era: str
    seconds: float
    update: bool = True
    nodes_gpus: int = 1


_TIMM = {
    **{f"resnet{depth}": f"resnet{depth}" for depth in (18, 34, 50, 101, 152)},
    **{f"densenet{depth}": f"densenet{depth}" for depth in (121, 161, 201)},
    "inception_v4": "inception-v4",
    "vgg16": "vgg16",
    "vgg19": "vgg19",
    "vit_base_patch16_224": "vit-b16",
    "vit_large_patch16_224": "vit-l16",
}
_MLPERF_GPUS = {
    "GB200": "gb200",
    "B200": "b200",
    "H200": "h200",
    "H100-PCIE": "h100-pcie",
    "H100": "h100",
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "A100-PCIE": "a100-pcie",
    "A100-SXM4-40GB": "a100-40gb",
    "A100-SXM-40GB": "a100-40gb",
    "A100": "a100",
    "V100": "v100",
    "L40S": "l40s",
    "A30": "a30",
    "A40": "a40",
}
"""Part of a system's accelerator name -> GPU, the longest first."""
_FP8 = ("h100", "h100-pcie", "h200", "b200", "gb200", "l40s")
"""GPUs on which NVIDIA's BERT of MLPerf v2.1 and later computes its products in fp8."""


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def rows(data: Path, catalog: Catalog) -> Iterator[Row]:
    """Yield every iteration that is used, of networks that perfsim defines."""
    for gpu in catalog.files("devices"):
        for anchor in load_anchors(gpu, catalog):
            if anchor.use != "ratio" and anchor.model in MODELS:
                yield Row(
                    anchor.source.split()[0],
                    gpu,
                    anchor.precision,
                    anchor.model,
                    anchor.sequence,
                    anchor.batch,
                    anchor.software,
                    anchor.iteration_s,
                    anchor.covers == "iteration",
                )
    for cells in _table(data / "profiles" / "timm_train_rtx3090.csv"):
        name = _TIMM.get(cells["model"])
        if name and cells["img"] in ("224", "299") and "nhwc" in cells["file"]:
            seconds = float(cells["step_ms"]) / 1e3
            batch = int(cells["batch"])
            yield Row("timm nhwc", "rtx3090", "amp-fp16", name, None, batch, "torch1.12", seconds)
    for cells in _table(data / "modern" / "training.csv"):
        yield from _mlperf(cells)


def _mlperf(cells: dict[str, str]) -> Iterator[Row]:
    known = cells["model"] in ("resnet", "bert") and cells["micro_batch"]
    if not cells["source"].startswith("mlperf") or not known:
        return
    gpus = int(cells["n_gpus"])
    if gpus > 8 or int(cells["gpus_per_node"] or gpus) < gpus:
        return
    name = cells["gpu"].upper()
    gpu = next((known for part, known in _MLPERF_GPUS.items() if part in name), None)
    if gpu is None or "96GB" in name:
        return
    seconds, batch = float(cells["step_time_s"]), int(cells["micro_batch"])
    source = cells["source"]
    if cells["model"] == "resnet":
        yield Row(source, gpu, "amp-fp16", "resnet50", None, batch, "mlperf", seconds, True, gpus)
    elif cells["model"] == "bert" and not source.endswith(("v0.7", "v1.0", "v1.1")):
        steps = int(cells["global_batch"]) / gpus / batch
        precision = "fp8" if gpu in _FP8 else "amp-fp16"
        yield Row(
            source,
            gpu,
            precision,
            "bert-large",
            512,
            batch,
            "mlperf",
            seconds / steps,
            steps == 1,
            gpus,
        )


class Judge:
    """Predictions of rows by kernels alone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def rates(self, row: Row, constants: Constants) -> KernelRates:
        """Return what prices a row's kernels."""
        device = self._catalog.once(
            ("device", row.gpu), lambda: load_device(row.gpu, self._catalog)
        )
        rates = kernel_rates(device, row.precision, row.era, constants)
        return rates._replace(conversions=0.0) if row.source == "timm nhwc" else rates

    def seconds(self, row: Row, constants: Constants = FITTED) -> float:
        """Return a row's iteration by its kernels [s]."""
        tokens = row.tokens if row.model in TEXT_MODELS else None
        rates = self.rates(row, constants)
        return model_time(row.model, tokens, row.batch, rates, update=row.update).iteration_s

    def off(self, row: Row, constants: Constants = FITTED) -> float:
        """Return ln(predicted / measured) of a row."""
        return math.log(self.seconds(row, constants) / row.seconds)


_WIDTHS = {
    "gap_s": 0.15,
    "product": 0.1,
    "memory": 0.1,
    "update_passes": 0.2,
    "unpadded": 0.05,
    "kepler": 0.05,
    "attention": 0.2,
}
"""Standard deviation of a constant's logarithm about its start; 0.5 unless told."""
_ERROR = 0.1
"""Deviation of an iteration's logarithm that counts as one."""


def fit(judge: Judge, used: Sequence[Row], start: Constants = FITTED) -> Constants:
    """Return the constants that fit iterations best, near a start."""
    import numpy as np
    from scipy.optimize import least_squares

    names = start._fields
    centre = np.log(np.array(start))
    widths = np.array([_WIDTHS.get(name, 0.5) for name in names])
    same = Counter(_alike(row) for row in used)
    weights = np.array([1 / math.sqrt(same[_alike(row)]) for row in used])

    def residuals(point: np.ndarray) -> np.ndarray:
        constants = Constants(*(float(value) for value in np.exp(point)))
        off = np.array([judge.off(row, constants) for row in used])
        return np.concatenate([off * weights / _ERROR, (point - centre) / widths])

    found = least_squares(residuals, centre, loss="soft_l1", max_nfev=25)
    return Constants(*(float(value) for value in np.exp(found.x)))


_KINDS: dict[str, Callable[[IterationSetting], object]] = {
    "model": lambda place: place.model,
    "model_precision": lambda place: (place.model, place.precision),
    "architecture": lambda place: place.architecture,
    "gpu_family": lambda place: (place.family, place.precision, place.gpu),
    "cell": lambda place: (place.model, place.precision, place.chip, place.tokens),
    "era": lambda place: place.era,
    "era_family": lambda place: (place.family, place.precision, place.era),
    "source": lambda place: (place.source, place.family),
    "source_gpu": lambda place: (place.source, place.family, place.gpu),
}
"""What two places share, by the deviation of what they then have in common (``residuals``)."""


def deviations(catalog: Catalog) -> None:
    """Fit ``residuals.Deviations`` and print them: each (GPU, precision, model) left out in turn.

    The likelihood is that of Student's t with 4 degrees of freedom, every cell alike.
    """
    import numpy as np
    from scipy.optimize import minimize

    known = {gpu: tuple(load_anchors(gpu, catalog)) for gpu in catalog.files("devices")}
    profile = read_profile(next(iter(catalog.files("models").values())))
    inputs = TransferInputs(profile, load_device("v100", catalog), known, catalog, False, True)
    found = [
        residual_of(inputs, anchor, gpu)
        for gpu, anchors in known.items()
        for anchor in anchors
        if anchor.use != "ratio" and anchor.model in MODELS
    ]
    places, values = [one.setting for one in found], np.array([one.value for one in found])

    def alike(of: Callable[[IterationSetting], object]) -> np.ndarray:
        names = np.array([repr(of(place)) for place in places])
        return (names[:, None] == names[None, :]).astype(float)

    shared = {name: alike(of) for name, of in _KINDS.items()}
    batches = np.log([place.batch for place in places])
    shared["cell"] *= np.exp(-np.abs(batches[:, None] - batches[None, :]))
    cells: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, place in enumerate(places):
        cells[place.model, place.precision, place.gpu].append(index)
    names = (*_KINDS, "repeats")
    start = np.log([getattr(FITTED_DEVIATIONS, name) for name in _KINDS] + [REPEATS])

    def errors(point: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        by = dict(zip(names, np.exp(point), strict=True))
        told = sum(by[name] ** 2 * shared[name] for name in _KINDS if "source" not in name)
        own = sum(by[name] ** 2 * shared[name] for name in _KINDS if "source" in name)
        whole = told + own + np.eye(len(values)) * by["repeats"] ** 2
        pairs = []
        for cell in cells.values():
            rest = np.setdiff1d(np.arange(len(values)), cell)
            across = told[np.ix_(rest, cell)]
            right = np.column_stack([values[rest], across])
            solved = np.linalg.solve(whole[np.ix_(rest, rest)], right)
            variance = np.diag(whole)[cell] - np.sum(across * solved[:, 1:], axis=0)
            pairs.append((values[cell] - across.T @ solved[:, 0], variance))
        return pairs

    def cost(point: np.ndarray) -> float:
        total = sum(
            np.mean(0.5 * np.log(variance) + 2.5 * np.log1p(off**2 / variance / 4))
            for off, variance in errors(point)
        )
        return float(total + 0.5 * np.sum((point - start) ** 2))

    for point in (start, minimize(cost, start, method="L-BFGS-B", options={"maxiter": 25}).x):
        off = [float(one) for one, _ in errors(point) for one in one]
        held = [bool(one) for off, var in errors(point) for one in off**2 <= 1.645**2 * var]
        figures = ", ".join(f"{n} {v:.3f}" for n, v in zip(names, np.exp(point), strict=True))
        print(f"cost {cost(point):.1f}: {figures}")
        print(f"  {spread(off)}, in 90 % {statistics.mean(held):.1%}")


_FOUNDRY_GPUS = {"a100_40gb": "a100-40gb", "a100_80gb": "a100", "h100_80gb": "h100"}


class LanguageRow(NamedTuple):
    """A micro-batch of llm-foundry's benchmarks on one node, and its time over the kernels' [1]."""

    model: str
    tokens: int
    gpu: str
    ratio: float


def language_rows(data: Path, catalog: Catalog) -> Iterator[LanguageRow]:
    """Yield llm-foundry's runs of one node: measured over predicted time of kernels alone."""
    for cells in _table(data / "modern" / "training.csv"):
        if cells["source"] != "llm-foundry" or cells["n_gpus"] != "8":
            continue
        gpu, tokens = _FOUNDRY_GPUS[cells["gpu"]], int(cells["seq"])
        precision = "fp8" if "fp8" in cells["precision"] else "amp-bf16"
        steps = int(cells["grad_accum"])
        time = model_time(
            cells["model"].lower(),
            tokens,
            int(cells["micro_batch"]),
            kernel_rates(load_device(gpu, catalog), precision, "composer-2023"),
            recompute=cells["activation_checkpointing"],
        )
        predicted_s = time.passes_s + time.update_s / 8 / steps
        measured_s = float(cells["step_time_s"]) / steps
        yield LanguageRow(cells["model"], tokens, f"{gpu} {precision}", measured_s / predicted_s)


def language(data: Path, catalog: Catalog) -> None:
    """Print errors on llm-foundry: by kernels alone, and with what the rest of the stack says."""
    found = list(language_rows(data, catalog))
    print("kernels alone", spread([-math.log(row.ratio) for row in found]))
    keys: dict[str, Callable[[LanguageRow], object]] = {
        "model left out": lambda row: (row.gpu, row.model),
        "length left out": lambda row: (row.gpu, row.tokens),
        "GPU left out": lambda row: row.gpu.partition(" ")[0],
    }
    for words, key in keys.items():
        off = []
        for row in found:
            rest = [one for one in found if key(one) != key(row)]
            if words != "GPU left out":
                rest = [one for one in rest if one.gpu == row.gpu]
            level = statistics.median([one.ratio for one in rest] or [1.0])
            off.append(math.log(level / row.ratio))
        print(words, spread(off))


def _exchanges(row: Row) -> bool:
    """Tell whether a row's exchange inside its node may show: BERT on several GPUs over PCIe."""
    over_pcie = "pcie" in row.gpu or row.gpu in ("a30", "l40s")
    return row.model == "bert-large" and row.nodes_gpus > 1 and over_pcie


def alike(found: Iterable[Row]) -> list[Row]:
    """Return one row, of the median time, for those that differ by submitter alone."""
    groups = defaultdict(list)
    for row in found:
        groups[row._replace(seconds=0.0, source=row.source.partition("-v")[0])].append(row.seconds)
    return [row._replace(seconds=statistics.median(times)) for row, times in groups.items()]


def _alike(row: Row) -> tuple[str, str, str, str, int]:
    return row.source.partition("-v")[0], row.gpu, row.precision, row.model, row.batch


def spread(found: Sequence[float]) -> str:
    """Return count, median, 90th percentile and bias of ln(predicted / measured), in words."""
    if not found:
        return "none"
    rising = sorted(abs(math.expm1(value)) for value in found)
    ninth = rising[min(len(rising) - 1, int(0.9 * len(rising)))]
    return (
        f"{len(rising):4d} rows: median {statistics.median(rising):6.1%}, 90th percentile"
        f" {ninth:6.1%}, bias {math.expm1(statistics.median(found)):+6.1%}"
    )


def report(judge: Judge, used: Sequence[Row], constants: Constants) -> None:
    """Print errors of kernels alone by source, GPU, model and software."""
    print("all", spread([judge.off(row, constants) for row in used]))
    kinds: dict[str, Callable[[Row], str]] = {
        "source": lambda row: row.source.partition("-v")[0],
        "gpu": lambda row: row.gpu,
        "model": lambda row: row.model,
        "software": lambda row: row.era,
    }
    for kind, key in kinds.items():
        groups = defaultdict(list)
        for row in used:
            groups[key(row)].append(judge.off(row, constants))
        for name in sorted(groups):
            print(f"{kind:9s}{name:38s}{spread(groups[name])}")


def main() -> None:
    """Fit and print, as the options say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--fit", action="store_true", help="fit the constants anew")
    parser.add_argument("--deviations", action="store_true", help="fit what residuals share")
    parser.add_argument("--language", action="store_true", help="judge on llm-foundry alone")
    parser.add_argument("--worst", type=int, default=0, help="print so many of the worst rows")
    options = parser.parse_args()
    catalog = Session()
    judge, used = Judge(catalog), alike(rows(options.data, catalog))
    fitted = [row for row in used if not _exchanges(row)]
    if options.language:
        language(options.data, catalog)
        return
    if options.deviations:
        deviations(catalog)
        return
    constants = fit(judge, fitted) if options.fit else FITTED
    print(constants)
    report(judge, used, constants)
    worst = sorted(used, key=lambda row: -abs(judge.off(row, constants)))
    for row in worst[: options.worst]:
        print(*row[:7], f"{row.seconds * 1e3:.1f} ms, {math.exp(judge.off(row, constants)):.2f}")


if __name__ == "__main__":
    main()
