"""Moving a profile to another GPU, batch or precision by anchors: worked out on paper."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from perfsim.compute.anchors import Anchor
from perfsim.compute.device import load_device
from perfsim.compute.profile import Gradient, Profile, read_profile
from perfsim.compute.transfer import LAUNCHES_S, transfer
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from support.anchors import Table, anchor, milliseconds, profile, transferred
from support.what_ships import SHIPPED


def test_exact_anchor_wins_and_the_shape_stays() -> None:
    result = transferred({"v100": [anchor(32, 200)]}, 32)
    assert math.isclose(milliseconds(result), 200)
    # 190 ms beside the optimizer's 10, where the profile has 90
    assert math.isclose(result.profile.backward_s, 0.06 * 190 / 90)
    assert math.isclose(result.profile.gradients[0].ready_s, 0.05 * 190 / 90)
    assert (result.quantity.kind, result.extrapolated) == ("measured", False)


def test_own_measured_profile_goes_before_what_others_measured() -> None:
    result = transferred({"v100": [anchor(32, 200)]}, 32, own=profile(kind="measured"))
    assert math.isclose(milliseconds(result), 100)


def test_several_sources_become_their_geometric_mean() -> None:
    result = transferred({"v100": [anchor(32, 100, source="A"), anchor(32, 400, source="B")]}, 32)
    assert math.isclose(milliseconds(result), 200)
    assert result.quantity.spread is not None
    assert math.isclose(result.quantity.spread, 1.645 * math.log(4) / math.sqrt(2))
    assert result.quantity.source == "A; B"


def test_forward_and_backward_alone_gain_the_profiles_optimizer() -> None:
    result = transferred({"v100": [anchor(32, 90, covers="forward_backward")]}, 32)
    assert math.isclose(milliseconds(result), 100)
    assert result.quantity.kind == "derived"


@pytest.mark.parametrize(
    ("batch", "expected", "outside"),
    [(48, 150, False), (96, 290, False), (128, 380, False), (256, 740, True), (16, 50, True)],
)
def test_line_in_batch_between_and_beyond(batch: int, expected: float, outside: bool) -> None:
    table: Table = {"v100": [anchor(64, 200), anchor(128, 380)]}
    result = transferred(table, batch)
    assert math.isclose(milliseconds(result), expected)
    assert result.extrapolated is outside
    assert result.profile.batch == batch


def test_line_below_the_smallest_batch_has_no_negative_fixed_part() -> None:
    table: Table = {"v100": [anchor(64, 200), anchor(128, 500)]}
    result = transferred(table, 32, own=profile(batch=64))
    assert math.isclose(milliseconds(result), 100)


def test_lone_batch_takes_its_fixed_share_from_another_gpu() -> None:
    table: Table = {"p100": [anchor(32, 300)], "k80": [anchor(32, 600), anchor(64, 1000)]}
    result = transferred(table, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 300 * (1 / 3 + 2 / 3 * 2))
    assert result.extrapolated
    assert "33% of it taken as fixed, as on k80 in fp32" in result.notes[0]


def test_lone_batch_without_a_series_anywhere_is_proportional_and_says_so() -> None:
    result = transferred({"p100": [anchor(32, 300)]}, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 600)
    assert "no batch series of this model shows its fixed share, taken as 0" in result.notes[0]


def test_speed_ratio_comes_from_models_measured_on_both() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 10, "two"), anchor(8, 10, "three")],
        "p100": [anchor(8, 20, "one"), anchor(8, 80, "two")],
    }
    result = transferred(table, 32, gpu="p100")
    assert math.isclose(milliseconds(result), 400)
    assert result.quantity.kind == "derived"
    assert result.quantity.spread is not None
    assert math.isclose(result.quantity.spread, 1.645 * math.log(4) / math.sqrt(2))
    assert "mean over one, two (paper)" in result.notes[-1]
    assert (result.profile.gpu, result.profile.batch) == ("p100", 32)


def test_one_source_on_both_gpus_goes_before_mixed_sources() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one", source="A", use="ratio"), anchor(8, 40, "one", source="B")],
        "p100": [anchor(8, 30, "one", source="A"), anchor(8, 30, "one", source="C")],
    }
    assert math.isclose(milliseconds(transferred(table, 32, gpu="p100")), 300)


def test_two_measured_ratios_lead_over_a_place_between() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one")],
        "p100": [anchor(8, 20, "one"), anchor(8, 10, "two")],
        "k80": [anchor(8, 30, "two")],
    }
    result = transferred(table, 32, gpu="k80")
    assert math.isclose(milliseconds(result), 600)
    assert len(result.notes) == 3


def test_precision_ratio_comes_from_models_measured_at_both() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 4, "one", precision="amp-fp16")],
    }
    result = transferred(table, 32, precision="amp-fp16")
    assert math.isclose(milliseconds(result), 40)
    assert result.profile.precision == "amp-fp16"


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_without_measurements_rates_compare_the_gpus(share: float) -> None:
    v100, p100 = (load_device(name, SHIPPED) for name in ("v100", "p100"))
    result = transferred({}, 32, gpu="p100", own=profile(share=share))
    products = v100.matrix_rate("fp32").value / p100.matrix_rate("fp32").value
    memory = v100.memory_bandwidth.value / p100.memory_bandwidth.value
    assert math.isclose(milliseconds(result), 100 * (share * products + (1 - share) * memory))
    assert result.extrapolated
    assert "a rough guess" in result.notes[-1]


def test_other_sequence_length_is_no_anchor() -> None:
    other = Anchor("net", "fp32", 32, 128, 0.5, None, "", "iteration", "level", "measured", "p")
    assert math.isclose(milliseconds(transferred({"v100": [other]}, 32)), 100)


def test_family_goes_before_other_models_and_one_source_before_both() -> None:
    text: Table = {
        "v100": [anchor(8, 10, "bert-base"), anchor(8, 10, "one"), anchor(8, 10, "two")],
        "p100": [anchor(8, 20, "bert-base"), anchor(8, 30, "one"), anchor(8, 30, "two")],
    }
    assert math.isclose(milliseconds(transferred(text, 32, gpu="p100")), 300)
    mixed: Table = {
        "v100": [anchor(8, 10, "bert-base", source="A"), anchor(8, 10, "one", source="A")],
        "p100": [anchor(8, 20, "bert-base", source="A"), anchor(8, 30, "one", source="B")],
    }
    assert math.isclose(milliseconds(transferred(mixed, 32, gpu="p100")), 200)


def test_local_figure_is_a_level_and_no_ratio_across_sources() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one", source="A"), anchor(8, 10, "two", source="C")],
        "p100": [anchor(8, 90, "one", source="B", use="local"), anchor(8, 20, "two", source="C")],
    }
    assert math.isclose(milliseconds(transferred(table, 32, gpu="p100")), 200)
    level: Table = {"p100": [anchor(32, 70, use="local")]}
    assert math.isclose(milliseconds(transferred(level, 32, gpu="p100")), 70)


def test_chains_of_three_ratios_are_found_and_longer_ones_left_to_rates() -> None:
    names = ["v100", "p100", "k80", "t4", "a100"]
    table: Table = {name: [] for name in names}
    for place, (near, far) in enumerate(pairwise(names)):
        table[near] = [*table[near], anchor(8, 10, f"net{place}")]
        table[far] = [*table[far], anchor(8, 20, f"net{place}")]
    assert math.isclose(milliseconds(transferred(table, 32, gpu="t4")), 800)
    assert not transferred(table, 32, gpu="t4").extrapolated
    beyond = transferred(table, 32, gpu="a100")
    assert "No model was measured on both v100 in fp32 and a100 in fp32" in beyond.notes[-1]
    assert beyond.extrapolated


def test_shorter_chain_wins() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 10, "two")],
        "p100": [anchor(8, 20, "one"), anchor(8, 10, "three")],
        "k80": [anchor(8, 30, "two"), anchor(8, 70, "three")],
    }
    assert math.isclose(milliseconds(transferred(table, 32, gpu="k80")), 300)


def test_board_of_the_same_chip_goes_before_measured_ratios() -> None:
    v100, pcie = (load_device(name, SHIPPED) for name in ("v100", "v100-pcie"))
    table: Table = {
        "v100": [anchor(8, 10, "one")],
        "v100-pcie": [anchor(8, 90, "one")],
    }
    result = transferred(table, 32, gpu="v100-pcie")
    rates = v100.matrix_rate("fp32").value / pcie.matrix_rate("fp32").value
    assert math.isclose(milliseconds(result), 100 * rates)
    assert math.isclose(rates, 15.7 / 14.0)
    assert result.extrapolated and "boards of one chip" in result.notes[-1]


def test_larger_batch_that_looked_faster_is_pooled_with_its_neighbour() -> None:
    table: Table = {"v100": [anchor(64, 400), anchor(128, 100), anchor(256, 800)]}
    own = profile(batch=64)
    assert math.isclose(milliseconds(transferred(table, 64, own=own)), 200)
    assert math.isclose(milliseconds(transferred(table, 96, own=own)), 200)
    result = transferred(table, 128, own=own)
    assert math.isclose(milliseconds(result), 200)
    assert result.quantity.kind == "derived" and "batches 64, 128" in result.notes[0]


def test_optimizer_goes_with_memory_bandwidth_alone() -> None:
    v100, k80 = (load_device(name, SHIPPED) for name in ("v100", "k80"))
    factor = v100.memory_bandwidth.value / k80.memory_bandwidth.value
    result = transferred({"k80": [anchor(64, 1000)]}, 64, gpu="k80").profile
    assert math.isclose(result.optimizer_s, 0.01 * factor)
    assert math.isclose(result.forward_s, (1 - 0.01 * factor) * 30 / 90)
    assert math.isclose(transferred({}, 128).profile.optimizer_s, 0.01)
    short = transferred({"v100": [anchor(1, 8)]}, 1).profile
    assert math.isclose(short.optimizer_s, 0.7 * 0.008)
    assert math.isclose(short.forward_s + short.backward_s, 0.3 * 0.008)


def test_lone_batch_takes_beside_it_what_other_gpus_lead_to() -> None:
    # 8 images are mostly launches; the V100's 32 images lead to 200 ms here
    table: Table = {
        "p100": [anchor(8, 80), anchor(8, 20, "one")],
        "v100": [anchor(8, 10, "one")],
    }
    assert math.isclose(milliseconds(transferred(table, 8, gpu="p100")), 80)
    assert math.isclose(milliseconds(transferred(table, 32, gpu="p100")), 200)
    result = transferred(table, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 200 + 32 * (200 - 80) / 24)
    assert "p100 in fp32 takes 2 times as long as v100 in fp32" in result.notes[-1]
    table["p100"] = [anchor(8, 300), anchor(8, 20, "one")]  # above the larger batch: stands alone
    assert math.isclose(milliseconds(transferred(table, 32, gpu="p100")), 1200)


def test_partial_figure_gains_the_optimizer_of_its_own_gpu() -> None:
    v100, k80 = (load_device(name, SHIPPED) for name in ("v100", "k80"))
    result = transferred({"k80": [anchor(32, 90, covers="forward_backward")]}, 32, gpu="k80")
    factor = v100.memory_bandwidth.value / k80.memory_bandwidth.value
    assert math.isclose(milliseconds(result), 90 + 10 * factor)


def test_transferred_iteration_takes_at_least_its_launches() -> None:
    gradients = tuple(Gradient(f"w{number}", (8,), 0.05, 0) for number in range(200))
    own = Profile(**{**profile(batch=64).__dict__, "gradients": gradients})
    result = transferred({}, 1, own=own)
    assert math.isclose(milliseconds(result), 200 * LAUNCHES_S * 1e3)
    assert result.extrapolated
    assert "Held at 30 ms, the least for 200 tensors at 0.15 ms each." in result.notes
    fast = transferred({"p100": [anchor(64, 20)]}, 1, own=own)
    assert math.isclose(milliseconds(fast), 20)


# bad input


def test_batch_below_one_is_refused() -> None:
    with pytest.raises(RequestError, match="batch: 0 is below 1"):
        transferred({}, 0)


def test_precision_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(RequestError, match="k80 has no 'amp-fp16' rate; allowed on this GPU: fp32"):
        transferred({}, 32, gpu="k80", precision="amp-fp16")


def own_profile(name: str) -> Profile:
    """Return a profile that ships."""
    return read_profile(Catalog().files("models")[name])


def test_a_profiles_own_total_gives_way_to_others_where_its_owner_is_left_out() -> None:
    device, own = load_device("v100-pcie", Catalog()), own_profile("bert-large.v100-pcie.fp32.b8")
    known, others = (
        transfer(own, device, own.batch, "fp32", Catalog(None, without))
        for without in ((), {"hkbu-hpml"})
    )
    assert known.quantity.source.startswith("HKBU-HPML") and not known.left_out
    assert "HKBU-HPML" not in others.quantity.source and not others.left_out
    assert others.profile.iteration_s != pytest.approx(known.profile.iteration_s, rel=0.01)


def test_a_model_that_nobody_else_measured_has_no_time_without_its_source() -> None:
    left_out = Catalog(None, {"vineeths96"})
    device, own = load_device("v100", left_out), own_profile("resnet50-cifar.v100.fp32.b128")
    found = transfer(own, device, own.batch, "fp32", left_out)
    # The layers keep their shape, for who gives the time of one GPU.
    assert found.left_out and found.profile.iteration_s == own.iteration_s
