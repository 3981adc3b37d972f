"""Positions of layers, shipped or a user's own, and the factors that come of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from build_profiles import build_positions, positions_of, positions_text, read_recipes
from perfsim.compute.profile import POSITIONS_SUFFIX, Gradient, Layer, Profile, read_positions
from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import DataError
from perfsim.methods.building.kfac_factors import factor_sides, kfac_layers, triangle
from perfsim.models import build_model
from perfsim.resolve import find_profile
from support.what_ships import SHIPPED


def resnet50() -> Profile:
    return find_profile("resnet50", "v100", 32, "fp32", SHIPPED)


# Positions


def test_shipped_positions_are_what_the_definitions_give() -> None:
    texts = build_positions(anchor.model for anchor in read_recipes())
    folder = SHIPPED.files("models")["resnet50.v100.fp32.b32"].parent
    assert {path.name for path in folder.glob(f"*{POSITIONS_SUFFIX}")} == set(texts)
    for name, text in texts.items():
        assert (folder / name).read_text() == text, name


def test_positions_are_output_points_one_or_tokens() -> None:
    found = resnet50().positions
    # 224 / 2 = 112 after the first convolution, 56 in the first stage, 7 in the last.
    points = (112**2, 56**2, 7**2, 1)
    names = ("conv1", "layer1.0.conv1", "layer4.2.conv3", "fc")
    assert tuple(found[name] for name in names) == points
    bert = find_profile("bert-base", "v100", 64, "fp32", SHIPPED)
    assert bert.sequence == bert.positions["bert.encoder.layer.0.attention.self.key"]


def test_positions_come_from_the_work_of_a_layer() -> None:
    for layer in build_model("vgg16"):
        if layer.kind in ("conv", "linear"):
            weight = layer.elements - layer.tensors[0][1][0]
            assert positions_of(layer) * 2 * weight == layer.flops


def test_networks_of_other_modules_have_no_positions() -> None:
    assert positions_text("gpt2") == positions_text("lstm") == ""
    assert not find_profile("gpt2", "v100", 4, "fp32", SHIPPED).positions


def test_positions_are_no_profiles() -> None:
    assert not [name for name in SHIPPED.files("models") if "positions" in name]


def test_a_users_own_positions_come_first(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "resnet50.positions.csv"
    own.write_text((shipped() / "models" / own.name).read_text().replace("fc,1", "fc,3"))
    found = find_profile("resnet50", "v100", 32, "fp32", Catalog(tmp_path))
    assert found.positions == resnet50().positions | {"fc": 3}


def test_positions_of_a_part_of_the_layers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "resnet50.positions.csv"
    own.write_text(f"{HEAD}# model: resnet50\nlayer,positions\nfc,3\n")
    with pytest.raises(DataError, match=r"lacks conv1, .* and 50 more: every convolution"):
        find_profile("resnet50", "v100", 32, "fp32", Catalog(tmp_path))


HEAD = "# schema: perfsim/positions/1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layer,positions\na,1\n", "schema is missing"),
        ("# schema: perfsim/positions/2\nlayer,positions\na,1\n", "this perfsim reads"),
        (f"{HEAD}# model: mine\nlayer\na\n", "positions"),
        (f"{HEAD}# model: yours\nlayer,positions\na,1\n", "the file's name says 'mine'"),
        (f"{HEAD}# model: mine\nlayer,positions\nb,1\n", "'b' is no layer of the model"),
        (f"{HEAD}# model: mine\nlayer,positions\na,1\na,1\n", "'a' stands twice"),
        (f"{HEAD}# model: mine\nlayer,positions\na,0\n", "it must be 1 to 1e9"),
        (f"{HEAD}# model: mine\nlayer,positions\na,1.5\n", "whole number"),
        (f"{HEAD}# model: mine\nlayer,positions\na,2e9\n", "it must be 1 to 1e9"),
    ],
)
def test_damaged_positions_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.positions.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_positions(path, ["a"])


# Factors


def test_resnet50_has_the_factors_of_the_paper() -> None:
    layers = kfac_layers(resnet50())
    # Shi et al. 2021: 62.3 million elements of A and 14.6 million of G are sent.
    assert sum(triangle(layer.inputs) for layer in layers) == pytest.approx(62.3e6, rel=1e-3)
    assert sum(triangle(layer.outputs) for layer in layers) == pytest.approx(14.6e6, rel=5e-3)
    assert [layer.conv for layer in layers] == [True] * 53 + [False]


def test_a_layers_hooks_stand_where_its_passes_begin_and_end() -> None:
    profile = resnet50()
    layers = kfac_layers(profile)
    assert layers[0].begins_s == 0 and layers[0].ready_s == profile.backward_s
    before = sum(layer.forward_s for layer in profile.layers[:-1])
    assert layers[-1].begins_s == pytest.approx(before)
    assert layers[-1].ready_s < layers[-2].ready_s


def test_a_bias_is_one_column_more_and_tokens_are_rows_or_their_mean() -> None:
    made = Profile(
        model="x",
        gpu="v100",
        precision="fp32",
        batch=4,
        iteration_s=1.0,
        optimizer_s=0.0,
        layers=(Layer("table", "embedding", 0.1, 0.1), Layer("fc", "linear", 0.1, 0.1)),
        gradients=(
            Gradient("embed.weight", (100, 6), 0.2, 0),
            Gradient("fc.weight", (5, 6), 0.1, 1),
            Gradient("fc.bias", (5,), 0.1, 1),
        ),
        kinds={},
        header={},
        positions={"fc": 7},
    )
    [layer] = kfac_layers(made)
    assert (layer.inputs, layer.outputs, layer.rows, layer.bias) == (7, 5, 28, True)
    assert kfac_layers(made, mean_over_tokens=True)[0].rows == 4
    assert kfac_layers(replace(made, positions={})) == []
    assert factor_sides(made.gradients) == [(7, 5)]
