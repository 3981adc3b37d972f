"""Profiles from a whole-model time and layer figures: made-up figures, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import build_profiles as command
from build_profiles import ProfileRecipe, read_recipes
from layer_shapes import (
    layer_groups,
    read_module_times,
    read_ready_trace,
    relative_times,
    times_from_work,
    work_rates,
)
from perfsim.compute.profile import Profile, read_profile
from perfsim.errors import DataError

ALEXNET = layer_groups("alexnet")
OPTIMIZER_MS = 11 * 4 * sum(group.elements for group in ALEXNET) / 816e9 * 1e3
"""SGD with momentum by operation, as PyTorch 1.8: 11 passes of 4 bytes at a V100's 816 GB/s."""

RECIPE = ProfileRecipe(
    *("alexnet", "v100", "fp32", 256, "", 100.0, "iteration", None, None, "sgd"),
    *(("modules", "pipedream_alexnet"), None, "", 0.0),
    *("published", "PyTorch", "torch1.8", "2020", "MIT", "a table", ""),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return collected figures: AlexNet's modules, 3 ms forward and 9 ms backward each."""
    (tmp_path / "profiles").mkdir()
    rows = [f"{place},Layer,3,9,{group.elements}" for place, group in enumerate(ALEXNET)]
    text = "\n".join(["node,op,fwd_ms,bwd_ms,params", *rows])
    (tmp_path / "profiles" / "pipedream_alexnet.csv").write_text(text)
    return tmp_path


def trace(data: Path, source: str, model: str, gap_us: int) -> float:
    """Write a trace of gradients that are ready so long after each other; return its span [ms]."""
    lines, ready = ["tensor,elements,gap_us,ready_us"], 0
    for group in reversed(layer_groups(model)):
        for tensor, shape in reversed(group.tensors):
            lines.append(f"{tensor},{math.prod(shape)},{gap_us if ready else 0},{ready}")
            ready += gap_us
    (data / "profiles" / f"{source}.csv").write_text("\n".join(lines))
    return (ready - gap_us) / 1e3


def built(data: Path, *recipes: ProfileRecipe) -> Profile:
    """Return the last of the profiles that the command makes of recipes."""
    texts = command.build_profiles(data, recipes)
    path = data / list(texts)[-1]
    path.write_text(texts[path.name])
    return read_profile(path)


def test_a_published_iteration_is_shared_out_as_the_modules_are(data: Path) -> None:
    profile = built(data, RECIPE)
    # A quarter of what the optimizer leaves is forward, in eight equal layers.
    forward_s = (100.0 - OPTIMIZER_MS) / 4 / 1e3
    assert profile.iteration_s == pytest.approx(0.1)
    assert profile.optimizer_s == pytest.approx(OPTIMIZER_MS / 1e3, abs=1e-7)
    assert [layer.forward_s for layer in profile.layers] == pytest.approx([forward_s / 8] * 8, 1e-4)
    assert [layer.backward_s for layer in profile.layers] == pytest.approx(
        [3 * forward_s / 8] * 8, 1e-4
    )
    assert profile.kinds["iteration_ms"] == "published"


def test_totals_of_the_source_are_kept_and_add_up(data: Path) -> None:
    given = replace(RECIPE, figure_ms=120.0, covers="forward_backward", forward_ms=50.0)
    profile = built(data, replace(given, backward_ms=70.0))
    assert (profile.forward_s, profile.backward_s) == pytest.approx((0.050, 0.070))
    assert profile.iteration_s == pytest.approx(0.120 + OPTIMIZER_MS / 1e3, abs=1e-7)
    assert profile.kinds["iteration_ms"] == "derived"
    assert "iteration_ms is the sum of forward, backward and optimizer" in profile.header["notes"]


def test_an_even_share_is_spread_over_layers_whatever_their_work(data: Path) -> None:
    rows = (data / "profiles" / "pipedream_alexnet.csv").read_text().replace(",3,9,", ",3,6,", 1)
    (data / "profiles" / "pipedream_alexnet.csv").write_text(rows)
    both = replace(RECIPE, figure_ms=120.0, covers="forward_backward", even_share=1.0)
    assert [layer.backward_s for layer in built(data, both).layers] == pytest.approx(
        [built(data, both).backward_s / 8] * 8, rel=1e-4
    )
    half = [layer.backward_s for layer in built(data, replace(both, even_share=0.5)).layers]
    none = [layer.backward_s for layer in built(data, replace(both, even_share=0.0)).layers]
    assert none[0] == pytest.approx(none[1] * 6 / 9, rel=1e-4)
    mean = sum(none) / 8
    assert half == pytest.approx([(mean + one) / 2 for one in none], rel=1e-3)


def test_a_split_is_two_to_one_of_products_or_that_of_another_profile(data: Path) -> None:
    gemm = built(data, replace(RECIPE, split="gemm"))
    assert gemm.backward_s == pytest.approx(2 * gemm.forward_s, rel=1e-5)
    other = replace(RECIPE, batch=8, figure_ms=40.0, split=RECIPE.name)
    like = built(data, RECIPE, other)
    assert like.backward_s == pytest.approx(3 * like.forward_s, rel=1e-5)
    assert f"forward to backward is as in {RECIPE.name}" in like.header["notes"]
    with pytest.raises(DataError, match=rf"needs {RECIPE.name}, which is not built before it"):
        built(data, other)


def test_a_trace_keeps_its_moments_and_a_scaled_one_their_proportions(data: Path) -> None:
    span_ms = trace(data, "espresso_lstm", "lstm", 1000)
    lstm = replace(RECIPE, model="lstm", shape=("trace", "espresso_lstm"), batch=80, split="gemm")
    lstm = replace(lstm, figure_ms=None, forward_shape=("work", "espresso_lstm"))
    own = built(data, lstm)
    moments = sorted(gradient.ready_s for gradient in own.gradients)
    assert (moments[-1] - moments[0]) * 1e3 == pytest.approx(span_ms)
    assert own.backward_s == pytest.approx(2 * own.forward_s, rel=1e-4)
    longer = replace(lstm, figure_ms=300.0, covers="forward_backward")
    scaled = built(data, replace(longer, shape=("scaled-trace", "espresso_lstm")))
    assert scaled.forward_s + scaled.backward_s == pytest.approx(0.3)
    factor = 0.2 / own.backward_s
    assert sorted(gradient.ready_s for gradient in scaled.gradients) == pytest.approx(
        [moment * factor for moment in moments], abs=2e-7
    )
    kept = built(data, replace(longer, forward_ms=5.0))
    assert kept.forward_s == pytest.approx(0.005) and kept.backward_s == own.backward_s
    with pytest.raises(DataError, match="has no total to scale its trace to"):
        built(data, replace(lstm, shape=("scaled-trace", "espresso_lstm")))


def test_a_trace_out_of_order_or_cut_short_is_refused(data: Path) -> None:
    trace(data, "espresso_lstm", "lstm", 1000)
    path = data / "profiles" / "espresso_lstm.csv"
    head, first, *rest = path.read_text().splitlines()
    recipe = replace(RECIPE, model="lstm", shape=("trace", "espresso_lstm"))
    path.write_text("\n".join([head, *rest, first]))
    with pytest.raises(DataError, match=f"'{first.split(',')[0]}' comes out of the backward order"):
        built(data, recipe)
    path.write_text("\n".join([head, first, *rest[:-1]]))
    with pytest.raises(DataError, match=f"lacks '{rest[-1].split(',')[0]}'"):
        built(data, recipe)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": "v900"}, "no memory bandwidth is known for 'v900' (alexnet.v900.fp32.b256)"),
        ({"figure_ms": None}, "alexnet.v100.fp32.b256 has no total to scale its layers to"),
        ({"shape": ("guess", "x")}, "'guess' is no kind of layer figures; allowed: modules, work"),
        ({"shape": ("work", "nobody")}, "no network is known for the layer figures 'nobody'"),
    ],
)
def test_a_recipe_that_needs_what_is_not_there_is_refused(
    data: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(DataError) as caught:
        built(data, replace(RECIPE, **change))  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_too_few_modules_are_refused_and_so_is_a_class_without_a_rate(data: Path) -> None:
    path = data / "profiles" / "pipedream_alexnet.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(DataError, match="has 7 layers, the network 8"):
        relative_times(data, ("modules", "pipedream_alexnet"), ALEXNET)
    with pytest.raises(DataError, match="no rate for conv layers such as"):
        times_from_work(ALEXNET, {"linear": 1.0})


@pytest.mark.parametrize(("column", "word"), [("covers", "everything"), ("optimizer", "lamb")])
def test_an_unknown_word_of_the_table_is_refused(tmp_path: Path, column: str, word: str) -> None:
    head, row = command.RECIPES.read_text().splitlines()[:2]
    path = tmp_path / "recipes.csv"
    known = {"covers": ",iteration,", "optimizer": ",sgd,"}[column]
    path.write_text("\n".join([head, row.replace(known, f",{word},", 1)]))
    with pytest.raises(DataError, match=rf"{column}.*: '{word}' is not known"):
        read_recipes(path)


def test_the_command_writes_profiles_and_positions_beside(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "read_recipes", lambda: [RECIPE])
    out = data / "new" / "folder"
    assert command.main(["--data", str(data), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {
        f"{RECIPE.name}.csv",
        "alexnet.positions.csv",
    }
    assert read_profile(out / f"{RECIPE.name}.csv").iteration_s == pytest.approx(0.1)
    assert capsys.readouterr().err == f"1 profiles in {out}\n"


def test_a_network_calibrated_on_itself_gives_back_the_total_of_each_class() -> None:
    model = layer_groups("resnet18")
    times = [1.0 + place for place in range(len(model))]
    rates = work_rates(model, times)
    inner = list(zip(model, times_from_work(model, rates), times, strict=True))[1:-1]
    for kind in ("conv", "batchnorm"):
        pairs = [(got, own) for group, got, own in inner if group.kind == kind]
        assert sum(got for got, _ in pairs) == pytest.approx(sum(own for _, own in pairs))


def test_damaged_figures_are_refused(tmp_path: Path) -> None:
    model = layer_groups("alexnet")
    path = tmp_path / "trace.csv"
    path.write_text("tensor,elements,gap_us,ready_us\nfc.bias,1000,0,0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'fc.bias' is not one of the network's"):
        read_ready_trace(path, model)
    path.write_text("tensor,elements,gap_us,ready_us\nclassifier.6.bias,9,0,0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'classifier.6.bias' has 9 elements"):
        read_ready_trace(path, model)
    path.write_text("node,op,fwd_ms,bwd_ms,params\n2,Conv2d,1,1,17\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"module 2 is not the network's next layer"):
        read_module_times(path, model)
    path.write_text("node,op\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'fwd_ms': missing column"):
        read_module_times(path, model)


def test_the_first_modules_forward_time_is_held_to_its_backward_time(tmp_path: Path) -> None:
    sizes = [group.elements for group in layer_groups("alexnet")]
    rows = ["node,op,fwd_ms,bwd_ms,params", "1,Input,99,0,0"]
    for place, size in enumerate(sizes):
        rows += [f"{place},Layer,9,4,{size}", f"{place}r,ReLU,1,2,0"]
    path = tmp_path / "modules.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    forward, backward = read_module_times(path, layer_groups("alexnet"))
    assert forward == [5.0] + [10.0] * 7
    assert backward == [6.0] * 8


def test_a_missing_data_folder_is_one_sentence_and_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().err
    assert "espresso_resnet50.csv: cannot be read" in said and len(said.splitlines()) == 1
