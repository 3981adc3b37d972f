"""Measuring a model's step: layers by marks, scaled to the whole step, written as a profile."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.errors import RequestError

torch = pytest.importorskip("torch", reason="needs PyTorch (pip install 'perfsim[calibrate]')")

from perfsim.calibrate.measure.profile import (  # noqa: E402
    MeasuredProfile,
    calibrate_compute,
    measured_layer_times,
    measured_profile_text,
)
from perfsim.calibrate.measure.subject import Subject, find_subject  # noqa: E402
from perfsim.calibrate.measure.training_step import (  # noqa: E402
    JobRanks,
    MeasuredModel,
    OneProcess,
    ParameterOwner,
    StepMoments,
    find_ranks,
    measure_compute,
    parameter_owners,
)
from perfsim.calibrate.measure.watch import BrokenOffError  # noqa: E402
from perfsim.compute.profile import read_positions, read_profile  # noqa: E402

pytestmark = pytest.mark.torch

NET = """
import time

import torch


class Nap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, torch.ones(3, 2), None


class Layer(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, 2))
        self.seconds = seconds

    def forward(self, x):
        return Nap.apply(x, self.weight, self.seconds)


def net(batch, device):
    layers = torch.nn.Sequential(Layer(0.004), torch.nn.ReLU(), Layer(0.012), Layer(0.004))
    x = torch.ones(batch, 2, requires_grad=True)
    return layers, lambda: layers(x).sum()


def nothing(batch, device):
    return 3


def raises(batch, device):
    layer = torch.nn.Linear(8, 8)
    return layer, lambda: {}["labels"]


def no_loss(batch, device):
    return torch.nn.Linear(8, 8), None


def vector(batch, device):
    layer = torch.nn.Linear(8, 8)
    return layer, lambda: layer(torch.ones(batch, 8))


def no_gradient(batch, device):
    return torch.nn.Linear(8, 8), lambda: torch.tensor(1.0)


def no_parameters(batch, device):
    return torch.nn.ReLU(), lambda: torch.tensor(1.0)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that holds a module ``naps`` and is the working folder."""
    (tmp_path / "naps.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _made_up(moments: StepMoments, whole_s: float) -> MeasuredModel:
    # Three layers; the middle one is never called, so that its parent's time holds its gradient.
    first, part, last = (
        ParameterOwner(n, object(), ((f"{n}.w", _shape()),)) for n in ("a", "a.b", "c")
    )
    return MeasuredModel(
        Subject("x", None, lambda: None, 4),
        (first, part, last),
        moments,
        (whole_s,) * 5,
        {},
        None,
        (),
    )


def _shape() -> Any:
    return SimpleNamespace(shape=(2, 3))


def test_layers_are_scaled_so_that_all_adds_up_to_the_whole_step() -> None:
    # a begins at 1, c at 6, forward ends at 10; c ready at 4, a.b at 9, a at 12 of 14; update 6.
    moments = StepMoments(
        {"a": 1.0, "c": 6.0}, {"c.w": 4.0, "a.b.w": 9.0, "a.w": 12.0}, 10.0, 14.0, 6.0
    )
    a, c = measured_layer_times(_made_up(moments, 15.0))
    assert (a.forward_s, c.forward_s) == (3.0, 2.0)  # 6 and 4, halved
    assert (c.backward_s, a.backward_s) == (2.0, 5.0)  # 4; then 10, of which 2 after the last
    assert [ready for _, _, ready in a.gradients] == [6.0, 4.5]
    assert [name for name, _, _ in a.gradients] == ["a.w", "a.b.w"]


@pytest.mark.parametrize(
    ("waited", "ranks", "told"),
    [
        (None, 1, None),
        (0.1, 1, None),
        (0.48, 1, "for 48% of the time the process had no core: other work shares its cores."),
        (0.48, 4, "had no core: the ranks beside it or other work shares its cores."),
    ],
)
def test_a_process_without_a_core_is_told(
    waited: float | None, ranks: int, told: str | None, tmp_path: Path
) -> None:
    moments = StepMoments(
        {"a": 1.0, "c": 6.0}, {"c.w": 4.0, "a.b.w": 9.0, "a.w": 12.0}, 10.0, 14.0, 6.0
    )
    measured = replace(_made_up(moments, 15.0), waited=waited, ranks=ranks)
    made = MeasuredProfile(tmp_path / "p.csv", tmp_path / "p.positions.csv", measured)
    assert len(made.warnings()) == (told is not None)
    assert told is None or told in made.warnings()[0]
    about = {name: "x" for name in ("model", "gpu", "source", "licence")}
    about |= {"precision": "fp32", "date": "2026-01-01", "optimizer": "sgd"}
    text = measured_profile_text(measured, {**about, "framework": "PyTorch 2.11.0"})
    assert ("had no core" in text) == (told is not None)
    assert made.to_dict()["waited_for_core"] == waited


def test_a_sleeping_model_shows_the_times_that_it_sleeps(here: Path) -> None:
    made = calibrate_compute("naps:net", 2, repeats=8, device="cpu", folder=here / "profiles")
    profile = read_profile(made.profile)
    assert [layer.name for layer in profile.layers] == ["0", "2", "3"]
    # A busy machine sleeps longer, never shorter: so much longer that ratios tell nothing.
    first, middle, last = profile.layers
    for layer, seconds in zip(profile.layers, (0.004, 0.012, 0.004), strict=True):
        assert layer.forward_s > 0.7 * seconds and layer.backward_s > 1.4 * seconds
    if profile.forward_s + profile.backward_s < 1.3 * (0.020 + 0.040):
        # The middle layer sleeps three times the others.
        assert middle.forward_s > 1.5 * max(first.forward_s, last.forward_s)
        assert middle.backward_s > 1.5 * max(first.backward_s, last.backward_s)
    ready = [gradient.name for gradient in profile.in_ready_order()]
    assert ready == ["3.weight", "2.weight", "0.weight"]
    whole = profile.forward_s + profile.backward_s + profile.optimizer_s
    assert whole == pytest.approx(profile.iteration_s, rel=1e-4)
    assert profile.batch == 2 and profile.gpu == "cpu" and profile.precision == "fp32"
    assert set(profile.kinds.values()) == {"measured"}


def test_positions_are_those_of_the_layers_inputs(here: Path) -> None:
    def make() -> Subject:
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, stride=2, padding=1),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 4 * 8, 5),
        )
        x = torch.randn(2, 3, 8, 16)
        return Subject("m", model, lambda: model(x).sum(), 2)

    found = measure_compute(make, "fp32", "sgd", 3, "cpu")
    # 8 x 16 at stride 2 is 4 x 8 places; one vector a sample for the dense layer.
    assert found.positions == {"0": 32, "2": 1}
    assert found.unused == ()


def test_a_dense_layer_of_transformers_is_one() -> None:
    class Conv1D(torch.nn.Module):
        """As transformers writes it: its weight is the other way round."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(6, 5))

        def forward(self, x: Any) -> Any:
            return x @ self.weight

    def make() -> Subject:
        model = torch.nn.Sequential(Conv1D())
        x = torch.randn(2, 7, 6)
        return Subject("m", model, lambda: model(x).sum(), 2)

    found = measure_compute(make, "fp32", "sgd", 3, "cpu")
    (layer,) = measured_layer_times(found)
    assert (layer.kind, found.positions) == ("linear", {"0": 7})


@pytest.mark.parametrize(("optimizer", "stated"), [("sgd", "sgd"), ("adamw", "adam")])
def test_a_profile_says_its_optimizer_and_its_software(
    optimizer: str, stated: str, here: Path
) -> None:
    made = calibrate_compute(
        "naps:net", 2, repeats=3, device="cpu", optimizer=optimizer, folder=here / "profiles"
    )
    header = read_profile(made.profile).header
    assert (header["optimizer"], header["software"]) == (stated, "torch2")


def test_ranks_that_train_side_by_side_take_as_long_as_the_slowest() -> None:
    class Two:
        rank, local_rank, count = 0, 0, 2
        begun = 0

        def begin(self) -> None:
            self.begun += 1

        def slowest(self, seconds: list[float]) -> list[float]:
            return [one + 10.0 for one in seconds]  # the other rank's

        def close(self) -> None:
            pass

    def make() -> Subject:
        model = torch.nn.Linear(8, 8)
        return Subject("m", model, lambda: model(torch.ones(2, 8)).sum(), 2)

    ranks = Two()
    found = measure_compute(make, "fp32", "sgd", 4, "cpu", ranks)
    assert 10.0 < found.iteration_s < 10.5 and found.ranks == 2
    assert ranks.begun >= 4


def test_a_rank_that_has_left_the_job_is_one_sentence_on_the_others() -> None:
    class Left:
        rank = 0

        def barrier(self) -> None:
            raise RuntimeError("[pair.cc:553] Connection closed by peer [10.0.0.2]:27363. GLHF!")

        def gather(self, word: Any) -> list[Any]:
            raise RuntimeError("timed out\nand more")

    ranks = JobRanks(Left(), 0, 2)
    said = r"^calibrate compute: the connection to 10\.0\.0\.2 broke, .* nothing was written\.$"
    with pytest.raises(BrokenOffError, match=said):
        ranks.begin()
    with pytest.raises(BrokenOffError, match=r"the library broke off \(timed out\); nothing"):
        ranks.slowest([1.0])


def test_who_measures_beside_this_process() -> None:
    assert isinstance(find_ranks({}), OneProcess)
    assert isinstance(find_ranks({"RANK": "0", "WORLD_SIZE": "1"}), OneProcess)
    with pytest.raises(RequestError, match="RANK"):
        find_ranks({"RANK": "5", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"})


def test_a_shared_parameter_counts_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert [len(owner.parameters) for owner in parameter_owners(model)] == [2, 1]


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_precision_and_optimizer_of_a_cpu_runs(precision: str, optimizer: str) -> None:
    def make() -> Subject:
        model = torch.nn.Linear(8, 8)
        return Subject("m", model, lambda: model(torch.ones(2, 8)).sum(), 2)

    begun = time.perf_counter()
    found = measure_compute(make, precision, optimizer, 3, "cpu")
    assert 0 < found.iteration_s < time.perf_counter() - begun


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "resnet50"}, "'resnet50' is no model to measure"),
        ({"model": "naps:nett"}, "did you mean 'net'"),
        ({"model": "nowhere_at_all:net"}, "cannot be imported"),
        ({"model": "naps:nothing"}, "must take batch and device"),
        (
            {"model": "naps:raises"},
            "model: naps:raises: its training step failed: KeyError: 'labels'",
        ),
        ({"model": "naps:no_loss"}, "its training step failed: TypeError: 'NoneType'"),
        ({"model": "naps:vector"}, "its training step failed: RuntimeError: grad can be"),
        ({"model": "naps:no_gradient"}, "its training step failed: .* does not require grad"),
        ({"model": "naps:no_parameters"}, "failed: ValueError: optimizer got an empty parameter"),
        ({"precision": "tf32"}, "tf32 needs a GPU"),
        ({"precision": "fp31"}, "did you mean 'fp32'"),
        ({"optimizer": "sgdd"}, "did you mean 'sgd'"),
        ({"batch": 0}, "1 or more"),
        ({"device": "tpu"}, "device: no 'tpu'"),
        ({"name": "a/b"}, "is no name"),
    ],
)
def test_a_wrong_request_is_one_sentence(here: Path, given: dict[str, Any], told: str) -> None:
    asked: dict[str, Any] = {
        "model": "naps:net",
        "batch": 1,
        "device": "cpu",
        "repeats": 3,
        **given,
    }
    model, batch = asked.pop("model"), asked.pop("batch")
    with pytest.raises(RequestError, match=told):
        calibrate_compute(model, batch, folder=here / "profiles", **asked)
    assert not (here / "profiles").exists()


def test_a_profile_that_is_there_is_kept(here: Path) -> None:
    calibrate_compute("naps:net", 1, repeats=3, device="cpu", folder=here)
    with pytest.raises(RequestError, match="is there already"):
        calibrate_compute("naps:net", 1, repeats=3, device="cpu", folder=here)


def test_find_subject_names_a_library_that_is_not_installed() -> None:
    if __import__("importlib.util").util.find_spec("timm"):
        pytest.skip("timm is installed here")
    with pytest.raises(RequestError, match="timm is not installed"):
        find_subject("timm:vit", 1, None, "cpu")


def test_positions_file_reads_back(here: Path) -> None:
    made = calibrate_compute("naps:net", 1, repeats=3, device="cpu", folder=here)
    assert read_positions(made.positions, ["0", "2", "3"]) == {}
