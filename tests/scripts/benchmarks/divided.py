"""Models divided among ranks: a warm ``predict()``, and the search for the best division."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from perfsim.planning.parallelism import search_parallelism
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from scripts.benchmarks.row import Row, cpu_s, least_cpu_s

TIMES = 25
LARGE: dict[str, Any] = {
    **{"model": "llama3-405b", "gpus": 8192, "node": "dgx-h100", "net": "dgx-h100"},
    **{"tp": 8, "pp": 16, "batch": 1, "accumulate": 16, "seq": 8192, "recompute": "full"},
}
METHODS = ("fsdp", "zero", "distributed_optimizer")
SEARCHED = {
    **{"model": "llama3-70b", "gpus": 512, "node": "dgx-h100", "net": "dgx-h100"},
    **{"seq": 8192},
}


def rows() -> Iterator[Row]:
    """Yield milliseconds of predictions, and seconds of a search in which no file was read yet."""
    for method in METHODS:
        asked = make_scenario(LARGE | {"method": method})
        same_ms = 1e3 * least_cpu_s(partial(predict, asked), TIMES)
        yield Row(f"predict() llama3-405b, 8192 GPUs, {method}", same_ms, "ms", 10.0)
    scenario = make_scenario(SEARCHED)
    took_s = min(
        cpu_s(partial(search_parallelism, scenario, Session(), global_batch=512)) for _ in range(2)
    )
    yield Row("search_parallelism() llama3-70b, 512 GPUs", took_s, "s", 5.0)
