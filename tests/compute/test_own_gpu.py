"""Profiles of GPUs that no device file describes: predicted there, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import RequestError
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Catalog:
    """Return a session with ResNet-50's profile as that of a network of one's own on a CPU."""
    (tmp_path / "models").mkdir()
    text = (shipped() / "models" / "resnet50.v100.fp32.b32.csv").read_text()
    text = text.replace("# gpu: v100\n", "# gpu: cpu\n").replace(
        "# model: resnet50\n", "# model: ours\n"
    )
    (tmp_path / "models" / "ours.cpu.fp32.b32.csv").write_text(text)
    return Session(tmp_path)


def test_it_is_predicted_where_it_was_measured(session: Catalog) -> None:
    """One alone takes what the profile says; the GPU need not be named."""
    found = predict(make_scenario({"model": "ours", "gpus": 1}), session)
    known = predict(make_scenario({"model": "resnet50", "gpus": 1, "gpu": "v100"}))
    assert found.scenario.gpu == "cpu"
    assert found.iteration_s == pytest.approx(known.iteration_s, rel=1e-6)
    assert any("cpu has no device file" in note for note in found.notes)


def test_other_batches_take_longer_but_no_longer_a_sample(session: Catalog) -> None:
    asked = {"model": "ours", "gpus": 4, "net": "1gbe", "gpu": "cpu"}
    times = [
        predict(make_scenario({**asked, "batch": batch}), session).iteration_s
        for batch in (8, 32, 128)
    ]
    assert times == sorted(times)
    assert times[2] / 128 <= times[1] / 32 <= times[0] / 8


def test_it_is_never_taken_for_another_gpu(session: Catalog) -> None:
    with pytest.raises(RequestError) as raised:
        predict(make_scenario({"model": "ours", "gpus": 4, "gpu": "a100"}), session)
    assert raised.value.field == "gpu"
    assert "measured on cpu" in raised.value.why and "nothing of a100" in raised.value.why
