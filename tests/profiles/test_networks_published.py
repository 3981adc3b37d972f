"""Shipped networks beside published measurements: those they were fitted on, and others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perfsim.network.cluster import Cluster
from support.what_ships import NETWORKS

ROUNDING = 0.005
"""Rates and latencies in the files have three to four digits."""


@dataclass(frozen=True)
class Published:
    """All-reduce times of a public log: nodes, GPUs and NICs a node; microseconds by bytes."""

    net: str
    intra: str | None
    shape: tuple[int, int, int]
    source: str
    time_us: dict[int, float]


PUBLISHED = (
    Published(
        "10gbe",
        "pcie3",
        (8, 4, 1),
        "dexhunter/allreduce-experiments@b49158f03faf 10g/10g-stepexp2-2.txt",
        {1024: 276.1, 65536: 1187, 1048576: 2281.1, 16777216: 27692, 134217728: 221878},
    ),
    Published(
        "aws-tcp50",
        None,
        (2, 1, 1),
        "aws-samples/aws-do-eks@f721602f7389 karpenter/README.md",
        {1024: 109, 65536: 262.7, 1048576: 806.7, 16777216: 9082.5, 134217728: 67134},
    ),
    Published(
        "aws-tcp100",
        None,
        (2, 1, 1),
        "zarzen/nccl-tests@150149d278a8 2p3dn.2GPUs.log",
        {8192: 163.3, 65536: 231.3, 1048576: 592, 16777216: 3850.1, 134217728: 30070},
    ),
    Published(
        "ib100",
        "pcie3",
        (8, 4, 1),
        "dexhunter/allreduce-experiments@b49158f03faf 100g/ring-100g-stepexp2.txt",
        {4194304: 1940, 16777216: 6403.1, 67108864: 24011, 134217728: 48001, 536870912: 191943},
    ),
    Published(
        "ib200",
        "nvlink-a100",
        (2, 8, 8),
        "argonne-lcf/alcf-nccl-tests@385be33604cc n2.g8/2024-10-15-11-28-16 .6",
        {1024: 38.86, 65536: 48.43, 1048576: 92.27, 16777216: 304.6, 134217728: 1430.3},
    ),
    Published(
        "efa100",
        "nvlink-v100",
        (2, 8, 1),
        "AWS EC2 user guide, page on EFA and NCCL",
        {1024: 151, 65536: 167.7, 1048576: 709.3, 16777216: 4631.7, 134217728: 33403},
    ),
    Published(
        "efa400",
        "nvlink-a100",
        (2, 8, 4),
        "aws-samples/aws-efa-eks@9d6557e1689b README.md",
        {1024: 195.4, 65536: 285.7, 1048576: 485.3, 16777216: 1875.1, 134217728: 8731.1},
    ),
    Published(
        "slingshot",
        None,
        (32, 4, 4),
        "boeschf/nccl-benchmark-on-alps-2025@897cff446b5e job-n-00128-N-0032.txt",
        {1024: 86.71, 65536: 328.2, 1048576: 395.4, 16777216: 1549, 134217728: 4864.7},
    ),
    Published(
        "slingshot",
        None,
        (1, 4, 4),
        "boeschf/nccl-benchmark-on-alps-2025@897cff446b5e job-n-00004-N-0001.txt",
        {1024: 9.42, 65536: 11.01, 1048576: 18.59, 16777216: 101.5, 134217728: 635.5},
    ),
    Published(
        "pcie3",
        "pcie3",
        (1, 4, 1),
        "rcgsheffield/sheffield_hpc@f60c6e605e2b bessemer cuda.rst, NCCL 2.8.3",
        {1024: 13.77, 65536: 30.05, 1048576: 156.5, 16777216: 2671.5, 134217728: 21410},
    ),
    Published(
        "pcie4",
        "pcie4",
        (1, 8, 1),
        "Panlichen/nccl-tests@2c51b1bec6fd 4090_8card_para, median of 6",
        {1024: 60.775, 65536: 86.42, 1048576: 222.6, 16777216: 1893.25, 134217728: 14757},
    ),
    Published(
        "pcie5",
        "pcie5",
        (1, 8, 1),
        "voipmonitor/rtx6kpro@29f3863a371d root topology comparison, one root",
        {4096: 17.34, 65536: 25.21, 1048576: 79.98, 16777216: 658.19, 268435456: 10191.2},
    ),
    Published(
        "nvlink-v100",
        "nvlink-v100",
        (1, 12, 1),
        "wohlbier/nccl-tests@4c4c1ac4c3dd README.md",
        {1024: 60.93, 65536: 65.05, 1048576: 89.15, 16777216: 482.8, 134217728: 2047.7},
    ),
    Published(
        "nvlink-a100",
        "nvlink-a100",
        (1, 8, 1),
        "microsoft/superbenchmark@700d6501f110 tests/data/nccl_allreduce.log",
        {1024: 36.07, 65536: 37.82, 1048576: 74.78, 16777216: 226, 134217728: 1162.2},
    ),
    Published(
        "nvlink-h100",
        "nvlink-h100",
        (1, 4, 1),
        "waynehacking8/nccl-collectives-bench@38c093eda275 all_reduce.txt",
        {1024: 23.28, 65536: 25.49, 1048576: 26.76, 16777216: 101.86, 134217728: 617.74},
    ),
    Published(
        "1gbe",
        None,
        (2, 1, 1),
        "HKBU-HPML/dl-scheduling@d5398bd271ea alpha-beta.csv, one job",
        {20971520: 212220, 52428800: 529423, 104857600: 1060580},
    ),
)


def cluster(row: Published) -> Cluster:
    net = NETWORKS[row.net]
    intra = NETWORKS[row.intra].links["intra"] if row.intra else net.links.get("intra")
    nodes, inside, nics = row.shape
    return Cluster(nodes * inside, (inside,) * nodes, net.links.get("inter"), intra, nics)


@pytest.mark.parametrize(
    "row", PUBLISHED, ids=lambda row: f"{row.net}-{row.shape[0]}x{row.shape[1]}"
)
def test_points_of_the_fit_come_back(row: Published) -> None:
    """By published value: the residual is a 90th percentile, so one of five points may miss it."""
    there = cluster(row)
    missed = {}
    for size_bytes, time_us in row.time_us.items():
        cost = there.cost("all_reduce", size_bytes)
        assert cost.spread is not None
        off = cost.seconds * 1e6 / time_us - 1
        if abs(off) > cost.spread + ROUNDING:
            missed[size_bytes] = f"{off:+.1%}, residual {cost.spread:.1%}"
    assert len(missed) <= 1, missed


@pytest.mark.parametrize(
    ("size_bytes", "time_us"),
    [
        (4, 250.7), (1024, 276.1), (4096, 493.2), (16384, 924.2), (65536, 1187.0),
        (131072, 1641.6), (262144, 1793.9), (524288, 2118.0), (1048576, 2281.1),
        (2097152, 3593.7), (16777216, 27692.0), (134217728, 221878.0), (536870912, 886303.0),
    ],
)  # fmt: skip
def test_10gbe_within_ten_per_cent_where_one_latency_would_miss(
    size_bytes: int, time_us: float
) -> None:
    """By published value, dexhunter/allreduce-experiments@b49158f03faf: 3 to 5 times the line."""
    cost = cluster(PUBLISHED[0]).cost("all_reduce", size_bytes)
    assert cost.seconds * 1e6 == pytest.approx(time_us, rel=0.1)


def test_1gbe_meets_a_run_it_was_not_fitted_on() -> None:
    """By published value: 8 MPI processes on 2 hosts, dexhunter/allreduce-experiments 8cpu/."""
    net, pcie = NETWORKS["1gbe"], NETWORKS["pcie3"]
    there = Cluster(8, (4, 4), net.links["inter"], pcie.links["intra"])
    for size_bytes, time_us in ((4194304, 78375.9), (39062500, 726220.0)):
        seconds = there.cost("all_reduce", size_bytes, "ring").seconds
        assert seconds * 1e6 == pytest.approx(time_us, rel=0.1)


@pytest.mark.parametrize(
    ("size_bytes", "time_us", "most"),
    [
        (4, 58.42, 0.7), (1024, 99.975, 0.7), (16384, 471.35, 0.3), (65536, 1260.57, 0.3),
        (262144, 4296.11, 0.3), (1048576, 19978.9, 0.1), (16777216, 311800, 0.1),
    ],
)  # fmt: skip
def test_1gbe_latency_is_that_of_small_messages(
    size_bytes: int, time_us: float, most: float
) -> None:
    """By published value, the same run, in no fit: 1.18 ms a hop was 35 times too slow here."""
    there = Cluster(8, (4, 4), NETWORKS["1gbe"].links["inter"], NETWORKS["pcie3"].links["intra"])
    assert there.cost("all_reduce", size_bytes).seconds * 1e6 == pytest.approx(time_us, rel=most)


@pytest.mark.parametrize(
    ("name", "gpus", "resnet50", "bert_base", "bert_large"),
    [
        ("10gbe", 4, 925.02, 555.52, 53.04),
        ("10gbe", 8, 1282.28, 518.94, 28.96),
        ("10gbe", 32, 4920.82, 1926.64, 105.1),
        ("ib100", 16, 3602.9, 2112.96, 191.64),
        ("ib100", 32, 7126.52, 4184.38, 375.22),
        ("100gbe-ip", 8, 1601.36, 804.62, 55.8),
        ("100gbe-ip", 16, 3087.16, 1504.62, 103.34),
    ],
)
def test_hkbu_one_buffer_rows_come_back(
    name: str, gpus: int, resnet50: float, bert_base: float, bert_large: float
) -> None:
    """By published value, arXiv 2005.13247: compute and then one all-reduce.

    BERT-Large less BERT-Base is what the rate was fitted on. ResNet-50 took no part: beside its
    single-GPU rate the many-GPU runs are 3 to 8 ms faster, of 253.
    """
    net = NETWORKS[f"hkbu-v100-{name}"]
    there = Cluster(gpus, (4,) * (gpus // 4), net.links["inter"], net.links["intra"])
    large_s, base_s = (
        batch * gpus / rate - batch / alone
        for batch, rate, alone in ((8, bert_large, 49.0), (64, bert_base, 212.8))
    )
    predicted_s = (there.cost("all_reduce", n).seconds for n in (1_344_904_432, 440_425_712))
    assert next(predicted_s) - next(predicted_s) == pytest.approx(large_s - base_s, rel=0.01)
    iteration_s = 64 / 253.1 + there.cost("all_reduce", 102_228_128).seconds
    assert 64 * gpus / iteration_s == pytest.approx(resnet50, rel=0.03)
