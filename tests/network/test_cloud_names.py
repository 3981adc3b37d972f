"""A node type is found by what its cloud calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.data.catalog import Catalog
from perfsim.prediction import predict
from perfsim.resolve import as_named
from perfsim.scenario import make_scenario
from support.commands import run
from support.what_ships import SHIPPED

CALLED = {
    "p5.48xlarge": "p5",
    "P4d.24xlarge": "p4d",
    "p6-b200.48xlarge": "p6-b200",
    "a3-megagpu-8g": "a3-mega",
    "a4-highgpu-8g": "a4",
    "Standard_ND96isr_H100_v5": "ndv5-h100",
    "ND96asr_v4": "ndv4",
    "BM.GPU.H100.8": "oci-h100",
}


@pytest.mark.parametrize("called", CALLED)
@pytest.mark.parametrize("field", ["node", "net"])
def test_a_node_type_is_found_by_what_its_cloud_calls_it(field: str, called: str) -> None:
    assert as_named(field, called, SHIPPED) == CALLED[called]


def test_such_a_node_predicts_as_by_its_own_name() -> None:
    asked, own = (
        predict(make_scenario({"model": "llama3.1-8b", "gpus": 16, "node": node}))
        for node in ("p5.48xlarge", "p5")
    )
    assert asked.iteration_s == own.iteration_s


def test_a_machine_that_nobody_rents_out_is_none() -> None:
    for field, name in (("node", "p9.48xlarge"), ("node", "h100"), ("net", "xlarge")):
        assert as_named(field, name, SHIPPED) == name


def test_a_damaged_file_of_the_users_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "aaa.toml").write_text("no = [", encoding="utf-8")
    assert as_named("node", "p5.48xlarge", Catalog(tmp_path)) == "p5"


def test_it_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show node p5.48xlarge", capsys) == run("show node p5", capsys)
