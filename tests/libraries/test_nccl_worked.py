"""NCCL's tuner against worked values of its published formula, from version 2.6 to 2.30."""

from __future__ import annotations

import pytest

from support.builders import tuner

MIB = 1024 * 1024

# Worked by hand from src/graph/tuning.cc at each tag: latency in us + bytes / (1000 x GB/s).
WORKED = [
    # 2.6.4, 8 nodes x 4 over PCIe, 1.2 GB/s. Ring LL: 3.6 + 62 x 0.9 = 59.4; 1.2/4 x 32/62.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "ring", "ll", 8000),
        59.4 + 8000 / (1000 * 1.2 / 4 * 32 / 62),
    ),
    # Tree LL: 4.4 + 2 (3 x 1.0 + 3 x 5.0) = 40.4; 1.2 x 0.9 / 3 x 0.5 = 0.18; 8 KiB: x 0.7.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "tree", "ll", 8192),
        40.4 + 8192 / (1000 * 0.18 * 0.7),
    ),
    # Tree Simple: 0 + 2 (3 x 28 + 3 x 50) = 468; 1.2 x 0.9 x 0.5 = 0.54; 1 MiB: x 0.5.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "tree", "simple", MIB),
        468 + 1048576 / (1000 * 0.54 * 0.5),
    ),
    # 2.7.8, 4 x 4 NVLink, 20 GB/s. Ring Simple: 8.4 + 24 x 3.4 + 6 x 9.6 = 147.6, plateau x 1.9
    # from 65536 x 16/16 B on; 20 x 16/30.
    (
        tuner("2.7.8", 16, 4, "volta", "intel", "nvlink", 20.0, 2),
        ("all_reduce", "ring", "simple", 1e6),
        147.6 * 1.9 + 1e6 / (1000 * 20 * 16 / 30),
    ),
    # The same below the plateau.
    (
        tuner("2.7.8", 16, 4, "volta", "intel", "nvlink", 20.0, 2),
        ("all_reduce", "ring", "simple", 65535),
        147.6 + 65535 / (1000 * 20 * 16 / 30),
    ),
    # 2.10.3, 8 A100 on a node, 230 GB/s, 12 channels. Tree LL128: 4.4 + 2 x 7 x 1.25 = 21.9;
    # 230 x 0.92 x 7/9 x 0.5 = 82.29 (caps 288 and 240 not met); 1 MiB: x 0.6.
    (
        tuner("2.10.3", 8, 1, "ampere", "amd", "nvlink", 230.0, 12),
        ("all_reduce", "tree", "ll128", MIB),
        21.9 + 1048576 / (1000 * 230 * 0.92 * 7 / 9 * 0.5 * 0.6),
    ),
    # 2.12.7, 2 x 2 PCIe, 10 GB/s. Ring Simple: 6 steps, 4 of them on the net at 28 us:
    # 8.4 + 2 x 5.7 + 4 x 28 = 131.8, x 1.9; 10 x 4/6.
    (
        tuner("2.12.7", 4, 2, "volta", "intel", "pci", 10.0, 2),
        ("all_reduce", "ring", "simple", 1e6),
        131.8 * 1.9 + 1e6 / (1000 * 10 * 4 / 6),
    ),
    # 2.14.3, 4 x 8 with SHARP, 100 GB/s. CollNet chain: 0 + 2 x 7 x 8.0 = 112; 100 x 0.75 x 0.5.
    (
        tuner("2.14.3", 32, 4, "ampere", "amd", "nvlink", 100.0, 4, in_network=True),
        ("all_reduce", "collnet_chain", "simple", 1e6),
        112 + 1e6 / (1000 * 37.5),
    ),
    # 2.17.1, 8 H100, 360 GB/s. NVLS: 40 + 0; 360 x 0.75 = 270.
    (
        tuner("2.17.1", 8, 1, "hopper", "intel", "nvlink", 360.0, 8, nvswitch=True),
        ("all_reduce", "nvls", "simple", 27e6),
        40 + 100,
    ),
    # 2.18.3, 2 x 8 A100, AMD. Ring LL: the CPU posts each step, 2 us: 6.6 + 26 x 2 + 4 x 2.7 =
    # 69.4; 100/4 = 25 is above the 22.5 of AMD on two nodes, so 22.5 x 16/30 = 12.
    (
        tuner("2.18.3", 16, 2, "ampere", "amd", "nvlink", 100.0, 8),
        ("all_reduce", "ring", "ll", 60e3),
        69.4 + 5,
    ),
    # 2.19.3, 4 x 8 H100, 300 GB/s. NVLSTree: 23 + 2 x 2 x 14 = 79; 300/2 x 5/6 = 125.
    (
        tuner("2.19.3", 32, 4, "hopper", "intel", "nvlink", 300.0, 8, nvswitch=True),
        ("all_reduce", "nvls_tree", "simple", 1.25e6),
        79 + 10,
    ),
    # 2.21.5, 2 x 8 H100, 300 GB/s in 8 channels. Tree Simple: 2 (7 x 28 + 28) = 448;
    # 276 (cap 331.2) x 0.5 = 138; 64 MiB: x 0.8.
    (
        tuner("2.21.5", 16, 2, "hopper", "intel", "nvlink", 300.0, 8),
        ("all_reduce", "tree", "simple", 64 * MIB),
        448 + 67108864 / (1000 * 138 * 0.8),
    ),
    # 2.21.5, 8 GPUs on a node. Ring Simple broadcast: 8.4 + one hop 3.4; 100 x 8/8.
    (
        tuner("2.21.5", 8, 1, "ampere", "amd", "nvlink", 100.0, 8),
        ("broadcast", "ring", "simple", 1e6),
        11.8 + 10,
    ),
    # 2.21.5, 4 x 1. Ring LL128 reduce-scatter: 14 + 3 x 4.0 = 26; 10 x 0.7 x 4/3.
    (
        tuner("2.21.5", 4, 4, "volta", "intel", "nvlink", 10.0, 1),
        ("reduce_scatter", "ring", "ll128", 28e3),
        26 + 3,
    ),
    # 2.23.4, 16 x 1. PAT all-gather: 8 + 4 x 14/3.5 + 16 x 2.8 = 68.8; 10 x 0.85.
    (
        tuner("2.23.4", 16, 16, "ampere", "intel", "pci", 10.0, 1),
        ("all_gather", "pat", "simple", 85e3),
        68.8 + 10,
    ),
    # 2.23.4, 4 x 1. Ring LL takes the tree's hop: 6.6 + 6 x 5.0 = 36.6; 10/2 x 4/6.
    (
        tuner("2.23.4", 4, 4, "ampere", "intel", "pci", 10.0, 1),
        ("all_reduce", "ring", "ll", 10e3),
        36.6 + 3,
    ),
    # 2.30.7, 8 H100, 400 GB/s in 16 channels. NVLS: 25; min(400 x 0.85 x 15/16 x 2, 400) x 8/14.
    (
        tuner("2.30.7", 8, 1, "hopper", "intel", "nvlink", 400.0, 16, nvswitch=True),
        ("all_reduce", "nvls", "simple", 4e6),
        25 + 17.5,
    ),
]


@pytest.mark.parametrize(("of", "call", "expected_us"), WORKED)
def test_time_is_the_published_formula(of, call, expected_us):
    assert of.time(*call) == pytest.approx(expected_us * 1e-6, rel=1e-9)
