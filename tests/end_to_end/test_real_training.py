"""Real training on two emulated hosts, predicted from calibrations on them: the short form."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsim.compute.profile import Gradient
from perfsim.fusion.policies import block_units
from support.emulated.hosts import Hosts

pytest.importorskip("torch", reason="needs PyTorch (pip install 'perfsim[calibrate]')")

from scripts.end_to_end.real_training import BEGIN, END, STORED, table, with_table
from support.emulated.real import CASES, MODELS, RealBench, RealSetting

pytestmark = pytest.mark.torch

WITHIN = 0.20
"""Error allowed, over the measured iteration; `real_training.txt` holds the full comparison's."""


@pytest.mark.root
@pytest.mark.slow
def test_ddp_and_fsdp_of_a_real_cnn_are_predicted_on_two_hosts(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    setting = RealSetting(2, "200mbit", "cnn", ("ddp", "fsdp"))
    # 11.2 MB over 200 Mbit/s take 0.448 s, most of it beside the passes; what the shaper lets
    # through at once makes the rate that calibration finds up to 3 % higher. FSDP gathers 5.6 MB
    # twice and all-reduces all 11 MB, with nothing beside it.
    wire_s = 0.448, 0.896
    # Two retries: what else runs on the machine stretches real messages and computation.
    for attempt in ("one", "two", "three"):
        (tmp_path / attempt).mkdir()
        bench = RealBench(tmp_path / attempt, network_s=2.0, kernel_s=0.2, short=True)
        rows = list(bench.rows(setting, bench.measure(setting, 2)))
        if all(
            row["carried"]["predicted_s"] > 0.95 * least_s and abs(row["carried"]["error"]) < WITHIN
            for row, least_s in zip(rows, wire_s, strict=True)
        ):
            return
    pytest.fail(table(rows))


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.usefixtures("bare_cluster")
def test_pinned_hosts_run_on_one_core_each(tmp_path: Path) -> None:
    asked = ["sh", "-c", "taskset -cp $$; hostname"]
    with Hosts(2, "1gbit", tmp_path, pinned=True) as hosts:
        commands = [hosts.inside(host, asked) for host in range(2)]
        said = [subprocess.check_output(command, text=True) for command in commands]
    assert [text.split()[-1] for text in said] == ["host0", "host1"]
    assert all(text.splitlines()[0].split(":")[1].strip() in ("0", "1") for text in said)


def test_a_setting_says_in_which_ways_its_network_is_known() -> None:
    two = RealSetting(2, "200mbit", "cnn", ("ddp",))
    assert two.ways == ("carried",)  # two hosts are those that train
    far = RealSetting(4, "200mbit", "cnn", ("ddp",), sites=2, between="50mbit", delay="20ms")
    assert far.ways == ("carried", "measured")
    assert far.net("carried") == two.net("carried") != far.net("measured")
    assert far.name == "4 hosts in 2 sites, 50mbit 20ms between, 200mbit, cnn"


def test_every_case_is_asked_by_a_method_that_exists() -> None:
    from perfsim.methods import load_method

    for case in CASES.values():
        option, name, *_ = case.asks
        assert option == "--method"
        assert load_method(name, {}) is not None


@pytest.mark.parametrize("name", MODELS)
def test_units_that_fsdp_gathers_are_those_that_perfsim_reads(name: str) -> None:
    from support.emulated import real_models

    net, _ = getattr(real_models, name)(1, "cpu")
    gradients = [
        Gradient(one, tuple(parameter.shape), float(-at), 0)
        for at, (one, parameter) in enumerate(net.named_parameters())
    ]
    read = [sum(one.elements for one in unit.gradients) for unit in block_units(gradients)]
    wrapped = [
        sum(parameter.numel() for module in unit for parameter in module.parameters())
        for unit in real_models.sharded_units(net)
    ]
    assert wrapped == read
    assert sum(wrapped) == sum(parameter.numel() for parameter in net.parameters())


def test_a_table_is_stored_between_its_marks_and_the_text_stays() -> None:
    text = f"how\n\n{BEGIN}\nold\n{END}\n\nfound\n"
    assert with_table(text, "new") == f"how\n\n{BEGIN}\nnew\n{END}\n\nfound\n"
    with pytest.raises(ValueError, match="no line"):
        with_table("how\n", "new")
    assert with_table(STORED.read_text(), "new") != STORED.read_text()


def test_a_row_compares_means_and_shows_medians() -> None:
    class Bench(RealBench):
        def predict(self, *_: object) -> dict[str, object]:
            return {"iteration_s": 1.1, "iteration_s_interval": [0.9, 1.2]}

    row = Bench.row(
        Bench.__new__(Bench),
        RealSetting(2, "1gbit", "cnn", ("ddp",)),
        CASES["ddp"],
        {"mean_s": 1.0, "seconds": [1.25, 1.3, 1.25, 1.2]},
    )
    assert row["carried"]["error"] == pytest.approx(0.1)
    assert row["carried"]["median_error"] == pytest.approx(1.1 / 1.25 - 1)
    assert row["carried"]["inside"]
    # Standard deviation 0.0408 of 4 blocks.
    assert row["half_width"] == pytest.approx(1.645 * 0.0408 / 2, rel=1e-3)
    assert "1 (100%) inside" in table([row])
