"""Published language-model training on one node: what perfsim says of it.

mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md (Apache-2.0), tokens a second and
GPU of MPT on 8 GPUs: all rows of 2048 and of 8192 tokens in bf16. Triton's attention (see
``perfsim.compute.attention``) was fitted to whole tables of that page, so this keeps a fit; GPUs,
products, memory, precision and FSDP were fitted to other sources.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import pytest

from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED


class Row(NamedTuple):
    """A row of the page: micro-batches of ``batch`` samples, ``rate`` in tokens/s a GPU."""

    gpu: str
    model: str
    seq: int
    batch: int
    accumulate: int
    recompute: str
    rate: float


ROWS = [
    Row("h100", "mpt-7b", 8192, 8, 2, "full", 6935),
    Row("h100", "mpt-1b", 8192, 3, 4, "none", 29157),
    Row("h100", "mpt-760m", 8192, 6, 2, "none", 41825),
    Row("a100-80gb", "mpt-7b", 8192, 8, 2, "full", 3206),
    Row("a100-80gb", "mpt-1b", 8192, 3, 4, "none", 13814),
    Row("a100-80gb", "mpt-760m", 8192, 6, 2, "none", 20933),
    Row("a100-80gb", "mpt-350m", 8192, 8, 2, "none", 36569),
    Row("a100-80gb", "mpt-125m", 8192, 8, 2, "none", 90392),
    Row("a100-40gb", "mpt-7b", 8192, 3, 4, "full", 2887),
    Row("a100-40gb", "mpt-1b", 8192, 2, 8, "none", 13474),
    Row("a100-40gb", "mpt-760m", 8192, 3, 4, "none", 20106),
    Row("a100-40gb", "mpt-350m", 8192, 4, 4, "none", 34933),
    Row("a100-40gb", "mpt-125m", 8192, 5, 3, "none", 86858),
    Row("h100", "mpt-7b", 2048, 6, 1, "none", 10643),
    Row("h100", "mpt-1b", 2048, 14, 1, "none", 45455),
    Row("h100", "mpt-760m", 2048, 24, 2, "none", 63147),
    Row("a100-80gb", "mpt-7b", 2048, 6, 2, "none", 4641),
    Row("a100-80gb", "mpt-1b", 2048, 14, 4, "none", 20513),
    Row("a100-80gb", "mpt-760m", 2048, 24, 2, "none", 32434),
    Row("a100-80gb", "mpt-350m", 2048, 32, 2, "none", 58782),
    Row("a100-80gb", "mpt-125m", 2048, 40, 2, "none", 142830),
    Row("a100-80gb", "mpt-125m", 2048, 32, 2, "none", 141737),
    Row("a100-40gb", "mpt-7b", 2048, 12, 4, "full", 3679),
    Row("a100-40gb", "mpt-1b", 2048, 8, 8, "none", 19271),
    Row("a100-40gb", "mpt-760m", 2048, 12, 4, "none", 30173),
    Row("a100-40gb", "mpt-350m", 2048, 16, 4, "none", 55995),
    Row("a100-40gb", "mpt-125m", 2048, 26, 3, "none", 136334),
]


def error(row: Row) -> float:
    """Return how much faster it is predicted than published, as a share."""
    fields = row._asdict()
    del fields["rate"]
    node = {"gpus": 8, "gpus_per_node": 8, "net": "100gbe", "method": "fsdp"}
    found = predict(
        make_scenario(fields | node | {"precision": "bf16", "software": "composer-2023"}), SHIPPED
    )
    tokens_per_s = found.throughput.tokens_per_s
    assert tokens_per_s is not None
    return tokens_per_s / 8 / row.rate - 1


@pytest.mark.parametrize(
    ("seq", "worst"),
    # At 2048 tokens two rows of the H100 are said to be 15 and 16 % faster than they were.
    [(8192, 0.10), (2048, 0.18)],
)
def test_one_node_of_mpt_is_predicted_within_6_percent_in_the_median(
    seq: int, worst: float
) -> None:
    errors = [abs(error(row)) for row in ROWS if row.seq == seq]
    assert median(errors) < 0.06
    assert max(errors) < worst


def test_recomputation_is_in_the_predictions_of_rows_that_have_it() -> None:
    """Without it they would be 18 % too fast at least."""
    rows = [row for row in ROWS if row.recompute == "full"]
    assert len(rows) == 4
    for row in rows:
        assert error(row._replace(recompute="none")) > 0.18 > error(row)
