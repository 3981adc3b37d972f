"""Make the rows of what is known of learning that come from the logs of Gradient-Compression.

    python profiles/build/learning_record.py --mirror REPOSITORY [--check]

REPOSITORY is a git copy of vineeths96/Gradient-Compression (MIT). The rows of that source in
``profiles/learning/evidence.csv`` are replaced, all others stay as they are; ``--check`` writes
nothing and fails where the file would change.

The logs are 37 settings of 5 runs, each 150 epochs of CIFAR-10 on 2 GPUs: two of them are SGD
(ResNet-50 and VGG-16), beside which the other 35 are put.

Epochs to quality: the first epoch at which the mean of the 5 runs' test accuracies is 90 % or more.
The accuracy that the code logs is that of the last test batch only (``AverageMeter.add`` overwrites
what it should sum): 2 x 256 images. A single run's curve therefore jumps above the line long before
it stays there, the earlier the more it varies. In the mean of 5 runs, what differs between them has
less than half of its spread. All runs state the same seed.

Other rules give other epochs (median of the 5 runs' own first crossings: SGD 70 and 64; of their
running medians of 5 epochs: 84 and 94), so only ratios within one rule compare. A row's ``spread``
is the range of epochs when one of the 5 runs is left out; its ``notes`` have that of single runs.

Final accuracy: the mean of the last 5 epochs and of the runs; ``spread`` has the standard deviation
over the runs, and over SGD's.
"""

from __future__ import annotations

import argparse
import csv
import io
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from perfsim.data.files import read_text, write_text
from perfsim.methods.learning import LEARNING_FILE, Evidence

__all__ = ["COMMIT", "SOURCE", "Log", "epochs_to", "read_logs", "rows_of", "table_text", "unpickle"]

COMMIT = "e5b61b1ebfa4288c3c2a9109819b72c13a93b5f7"
SOURCE = f"vineeths96/Gradient-Compression@{COMMIT[:8]}"
QUALITY = 0.9
"""Test accuracy that a setting must reach: SGD does well before its 150 epochs, 2 bits just so."""
LAST = 5
"""Epochs whose mean is the final accuracy."""

_BASELINE = "NoneAllReducer"
_NEVER = "never"
_BATCH = "accuracy of the last test batch only (2 x 256 images)"
_MODELS = {"ResNet50": "ResNet-50 (CIFAR variant)", "VGG16": "VGG-16 (CIFAR variant)"}
_CURVE = "test_top1_accuracy"
_METHODS = {
    "RankKReducer": "powersgd",
    "QSGDMaxNormReducer": "qsgd",
    "QSGDMaxNormTwoScaleReducer": "qsgd",
    "GlobalRandKMaxNormReducer": "randk_maxnorm",
    "GlobalRandKMaxNormTwoScaleReducer": "randk_maxnorm",
}
_COMMON = {
    "task": "image classification",
    "data": "CIFAR-10",
    "tokens": "",
    "workers": "2",
    "comparable": "yes",
    "trained_ratio": "",
    "runs": "5",
    "kind": "derived",
    "source": SOURCE,
    "licence": "MIT",
    "date": "2021-05..06",
}

Floats = NDArray[np.float64]


class Log(NamedTuple):
    """Runs of one setting: its folder, what it was told, test accuracy by run and epoch."""

    folder: str
    told: dict[str, str]
    accuracy: Floats

    @property
    def model(self) -> str:
        """Return the network."""
        return _MODELS[self.told["architecture"]]


class _Numpy(pickle.Unpickler):
    """Unpickles arrays of numbers and refuses all else: a pickle may call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is none of numpy's arrays")


def unpickle(content: bytes) -> dict[str, Floats]:
    """Return the arrays of an ``.npy`` file that holds a dictionary of them.

    Raises
    ------
    pickle.UnpicklingError
        If its pickle asks for anything besides arrays and dtypes.
    """
    file = io.BytesIO(content)
    npy.read_magic(file)
    npy.read_array_header_1_0(file)
    found: dict[str, Floats] = _Numpy(file).load().item()
    return found


def read_logs(mirror: Path, commit: str = COMMIT) -> list[Log]:
    """Read the logs of all settings at a commit of the repository, without checking it out."""

    def git(*words: str) -> bytes:
        return subprocess.run(
            ["git", "-C", str(mirror), *words], check=True, capture_output=True
        ).stdout

    names = git("ls-tree", "--name-only", f"{commit}:logs").decode().split()
    found = []
    for name in sorted(name for name in names if name.startswith("20")):
        place = f"{commit}:logs/{name}"
        lines = git("show", f"{place}/success.txt").decode().splitlines()
        pairs = (line.partition(" : ") for line in lines)
        told = {key.strip(): value.strip() for key, mark, value in pairs if mark}
        curves = unpickle(git("show", f"{place}/log_dict.npy"))
        found.append(Log(name, told, np.asarray(curves[_CURVE], float)))
    return found


def epochs_to(accuracy: Floats, quality: float = QUALITY) -> int | None:
    """Return the first epoch at which the runs' mean reaches a quality; None if none does.

    Examples
    --------
    >>> epochs_to(np.array([[0.80, 0.95, 0.91], [0.80, 0.84, 0.92]]))
    3
    """
    reached = np.nonzero(accuracy.mean(axis=0) >= quality)[0]
    return int(reached[0]) + 1 if len(reached) else None


def rows_of(logs: Sequence[Log]) -> list[dict[str, str]]:
    """Return two rows for each setting that is not SGD: epochs to quality, and final accuracy."""
    dense = {log.model: log for log in logs if log.told["reducer"] == _BASELINE}
    rows = []
    for log in logs:
        told = log.told
        if told["reducer"] == _BASELINE:
            continue
        method = _METHODS[told["reducer"]]
        setting, options = _setting(method, told)
        own = {
            "method": method,
            "setting": setting,
            "options": options,
            "model": log.model,
            "locator": f"logs/{log.folder}/log_dict.npy",
        }
        base = dense[log.model]
        rows.append(_COMMON | own | _epochs(base.accuracy, log.accuracy))
        rows.append(_COMMON | own | _final(base.accuracy, log.accuracy))
    return sorted(rows, key=lambda row: [row[name] for name in _ORDER])


_ORDER = ("method", "setting", "model", "locator", "measure")


def _setting(method: str, told: dict[str, str]) -> tuple[str, str]:
    """Return a setting in words, and as perfsim's options of the method."""
    if method == "powersgd":
        return f"rank={told['rank']}", f"rank={told['rank']}"
    bits, finer = told["quantization_level"], told.get("higher_quantization_level")
    words = f"bits={bits}/{finer} two scales" if finer else f"bits={bits}"
    if method == "qsgd":
        options = f"bits={bits}; exchange=all_reduce"
        return f"{words}, max-norm", f"{options}; second_bits={finer}" if finer else options
    values = f"values={told['K']}"
    options = f"{values}; two_scale=true" if finer else f"{values}; bits={bits}"
    return f"k={told['K']}, {words}", options


def _epochs(base: Floats, own: Floats) -> dict[str, str]:
    """Return the cells of epochs to quality."""
    singles = [epochs_to(run[None]) for run in own]
    left_out = [epochs_to(np.delete(own, run, axis=0)) for run in range(len(own))]
    return {
        "measure": "epochs_to_quality",
        "unit": "epochs",
        "baseline": f"SGD, first epoch whose mean test accuracy of 5 runs is {QUALITY:.0%}",
        "baseline_value": _told(epochs_to(base)),
        "value": _told(epochs_to(own)),
        "spread": f"{_range(left_out)} with one run left out",
        "notes": f"single runs {_range(singles)}, SGD's"
        f" {_range([epochs_to(run[None]) for run in base])}; {_BATCH}; the same seed in all"
        " runs",
    }


def _final(base: Floats, own: Floats) -> dict[str, str]:
    """Return the cells of final accuracy [%]."""
    runs, others = (100 * one[:, -LAST:].mean(axis=1) for one in (own, base))
    return {
        "measure": "final_accuracy",
        "unit": "percent",
        "baseline": f"SGD, mean of the last {LAST} of {own.shape[1]} epochs",
        "baseline_value": f"{others.mean():.2f}",
        "value": f"{runs.mean():.2f}",
        "spread": f"sd {runs.std(ddof=1):.2f}, baseline {others.std(ddof=1):.2f}",
        "notes": _BATCH,
    }


def _told(epoch: int | None) -> str:
    return _NEVER if epoch is None else str(epoch)


def _range(epochs: Iterable[int | None]) -> str:
    """Return the range of epochs, and how many runs never reached the quality."""
    found = list(epochs)
    reached = sorted(epoch for epoch in found if epoch is not None)
    words = [f"{reached[0]}..{reached[-1]}"] if reached else []
    if len(reached) < len(found):
        words.append(f"{len(found) - len(reached)} of {len(found)} never")
    return ", ".join(words)


def table_text(old: str, made: Iterable[dict[str, str]]) -> str:
    """Return the table with the rows of this source replaced, in the order of method and source."""
    lines = old.splitlines()
    head = [line for line in lines if line.startswith("#")]
    kept = [row for row in csv.DictReader(lines[len(head) :]) if row["source"] != SOURCE]
    file = io.StringIO()
    writer = csv.DictWriter(file, Evidence._fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted([*kept, *made], key=lambda row: (row["method"], row["source"])))
    return "\n".join(head) + "\n" + file.getvalue()


def main() -> None:
    """Write the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("profiles/learning") / LEARNING_FILE)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    options = parser.parse_args()
    made = rows_of(read_logs(options.mirror))
    old = read_text(options.out)
    text = table_text(old, made)
    print(f"{len(made)} rows of {SOURCE}")
    if not options.check:
        write_text(options.out, text)
    elif text != old:
        sys.exit(f"{options.out} differs from what the logs give")


if __name__ == "__main__":
    main()
