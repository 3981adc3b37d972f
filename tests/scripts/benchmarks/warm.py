"""One warm ``predict()`` or ``compare()``: the same question again, and with another number.

Nothing is kept of a whole answer: what repeats are files, jobs and the order of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.planning.compare import compare
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from scripts.benchmarks.row import Row, cpu_s, least_cpu_s

TIMES = 25

QUESTIONS: dict[str, tuple[float | None, dict[str, Any]]] = {
    "resnet50, ssgd": (2.0, {"model": "resnet50", "gpus": 64, "net": "1gbe"}),
    "resnet50, dgc": (2.0, {"model": "resnet50", "gpus": 64, "net": "1gbe", "method": "dgc"}),
    "bert-large, ssgd": (5.0, {"model": "bert-large", "gpus": 64, "net": "10gbe"}),
    "resnet50, 1024 GPUs, one 1.5x slower": (
        50.0,
        {"model": "resnet50", "gpus": 1024, "net": "10gbe", "straggler": ["1:1.5"]},
    ),
    "resnet50, 1024 GPUs, 5 % jitter": (
        None,
        {"model": "resnet50", "gpus": 1024, "net": "10gbe", "jitter": 0.05},
    ),
    "resnet152, spd_kfac": (
        50.0,
        {"model": "resnet152", "gpus": 64, "net": "ib100", "method": "spd_kfac"},
    ),
}
"""By name: the limit [ms] and the scenario."""


def _numbers(fields: dict[str, Any], place: int) -> dict[str, dict[str, Any]]:
    """Return the scenario with one number that no other question has."""
    varied = {
        "GPU's own time": {"single_gpu": f"{300 + place}ms"},
        "network's rate": _rate(place),
    }
    if fields.get("method") != "spd_kfac":
        varied["bucket size"] = {"bucket": f"{20 + place / 10:.1f}MB"}
    return {what: fields | one for what, one in varied.items()}


def _rate(place: int) -> dict[str, Any]:
    return {"net": f"{5 + place / 100:.2f}Gbit/s,20us"}


def rows() -> Iterator[Row]:
    """Yield milliseconds of each question."""
    for name, (limit_ms, fields) in QUESTIONS.items():
        again = make_scenario(fields)
        same_ms = 1e3 * least_cpu_s(partial(predict, again), TIMES)
        cold_ms = 1e3 * min(cpu_s(partial(predict, again, Catalog())) for _ in range(3))
        note = f"{cold_ms:.1f} ms where each file is read anew"
        yield Row(f"predict() {name}: the same again", same_ms, "ms", limit_ms, note=note)
        taken: dict[str, list[float]] = {}
        for place in range(TIMES):
            for what, other in _numbers(fields, place).items():
                asked = make_scenario(other)
                taken.setdefault(what, []).append(1e3 * cpu_s(partial(predict, asked)))
        for what, times_ms in taken.items():
            note = f"median {median(times_ms):.2f}"
            yield Row(f"    another {what} each time", min(times_ms), "ms", limit_ms, note=note)
    for name in ("resnet50", "bert-large"):
        yield from _comparisons({"model": name, "gpus": 64, "net": "10gbe"})


def _comparisons(fields: dict[str, Any]) -> Iterator[Row]:
    """Yield milliseconds of a comparison of all methods: the same again, on other networks."""
    again, session = make_scenario(fields), Session()
    first_ms = 1e3 * cpu_s(lambda: compare(again, catalog=session))
    same_ms = 1e3 * min(cpu_s(lambda: compare(again, catalog=session)) for _ in range(3))
    note = f"{first_ms:.0f} ms the first time"
    yield Row(f"compare() {fields['model']}: the same again", same_ms, "ms", note=note)
    asked = [make_scenario(fields | _rate(place)) for place in range(3)]
    times_ms = [1e3 * cpu_s(partial(compare, one, catalog=session)) for one in asked]
    note = f"median {median(times_ms):.0f}"
    yield Row("    another network's rate each time", min(times_ms), "ms", note=note)
