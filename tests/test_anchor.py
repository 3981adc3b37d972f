"""Anchors: reading them, and carrying a profile to another GPU, batch or precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from collected import (
    Found,
    gavel,
    kaust,
    lambda_labs,
    mxnet,
    needs_data,
    tensorflow,
    timm,
    torchvision,
)
from hypothesis import given
from hypothesis import strategies as st
from what_ships import SHIPPED

from perfsim.anchor import Anchor, Carried, base, carry, load_anchors, read_anchors
from perfsim.computation import find_profile
from perfsim.device import load_device
from perfsim.errors import DataError, RequestError
from perfsim.origin import LAUNCHES_S
from perfsim.profile import Gradient, Layer, Profile
from perfsim.profile_file import read_profile
from perfsim.quantity import Kind

HEAD = (
    "# schema: perfsim/anchors/1\n# gpu: v100\nmodel,precision,batch,sequence,iteration_ms,"
    "spread_percent,framework,covers,use,kind,source,note\n"
)
Table = dict[str, Sequence[Anchor]]
BATCHES = sorted({*range(1, 40), *range(40, 130, 6), 127, 128, 129, *range(130, 513, 24), 512})


def anchor(
    batch: int,
    milliseconds: float,
    model: str = "net",
    precision: str = "fp32",
    source: str = "paper",
    covers: str = "iteration",
    use: str = "level",
) -> Anchor:
    return Anchor(
        model, precision, batch, None, milliseconds / 1e3, None, "", covers, use, "measured", source
    )


def profile(
    batch: int = 32, gpu: str = "v100", kind: Kind = "derived", share: float = 1.0
) -> Profile:
    """Return a profile of 100 ms: forward 30, backward 60 (conv for ``share``), optimizer 10."""
    kinds: dict[str, Kind] = dict.fromkeys(("forward_ms", "backward_ms", "optimizer_ms"), "derived")
    return Profile(
        "net",
        gpu,
        "fp32",
        batch,
        0.1,
        0.01,
        (
            Layer("a", "conv", 0.03 * share, 0.06 * share),
            Layer("b", "batchnorm", 0.03 * (1 - share), 0.06 * (1 - share)),
        ),
        (Gradient("a.weight", (8, 8), 0.05, 0),),
        {**kinds, "ready_ms": "derived", "iteration_ms": kind},
        {"source": "by hand"},
    )


def carried(
    table: Table, batch: int, gpu: str = "v100", precision: str = "fp32", own: Profile | None = None
) -> Carried:
    return carry(own or profile(), load_device(gpu, SHIPPED), batch, precision, table)


def milliseconds(result: Carried) -> float:
    assert math.isclose(result.profile.iteration_s, result.quantity.value)
    return result.quantity.value * 1e3


# by hand


def test_exact_anchor_wins_and_the_shape_stays() -> None:
    result = carried({"v100": [anchor(32, 200)]}, 32)
    assert math.isclose(milliseconds(result), 200)
    # 190 ms beside the optimizer's 10, where the profile has 90
    assert math.isclose(result.profile.backward_s, 0.06 * 190 / 90)
    assert math.isclose(result.profile.gradients[0].ready_s, 0.05 * 190 / 90)
    assert (result.quantity.kind, result.extrapolated) == ("measured", False)


def test_own_measured_profile_goes_before_what_others_measured() -> None:
    result = carried({"v100": [anchor(32, 200)]}, 32, own=profile(kind="measured"))
    assert math.isclose(milliseconds(result), 100)


def test_several_sources_become_their_geometric_mean() -> None:
    result = carried({"v100": [anchor(32, 100, source="A"), anchor(32, 400, source="B")]}, 32)
    assert math.isclose(milliseconds(result), 200)
    assert result.quantity.spread is not None
    assert math.isclose(result.quantity.spread, 1.645 * math.log(4) / math.sqrt(2))
    assert result.quantity.source == "A; B"


def test_forward_and_backward_alone_gain_the_profiles_optimizer() -> None:
    result = carried({"v100": [anchor(32, 90, covers="forward_backward")]}, 32)
    assert math.isclose(milliseconds(result), 100)
    assert result.quantity.kind == "derived"


@pytest.mark.parametrize(
    ("batch", "expected", "outside"),
    [(48, 150, False), (96, 290, False), (128, 380, False), (256, 740, True), (16, 50, True)],
)
def test_line_in_batch_between_and_beyond(batch: int, expected: float, outside: bool) -> None:
    table: Table = {"v100": [anchor(64, 200), anchor(128, 380)]}
    result = carried(table, batch)
    assert math.isclose(milliseconds(result), expected)
    assert result.extrapolated is outside
    assert result.profile.batch == batch


def test_line_below_the_smallest_batch_has_no_negative_fixed_part() -> None:
    table: Table = {"v100": [anchor(64, 200), anchor(128, 500)]}
    result = carried(table, 32, own=profile(batch=64))
    assert math.isclose(milliseconds(result), 100)


def test_lone_batch_takes_its_fixed_share_from_another_gpu() -> None:
    table: Table = {"p100": [anchor(32, 300)], "k80": [anchor(32, 600), anchor(64, 1000)]}
    result = carried(table, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 300 * (1 / 3 + 2 / 3 * 2))
    assert result.extrapolated
    assert "33% of it taken as fixed, as on k80 in fp32" in result.notes[0]


def test_lone_batch_without_a_series_anywhere_is_proportional_and_says_so() -> None:
    result = carried({"p100": [anchor(32, 300)]}, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 600)
    assert "no batch series of this model tells its fixed share, taken as 0" in result.notes[0]


def test_speed_ratio_comes_from_models_measured_on_both() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 10, "two"), anchor(8, 10, "three")],
        "p100": [anchor(8, 20, "one"), anchor(8, 80, "two")],
    }
    result = carried(table, 32, gpu="p100")
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
    assert math.isclose(milliseconds(carried(table, 32, gpu="p100")), 300)


def test_two_measured_ratios_lead_over_a_place_between() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one")],
        "p100": [anchor(8, 20, "one"), anchor(8, 10, "two")],
        "k80": [anchor(8, 30, "two")],
    }
    result = carried(table, 32, gpu="k80")
    assert math.isclose(milliseconds(result), 600)
    assert len(result.notes) == 3


def test_precision_ratio_comes_from_models_measured_at_both() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 4, "one", precision="amp-fp16")],
    }
    result = carried(table, 32, precision="amp-fp16")
    assert math.isclose(milliseconds(result), 40)
    assert result.profile.precision == "amp-fp16"


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_without_measurements_rates_compare_the_gpus(share: float) -> None:
    v100, p100 = (load_device(name, SHIPPED) for name in ("v100", "p100"))
    result = carried({}, 32, gpu="p100", own=profile(share=share))
    products = v100.matrix_rate("fp32").value / p100.matrix_rate("fp32").value
    memory = v100.memory_bandwidth.value / p100.memory_bandwidth.value
    assert math.isclose(milliseconds(result), 100 * (share * products + (1 - share) * memory))
    assert result.extrapolated
    assert "a rough guess" in result.notes[-1]


def test_other_sequence_length_is_no_anchor() -> None:
    other = Anchor("net", "fp32", 32, 128, 0.5, None, "", "iteration", "level", "measured", "p")
    assert math.isclose(milliseconds(carried({"v100": [other]}, 32)), 100)


def test_family_goes_before_other_models_and_one_source_before_both() -> None:
    text: Table = {
        "v100": [anchor(8, 10, "bert-base"), anchor(8, 10, "one"), anchor(8, 10, "two")],
        "p100": [anchor(8, 20, "bert-base"), anchor(8, 30, "one"), anchor(8, 30, "two")],
    }
    assert math.isclose(milliseconds(carried(text, 32, gpu="p100")), 300)
    mixed: Table = {
        "v100": [anchor(8, 10, "bert-base", source="A"), anchor(8, 10, "one", source="A")],
        "p100": [anchor(8, 20, "bert-base", source="A"), anchor(8, 30, "one", source="B")],
    }
    assert math.isclose(milliseconds(carried(mixed, 32, gpu="p100")), 200)


def test_local_figure_is_a_level_and_no_ratio_across_sources() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one", source="A"), anchor(8, 10, "two", source="C")],
        "p100": [anchor(8, 90, "one", source="B", use="local"), anchor(8, 20, "two", source="C")],
    }
    assert math.isclose(milliseconds(carried(table, 32, gpu="p100")), 200)
    level: Table = {"p100": [anchor(32, 70, use="local")]}
    assert math.isclose(milliseconds(carried(level, 32, gpu="p100")), 70)


def test_chains_of_three_ratios_are_found_and_longer_ones_left_to_rates() -> None:
    names = ["v100", "p100", "k80", "t4", "a100"]
    table: Table = {name: [] for name in names}
    for place, (near, far) in enumerate(pairwise(names)):
        table[near] = [*table[near], anchor(8, 10, f"net{place}")]
        table[far] = [*table[far], anchor(8, 20, f"net{place}")]
    assert math.isclose(milliseconds(carried(table, 32, gpu="t4")), 800)
    assert not carried(table, 32, gpu="t4").extrapolated
    beyond = carried(table, 32, gpu="a100")
    assert "No model was measured on both v100 in fp32 and a100 in fp32" in beyond.notes[-1]
    assert beyond.extrapolated


def test_shorter_chain_wins() -> None:
    table: Table = {
        "v100": [anchor(8, 10, "one"), anchor(8, 10, "two")],
        "p100": [anchor(8, 20, "one"), anchor(8, 10, "three")],
        "k80": [anchor(8, 30, "two"), anchor(8, 70, "three")],
    }
    assert math.isclose(milliseconds(carried(table, 32, gpu="k80")), 300)


def test_board_of_the_same_chip_goes_before_measured_ratios() -> None:
    v100, pcie = (load_device(name, SHIPPED) for name in ("v100", "v100-pcie"))
    table: Table = {
        "v100": [anchor(8, 10, "one")],
        "v100-pcie": [anchor(8, 90, "one")],
    }
    result = carried(table, 32, gpu="v100-pcie")
    rates = v100.matrix_rate("fp32").value / pcie.matrix_rate("fp32").value
    assert math.isclose(milliseconds(result), 100 * rates)
    assert math.isclose(rates, 15.7 / 14.0)
    assert result.extrapolated and "boards of one chip" in result.notes[-1]


def test_larger_batch_that_looked_faster_is_pooled_with_its_neighbour() -> None:
    table: Table = {"v100": [anchor(64, 400), anchor(128, 100), anchor(256, 800)]}
    own = profile(batch=64)
    assert math.isclose(milliseconds(carried(table, 64, own=own)), 200)
    assert math.isclose(milliseconds(carried(table, 96, own=own)), 200)
    result = carried(table, 128, own=own)
    assert math.isclose(milliseconds(result), 200)
    assert result.quantity.kind == "derived" and "batches 64, 128" in result.notes[0]


def test_optimizer_goes_with_memory_bandwidth_alone() -> None:
    v100, k80 = (load_device(name, SHIPPED) for name in ("v100", "k80"))
    factor = v100.memory_bandwidth.value / k80.memory_bandwidth.value
    result = carried({"k80": [anchor(64, 1000)]}, 64, gpu="k80").profile
    assert math.isclose(result.optimizer_s, 0.01 * factor)
    assert math.isclose(result.forward_s, (1 - 0.01 * factor) * 30 / 90)
    assert math.isclose(carried({}, 128).profile.optimizer_s, 0.01)
    short = carried({"v100": [anchor(1, 8)]}, 1).profile
    assert math.isclose(short.optimizer_s, 0.7 * 0.008)
    assert math.isclose(short.forward_s + short.backward_s, 0.3 * 0.008)


def test_lone_batch_takes_beside_it_what_other_gpus_lead_to() -> None:
    # 8 images are mostly launches; the V100's 32 images lead to 200 ms here
    table: Table = {
        "p100": [anchor(8, 80), anchor(8, 20, "one")],
        "v100": [anchor(8, 10, "one")],
    }
    assert math.isclose(milliseconds(carried(table, 8, gpu="p100")), 80)
    assert math.isclose(milliseconds(carried(table, 32, gpu="p100")), 200)
    result = carried(table, 64, gpu="p100")
    assert math.isclose(milliseconds(result), 200 + 32 * (200 - 80) / 24)
    assert "p100 in fp32 takes 2 times as long as v100 in fp32" in result.notes[-1]
    table["p100"] = [anchor(8, 300), anchor(8, 20, "one")]  # above the larger batch: stands alone
    assert math.isclose(milliseconds(carried(table, 32, gpu="p100")), 1200)


def test_partial_figure_gains_the_optimizer_of_its_own_gpu() -> None:
    v100, k80 = (load_device(name, SHIPPED) for name in ("v100", "k80"))
    result = carried({"k80": [anchor(32, 90, covers="forward_backward")]}, 32, gpu="k80")
    factor = v100.memory_bandwidth.value / k80.memory_bandwidth.value
    assert math.isclose(milliseconds(result), 90 + 10 * factor)


def test_carried_iteration_takes_at_least_its_launches() -> None:
    gradients = tuple(Gradient(f"w{number}", (8,), 0.05, 0) for number in range(200))
    own = Profile(**{**profile(batch=64).__dict__, "gradients": gradients})
    result = carried({}, 1, own=own)
    assert math.isclose(milliseconds(result), 200 * LAUNCHES_S * 1e3)
    assert result.extrapolated
    assert "Held at 30 ms, the least for 200 tensors at 0.15 ms each." in result.notes
    fast = carried({"p100": [anchor(64, 20)]}, 1, own=own)
    assert math.isclose(milliseconds(fast), 20)


# by law


@pytest.mark.parametrize("model", sorted({stem.split(".")[0] for stem in SHIPPED.files("models")}))
def test_larger_batch_never_takes_less_time(model: str) -> None:
    known = {gpu: load_anchors(gpu, SHIPPED) for gpu in SHIPPED.files("devices")}
    for gpu in known:
        device = load_device(gpu, SHIPPED)
        for precision in device.rates:
            own = find_profile(model, gpu, None, precision, SHIPPED)
            start = base(own, device, precision, known)
            at = {batch: start.at(batch).seconds for batch in BATCHES}
            assert at[1] > 0
            falls = [pair for pair in pairwise(BATCHES) if at[pair[1]] < at[pair[0]] * (1 - 1e-12)]
            assert not falls, (gpu, precision, falls)


@given(
    figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=5),
    batch=st.integers(1, 1023),
)
def test_time_rises_with_the_batch_whatever_was_measured(
    figures: dict[int, float], batch: int
) -> None:
    table: Table = {"v100": [anchor(size, time) for size, time in figures.items()]}
    start = base(profile(), load_device("v100", SHIPPED), "fp32", table)
    assert start.at(batch).seconds <= start.at(batch + 1).seconds * (1 + 1e-12)
    own = base(profile(kind="measured"), load_device("v100", SHIPPED), "fp32", table)
    assert math.isclose(own.at(32).seconds, 0.1)


@given(
    figures=st.dictionaries(st.integers(1, 512), st.floats(1, 1e4), max_size=4),
    batch=st.integers(1, 1024),
)
def test_carrying_again_to_the_same_place_changes_nothing(
    figures: dict[int, float], batch: int
) -> None:
    table: Table = {"v100": [anchor(size, time) for size, time in figures.items()]}
    first = carried(table, batch)
    again = carried({"v100": [anchor(batch, milliseconds(first))]}, batch, own=first.profile)
    assert math.isclose(milliseconds(again), milliseconds(first))
    assert first.profile.iteration_s > 0
    assert all(note.endswith(".") for note in first.notes) and first.notes


@given(batch=st.integers(1, 1024))
def test_profile_alone_at_its_own_place_is_returned_as_it_is(batch: int) -> None:
    own = profile(batch=batch)
    assert carried({}, batch, own=own).profile == own


@pytest.mark.parametrize("path", sorted(SHIPPED.files("models").values()), ids=lambda p: p.stem)
def test_every_shipped_profile_can_be_carried_to_every_gpu(path: Path) -> None:
    own = read_profile(path)
    for gpu in ("k80", "h200"):
        result = carry(own, load_device(gpu, SHIPPED), own.batch, "fp32", SHIPPED)
        assert result.profile.gpu == gpu
        assert 0.01 < result.profile.iteration_s / own.iteration_s < 300
        assert result.notes


# by published value


def test_resnet50_on_v100_pcie_as_hkbu_measured() -> None:
    """ddl-benchmarks 2020: 253.1 images/s at batch 64 (arXiv 2005.13247)."""
    [found] = [a for a in load_anchors("v100-pcie", SHIPPED) if a.model == "resnet50"]
    assert math.isclose(found.iteration_s, 64 / 253.1, rel_tol=1e-5)
    own = Profile(**{**profile().__dict__, "model": "resnet50"})
    result = carry(own, load_device("v100-pcie", SHIPPED), 64, "fp32", SHIPPED)
    assert math.isclose(milliseconds(result), 252.86, abs_tol=0.01)
    assert result.quantity.kind == "measured"


def test_both_v100_boards_differ_by_their_chip_alone() -> None:
    """ViT-B/16 at batch 192: what one board takes, the other takes by 15.7 / 14.0 TFLOP/s."""
    own = find_profile("vit-b16", "v100", 192, "fp32", SHIPPED)
    sxm, pcie = (
        carry(own, load_device(gpu, SHIPPED), 192, "fp32", SHIPPED).quantity.value
        for gpu in ("v100", "v100-pcie")
    )
    assert 1 < pcie / sxm <= 15.7 / 14.0 + 1e-9


def test_h200_is_as_much_faster_than_h100_as_lambda_measured() -> None:
    """Lambda's benchmark: ResNet-50 in TF32 at 1895 images/s on an H100, 2259 on an H200."""
    own = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    h100, h200 = (
        carry(own, load_device(gpu, SHIPPED), 640, "tf32", SHIPPED) for gpu in ("h100", "h200")
    )
    assert math.isclose(h100.quantity.value, 640 / 1895, rel_tol=1e-5)
    assert math.isclose(h200.quantity.value * 2259, h100.quantity.value * 1895, rel_tol=0.03)


def test_resnet50_carried_to_batch_64_agrees_with_tensorflow_traces() -> None:
    """Traces on a V100 (ChenYuHo/schedule-simulator@368d560): forward 73.19, backward 117.13 ms."""
    own = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    result = carry(own, load_device("v100", SHIPPED), 64, "fp32", SHIPPED)
    assert math.isclose(result.profile.forward_s * 1e3, 73.19, rel_tol=0.06)
    assert math.isclose(result.profile.backward_s * 1e3, 117.13, rel_tol=0.06)


def test_mxnet_figures_between_batches_lie_near_the_line() -> None:
    """MXNet's page gives 63.689 ms at batch 16; its batches 8 and 32 predict it within 20 %."""
    own = Profile(**{**profile(batch=8).__dict__, "model": "resnet50"})
    ends = [
        a for a in load_anchors("v100", SHIPPED) if a.model == "resnet50" and a.batch in (8, 32)
    ]
    table: Table = {"v100": [a for a in ends if a.source.startswith("apache/mxnet")]}
    assert math.isclose(milliseconds(carried(table, 16, own=own)), 63.689, rel_tol=0.2)


# The second column: how many anchors of the source there are, so that none is lost unnoticed.
# The H200's are left out: their batch is that of the H100, not their source's.
@needs_data
@pytest.mark.parametrize(
    ("source", "rows", "collect"),
    [
        ("apache/mxnet", 38, mxnet),
        ("tensorflow/tensorflow", 18, tensorflow),
        ("huggingface/pytorch-image-models", 12, timm),
        ("ryujaehun/pytorch-gpu-benchmark", 8, torchvision),
        ("stanford-futuredata/gavel", 18, gavel),
        ("ChenYuHo/schedule-simulator", 5, kaust),
        ("lambdal/deeplearning-benchmark", 28, lambda_labs),
    ],
)
def test_anchors_are_those_of_the_collected_tables(
    source: str, rows: int, collect: Callable[[], Found]
) -> None:
    found = collect()
    own = [
        (gpu, a)
        for gpu in SHIPPED.files("devices")
        for a in load_anchors(gpu, SHIPPED)
        if a.source.startswith(source) and gpu != "h200"
    ]
    assert len(own) == rows
    for gpu, a in own:
        near = found[gpu, a.model, a.precision, a.batch]
        assert any(math.isclose(a.iteration_s * 1e3, one, rel_tol=6e-6) for one in near), a


# bad input


def test_batch_below_one_is_refused() -> None:
    with pytest.raises(RequestError, match="--batch: 0 is below 1"):
        carried({}, 0)


def test_precision_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(RequestError, match="k80 has no 'amp-fp16' rate; allowed on this GPU: fp32"):
        carried({}, 32, gpu="k80", precision="amp-fp16")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "net,fp32,32,,0,,,iteration,level,measured,p,",
            "line 4, column 'iteration_ms': '0' is not",
        ),
        (
            "net,fp32,3.5,,9,,,iteration,level,measured,p,",
            "line 4, column 'batch': '3.5' is not a whole number",
        ),
        (
            "net,fp8,32,,9,,,iteration,level,measured,p,",
            "line 4, column 'precision': 'fp8'; allowed",
        ),
        ("net,fp32,32,,9,,,all,level,measured,p,", "line 4, column 'covers': 'all'; allowed"),
        ("net,fp32,32,,9,,,iteration,level,heard,p,", "line 4, column 'kind': 'heard' is no kind"),
        ("net,fp32,32,,9,,,iteration,level,measured,,", "line 4, column 'source': is empty"),
        (
            "net,fp32,1e30,,9,,,iteration,level,measured,p,",
            "line 4, column 'batch': '1e30' is outside 1 to 1e9",
        ),
        (
            "net,fp32,32,,1e-320,,,iteration,level,measured,p,",
            "line 4, column 'iteration_ms': '1e-320' is outside 1e-15 s to 1e9 s",
        ),
        (
            "net,fp32,32,,9,1e300,,iteration,level,measured,p,",
            "line 4, column 'spread_percent': '1e300' is outside 0 % to 300 %",
        ),
        (",fp32,32,,9,,,iteration,level,measured,p,", "line 4, column 'model': is empty"),
        ("net,fp32,32", "line 4: 3 cells, the head has 12"),
    ],
)
def test_damaged_rows_name_the_place(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD + row + "\n")
    with pytest.raises(DataError) as caught:
        read_anchors(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("other", ["k80", "any", ""])
def test_anchors_of_another_gpu_are_refused(tmp_path: Path, other: str) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD.replace("gpu: v100", f"gpu: {other}"))
    with pytest.raises(DataError, match=f"line 2: the header's gpu is '{other}', the file's name"):
        read_anchors(path)


def test_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD.replace("anchors/1", "anchors/2"))
    with pytest.raises(DataError, match="this perfsim reads '# schema: perfsim/anchors/1'"):
        read_anchors(path)


@pytest.mark.parametrize("gpu", sorted(SHIPPED.files("devices")))
def test_shipped_anchors_read_and_name_precisions_of_their_gpu(gpu: str) -> None:
    device = load_device(gpu, SHIPPED)
    for found in load_anchors(gpu, SHIPPED):
        assert found.precision in device.rates
        assert found.sequence is not None or not found.model.startswith("bert")
