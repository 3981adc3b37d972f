"""The device's name in perfsim's words, and how long a thread waits for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsim.calibrate.measure.device import device_name, process_waited_s, waited_for_core_s
from perfsim.data.catalog import Catalog


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
        ("NVIDIA A100X", "a100x"),  # no such file: a board with a NIC of its own
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 4090 Ti", "rtx-4090-ti"),
        ("cpu", "cpu"),
    ],
)
def test_a_driver_s_word_becomes_a_name(word: str, name: str) -> None:
    assert device_name(word, Catalog()) == name


def test_a_schedule_that_says_nothing_is_none(tmp_path: Path) -> None:
    told = tmp_path / "schedstat"
    told.write_text("5000000000 1500000000 12\n")
    assert waited_for_core_s(told) == 1.5
    assert waited_for_core_s(tmp_path / "absent") is None
    told.write_text("12\n")
    assert waited_for_core_s(told) is None


@pytest.mark.skipif(waited_for_core_s() is None, reason="the system does not tell it")
def test_a_thread_beside_a_busy_one_on_its_core_waits() -> None:
    cores = os.sched_getaffinity(0)
    core = min(cores)
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as beside:
        try:
            assert beside.stdout is not None
            beside.stdout.readline()
            os.sched_setaffinity(0, {core})
            before_s, end = waited_for_core_s(), time.perf_counter() + 0.3
            while time.perf_counter() < end:
                pass
            after_s = waited_for_core_s()
        finally:
            os.sched_setaffinity(0, cores)
            beside.kill()
    assert before_s is not None and after_s is not None
    # Two alike have half of the core each; other processes there would take more.
    assert after_s - before_s > 0.1 * 0.3


def test_the_waits_of_all_threads_are_added(tmp_path: Path) -> None:
    for thread, waited in (("1", "2000000000"), ("2", "500000000")):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(f"7 {waited} 3\n")
    assert process_waited_s(tmp_path) == 2.5
    assert process_waited_s(tmp_path / "none") == 0.0
