"""Predictions as flat records, one column a number with its unit in the name: CSV and pandas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.errors import PerfsimError
from perfsim.letters import cell

if TYPE_CHECKING:
    import pandas

__all__ = ["as_numbers", "csv_text", "record", "to_frame"]

QUESTION = (
    "model",
    "gpus",
    "gpus_per_node",
    "nodes",
    "net",
    "intra_net",
    "gpu",
    "batch",
    "precision",
    "method",
    "options",
    "fusion",
    "bucket_bytes",
)
"""Fields of the scenario that a record begins with; ``batch`` is in samples a GPU."""

NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def record(prediction: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prediction, as its ``to_dict`` gives it, as one flat record.

    A column's name ends with its unit: ``_s`` seconds, ``_bytes`` bytes, ``_ratio`` a fraction or
    a multiple, ``_per_s``; what has none is a count or a word. Times and bytes are those of one
    iteration of one GPU.
    """
    scenario, sent = prediction["scenario"], prediction["communication"]
    low, high = prediction["iteration_s_interval"]
    question = {field: scenario[field] for field in QUESTION}
    question["options"] = " ".join(f"{name}={value}" for name, value in scenario["options"].items())
    return {
        **question,
        "iteration_s": prediction["iteration_s"],
        "iteration_low_s": low,
        "iteration_high_s": high,
        "samples_per_s": prediction["samples_per_s"],
        "scaling_efficiency_ratio": prediction["scaling_efficiency"],
        "ssgd_iteration_s": prediction["baseline"]["iteration_s"],
        "speedup_over_ssgd_ratio": prediction["baseline"]["speedup"],
        **{f"{part}_s": seconds for part, seconds in prediction["breakdown_s"].items()},
        "sent_per_gpu_bytes": sent["bytes_per_gpu"],
        "calls": sent["calls"],
        "communication_busy_s": sent["busy_s"],
        "communication_hidden_s": sent["hidden_s"],
        **{f"memory_{what}_bytes": size for what, size in prediction["memory_bytes"].items()},
        "bottleneck": prediction["bottleneck"],
    }


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV: a head, then a line each; true and false in words, None as nothing.

    Examples
    --------
    >>> print(csv_text([{"method": "dgc", "iteration_s": 0.25, "lossy": True, "next_s": None}]))
    method,iteration_s,lossy,next_s
    dgc,0.25,true,
    <BLANKLINE>
    """
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in records)
    return text.getvalue()


def to_frame(records: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return records as a pandas table.

    Raises
    ------
    PerfsimError
        If pandas is not installed, or not whole.
    """
    try:
        import pandas
    except ImportError as error:
        why = str(error).splitlines()[0]
        raise PerfsimError(
            f"pandas cannot be imported ({why}); pip install 'perfsim[pandas]' brings it."
        ) from None
    return pandas.DataFrame([dict(row) for row in records])


def as_numbers(values: Sequence[Any]) -> Sequence[Any]:
    """Return a column whose texts are all numbers as whole numbers or floats; others as they are.

    Examples
    --------
    >>> as_numbers(["8", "16"]), as_numbers(["0.001", "1"]), as_numbers(["8", "1gbe"])
    ([8, 16], [0.001, 1.0], ['8', '1gbe'])
    """
    if not all(isinstance(value, str) and NUMBER.fullmatch(value) for value in values):
        return values
    if all(value.isdecimal() for value in values):
        return [int(value) for value in values]
    return [float(value) for value in values]


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else cell(value)
