"""Moving a profile to another GPU, batch, precision or software: worked out on paper.

``net`` is a network without a definition: its 90 ms of convolution go by matrix rate and with the
batch, its optimizer's 10 ms by memory bandwidth. ``resnet50`` has a definition and goes by kernels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates, model_time
from perfsim.compute.profile import Gradient, Profile, read_profile
from perfsim.compute.residuals import FITTED_DEVIATIONS
from perfsim.compute.transfer import pin_iteration, transfer
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.quantity import Kind
from support.anchors import Table, anchor, milliseconds, passes_ms, profile, transferred
from support.what_ships import SHIPPED

ERA = "torch2"
REPEATS = 0.024
"""What one measured iteration scatters, as transfer has it."""


def ratio(gpu: str, precision: str = "fp32") -> tuple[float, float]:
    """Return how much longer products and memory take than on a V100 in fp32."""
    v100, other = (load_device(name, SHIPPED) for name in ("v100", gpu))
    return (
        v100.matrix_rate("fp32").value / other.matrix_rate(precision).value,
        v100.memory_bandwidth.value / other.memory_bandwidth.value,
    )


def resnet50() -> Profile:
    """Return the shipped profile of ResNet-50 on a V100, fp32, batch 32."""
    return read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))


def kernels_s(model: str, gpu: str, precision: str, batch: int, era: str = ERA) -> float:
    """Return an iteration by kernels and launches alone [s]."""
    rates = kernel_rates(load_device(gpu, SHIPPED), precision, era)
    return model_time(model, None, batch, rates).iteration_s


# What was measured at the goal


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


def test_partial_figure_gains_the_optimizer_of_its_own_gpu() -> None:
    result = transferred({"k80": [anchor(32, 90, covers="forward_backward")]}, 32, gpu="k80")
    assert math.isclose(milliseconds(result), 90 + 10 * ratio("k80")[1])


def test_a_figure_that_something_beside_the_gpu_slowed_is_no_level() -> None:
    for use, expected in (("level", 70), ("local", 70), ("ratio", 100)):
        result = transferred({"v100": [anchor(32, 70, use=use)]}, 32)
        assert math.isclose(milliseconds(result), expected), use


def test_other_sequence_length_is_no_anchor() -> None:
    other = anchor(32, 500)._replace(sequence=128)
    assert math.isclose(milliseconds(transferred({"v100": [other]}, 32)), 100)


# Batch


@pytest.mark.parametrize(
    ("batch", "expected", "outside"),
    [
        (48, 150, False),  # halfway between the profile's 100 ms at 32 and 200 ms
        (96, 290, False),
        (128, 380, False),
        (256, 380 * (8 * 90 + 10) / (4 * 90 + 10), True),  # 90 ms with the batch, 10 ms fixed
        (16, 100 * (90 / 2 + 10) / 100, True),
    ],
)
def test_line_in_batch_between_and_kernels_beyond(
    batch: int, expected: float, outside: bool
) -> None:
    table: Table = {"v100": [anchor(64, 200), anchor(128, 380)]}
    result = transferred(table, batch)
    assert math.isclose(milliseconds(result), expected)
    assert result.extrapolated is outside
    assert result.profile.batch == batch
    low_or_high = {256: math.log(2), 16: math.log(2)}
    assert math.isclose(result.batch_reach, low_or_high.get(batch, 0.0))


def test_a_lone_batch_goes_on_as_the_kernels_of_its_own_gpu() -> None:
    products, memory = ratio("p100")
    passes, update = 90 * products, 10 * memory
    result = transferred({"p100": [anchor(32, 300)]}, 64, gpu="p100")
    expected = 300 * (2 * passes + update) / (passes + update)
    assert math.isclose(milliseconds(result), expected)
    assert result.extrapolated and result.quantity.kind == "derived"
    assert result.notes[0].startswith("net on p100 in fp32: batch 64 from batch 32 (paper), ")


def test_larger_batch_that_looked_faster_is_pooled_with_its_neighbour() -> None:
    table: Table = {"v100": [anchor(64, 400), anchor(128, 100), anchor(256, 400)]}
    own = profile(batch=64)
    for batch in (64, 96, 128):
        result = transferred(table, batch, own=own)
        assert math.isclose(milliseconds(result), 200)
    assert result.quantity.kind == "derived"
    assert "mean of batches 64, 128, where larger ones took less" in result.quantity.source


def test_larger_batch_that_looked_slower_for_a_sample_is_pooled_with_its_neighbour() -> None:
    # 64 samples at 2 ms each and 128 at 8: the mean of 4 ms a sample.
    table: Table = {"v100": [anchor(64, 128), anchor(128, 1024)]}
    own = profile(batch=64)
    for batch in (64, 128):
        assert math.isclose(milliseconds(transferred(table, batch, own=own)), 4 * batch)


# Another GPU or precision, for a network without a definition


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_without_a_definition_rates_compare_the_gpus(share: float) -> None:
    result = transferred({}, 32, gpu="p100", own=profile(share=share))
    products, memory = ratio("p100")
    expected = 90 * (share * products + (1 - share) * memory) + 10 * memory
    assert math.isclose(milliseconds(result), expected)
    assert result.quantity.kind == "derived"
    assert result.notes[0].startswith("No iteration of net on p100 in fp32 is known")
    assert (result.profile.gpu, result.profile.batch) == ("p100", 32)


def test_optimizer_goes_with_memory_bandwidth_alone() -> None:
    factor = ratio("k80")[1]
    result = transferred({"k80": [anchor(64, 1000)]}, 64, gpu="k80").profile
    assert math.isclose(result.optimizer_s, 0.01 * factor)
    assert math.isclose(result.forward_s, (1 - 0.01 * factor) * 30 / 90)
    assert math.isclose(transferred({}, 128).profile.optimizer_s, 0.01)
    short = transferred({"v100": [anchor(1, 8)]}, 1).profile
    assert math.isclose(short.optimizer_s, 0.7 * 0.008)
    assert math.isclose(short.forward_s + short.backward_s, 0.3 * 0.008)


@pytest.mark.parametrize(
    ("table", "gpu", "precision", "expected"),
    [
        # Measured in fp32: mixed precision, by rates slower than that, is no slower.
        ({"a100": [anchor(32, 5)]}, "a100", "amp-fp16", 5),
        ({"a100": [anchor(32, 5, precision="tf32")]}, "a100", "amp-fp16", 5),
        # Measured in mixed precision: fp32, by rates faster than that, is no faster.
        ({"rtx2080ti": [anchor(32, 900, precision="amp-fp16")]}, "rtx2080ti", "fp32", 900),
        # Measured on the GPU before: the next one is no slower.
        ({"k80": [anchor(32, 20)]}, "p100", "fp32", 20),
    ],
)
def test_what_is_derived_is_held_at_what_was_measured_beside_it(
    table: Table, gpu: str, precision: str, expected: float
) -> None:
    result = transferred(table, 32, gpu=gpu, precision=precision)
    assert math.isclose(milliseconds(result), expected)
    assert any(note.startswith("Held at ") for note in result.notes)


def test_a_measured_narrower_precision_breaks_no_law_of_gpus_that_nobody_measured() -> None:
    """An A100 slow in mixed precision: its fp32 is no slower than that of the board before it.

    Neither passes nor update are.
    """
    table: Table = {"a100": [anchor(32, 900, precision="amp-fp16")]}
    older, newer = (transferred(table, 32, gpu=gpu) for gpu in ("v100", "a100"))
    assert math.isclose(milliseconds(older), 100)
    assert math.isclose(passes_ms(newer), passes_ms(older))
    assert newer.profile.optimizer_s < older.profile.optimizer_s


# Software


def test_launches_of_the_host_bind_a_small_batch() -> None:
    # 200 tensors: 3 operations each, of 41 us in the passes, and 5 us each in the update.
    gradients = tuple(Gradient(f"w{number}", (8,), 0.05, 0) for number in range(200))
    own = replace(profile(batch=64), gradients=gradients)
    result = transferred({}, 1, own=own)
    host_ms, gpu_ms = 200 * 3 * 0.041, 90 / 64
    assert math.isclose(milliseconds(result), host_ms + 10)
    assert result.profile.host_share == 1.0
    assert math.isclose(result.profile.device_share, gpu_ms / host_ms)
    assert any(note.startswith("The host's launches bind (torch2)") for note in result.notes)
    full = transferred({}, 64, own=own).profile
    assert full.device_share == 1.0 and math.isclose(full.host_share, host_ms / 90)


def test_tuned_software_has_no_host_to_wait_for() -> None:
    gradients = tuple(Gradient(f"w{number}", (8,), 0.05, 0) for number in range(200))
    own = replace(profile(batch=64), gradients=gradients)
    result = transfer(own, load_device("v100", SHIPPED), 1, "fp32", {}, "mlperf")
    assert math.isclose(milliseconds(result), 90 / 64 + 10 * 5 / 11)  # its update is one kernel
    assert result.profile.host_share == 0.0


@pytest.mark.parametrize("kind", ["derived", "measured"])
def test_an_update_is_that_of_the_profiles_software(kind: Kind) -> None:
    # Fused, an update passes five times over the parameters instead of eleven.
    own = profile()
    own = replace(own, kinds=own.kinds | {"optimizer_ms": kind})
    result = transfer(own, load_device("v100", SHIPPED), 32, "fp32", {}, "megatron")
    assert result.profile.optimizer_s * 1e3 == pytest.approx(10 * 5 / 11)


def test_what_a_frameworks_own_kernels_take_says_nothing_of_tuned_ones() -> None:
    own, v100 = replace(resnet50(), kinds=resnet50().kinds | {"iteration_ms": "derived"}), "v100"

    def found_ms(measured: str, asked: str) -> float:
        table: Table = {v100: [anchor(32, 200, "resnet50", software=measured)]}
        return milliseconds(transfer(own, load_device(v100, SHIPPED), 32, "fp32", table, asked))

    def converted_ms(measured: str) -> float:
        then, now = (kernels_s("resnet50", v100, "fp32", 32, era) for era in (measured, "mlperf"))
        return 200 * now / then

    for measured in ("torch1.8", "torch2"):
        assert found_ms(measured, measured) == pytest.approx(200)
        # 200 ms are twice what kernels take. That the iteration is alike counts, and no more.
        assert found_ms(measured, "mlperf") < 0.9 * converted_ms(measured)
    assert found_ms("ngc-2020", "mlperf") == pytest.approx(converted_ms("ngc-2020"))


@pytest.mark.parametrize(("software", "held"), [("torch1.8", False), ("ngc-2020", True)])
def test_nor_does_it_hold_tuned_ones_on_the_next_gpu(software: str, held: bool) -> None:
    # 20 ms on a V100, which the A100 succeeds, are less than the A100's kernels take.
    own = replace(resnet50(), kinds=resnet50().kinds | {"iteration_ms": "derived"})
    table: Table = {"v100": [anchor(32, 20, "resnet50", software=software)]}
    found = transfer(own, load_device("a100", SHIPPED), 32, "fp32", table, "mlperf")
    then, now = (kernels_s("resnet50", "v100", "fp32", 32, era) for era in (software, "mlperf"))
    before = transfer(own, load_device("v100", SHIPPED), 32, "fp32", table, "mlperf")
    assert (milliseconds(before) == pytest.approx(20 * now / then)) is held
    assert passes_ms(found) <= passes_ms(before) * (1 + 1e-5)


def test_an_iteration_of_another_era_goes_by_the_kernels_of_both() -> None:
    own, v100 = resnet50(), load_device("v100", SHIPPED)
    table: Table = {"v100": [anchor(64, 200, "resnet50", software="torch1.8")]}
    own = replace(own, kinds=own.kinds | {"iteration_ms": "derived"})
    usual, asked = (transfer(own, v100, 64, "fp32", table, era) for era in ("torch1.8", "torch2"))
    then, now = (kernels_s("resnet50", "v100", "fp32", 64, era) for era in ("torch1.8", "torch2"))
    assert math.isclose(milliseconds(usual), 200)
    assert math.isclose(milliseconds(asked), 200 * now / then)
    assert asked.quantity.kind == "derived"
    assert any("Batch 64 was measured on torch1.8" in note for note in asked.notes)


# By kernels, for a network with a definition


def test_where_nothing_was_measured_its_kernels_and_launches_count() -> None:
    result = transfer(resnet50(), load_device("p100", SHIPPED), 64, "fp32", {})
    assert math.isclose(result.quantity.value, kernels_s("resnet50", "p100", "fp32", 64))


@pytest.mark.parametrize("batch", [1, 32, 64])
def test_one_iteration_of_the_model_elsewhere_corrects_by_its_best_estimate(batch: int) -> None:
    """Simple kriging with one residual r: what both share, over its own variance, times r."""
    there_s = kernels_s("resnet50", "k80", "fp32", 32)
    table: Table = {"k80": [anchor(32, 1.2 * there_s * 1e3, "resnet50")]}
    result = transfer(resnet50(), load_device("p100", SHIPPED), batch, "fp32", table)
    shared = sum(
        size**2
        for size in (
            FITTED_DEVIATIONS.model,
            FITTED_DEVIATIONS.model_precision,
            FITTED_DEVIATIONS.era,
            FITTED_DEVIATIONS.era_family,
        )
    )
    own = shared + sum(
        size**2
        for size in (
            FITTED_DEVIATIONS.cell,
            FITTED_DEVIATIONS.architecture,
            FITTED_DEVIATIONS.gpu_family,
            FITTED_DEVIATIONS.source,
            FITTED_DEVIATIONS.source_gpu,
            REPEATS,
        )
    )
    expected = kernels_s("resnet50", "p100", "fp32", batch) * 1.2 ** (shared / own)
    assert math.isclose(result.quantity.value, expected)


def test_of_a_models_iterations_those_tell_that_have_most_in_common() -> None:
    """Five of an old GPU at the batch that is asked, and one in the same precision at another."""
    old_s = 1.5 * kernels_s("resnet50", "k80", "fp32", 32)
    near_s = 0.8 * kernels_s("resnet50", "h100", "tf32", 512)
    old = [anchor(32, old_s * 1e3, "resnet50", source=f"paper {one}") for one in range(5)]
    near = anchor(512, near_s * 1e3, "resnet50", "tf32", source="another")

    def asked(table: Table) -> float:
        device = load_device("a100-40gb", SHIPPED)
        return transfer(resnet50(), device, 32, "tf32", table).quantity.value

    alone_s = kernels_s("resnet50", "a100-40gb", "tf32", 32)
    assert asked({"k80": old}) > alone_s > asked({"h100": [near]})
    assert asked({"k80": old, "h100": [near]}) < asked({"k80": old}) / 1.05


@pytest.mark.parametrize("use", ["ratio", "local"])
def test_a_figure_slowed_by_its_machine_tells_nothing_of_other_gpus(use: str) -> None:
    table: Table = {"k80": [anchor(32, 9000, "resnet50", use=use)]}
    result = transfer(resnet50(), load_device("p100", SHIPPED), 32, "fp32", table)
    assert math.isclose(result.quantity.value, kernels_s("resnet50", "p100", "fp32", 32))


def test_layers_share_the_total_as_their_kernels_grow() -> None:
    """On a V100 in mixed precision products gain more than normalisation, which moves memory."""
    own = resnet50()
    half = transfer(own, load_device("v100", SHIPPED), 32, "amp-fp16", SHIPPED).profile
    gained = {
        layer.kind: before.forward_s / layer.forward_s
        for before, layer in zip(own.layers, half.layers, strict=True)
        if layer.name in ("layer3.0.conv2", "layer3.0.bn2")
    }
    assert gained["conv"] > gained["batchnorm"] > 1
    ends = [gradient.ready_s for gradient in half.gradients]
    assert math.isclose(max(ends), half.backward_s, rel_tol=1e-6)


def test_a_given_iteration_pins_the_sum_and_keeps_the_shape() -> None:
    pinned = pin_iteration(transferred({}, 32), 0.2)
    assert pinned.profile.iteration_s == pinned.quantity.value == 0.2
    assert math.isclose(pinned.profile.backward_s, 0.06 * 190 / 90)
    assert pinned.profile.optimizer_s == 0.01


# Bad input


def test_batch_below_one_is_refused() -> None:
    with pytest.raises(RequestError, match="batch: 0 is below 1"):
        transferred({}, 0)


def test_precision_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(RequestError, match="k80 has no 'amp-fp16' rate; allowed on this GPU: fp32"):
        transferred({}, 32, gpu="k80", precision="amp-fp16")


def test_software_that_nobody_knows_is_refused() -> None:
    with pytest.raises(RequestError, match=r"software: no 'torch3'; did you mean 'torch2'"):
        transfer(profile(), load_device("v100", SHIPPED), 32, "fp32", {}, "torch3")


# Judged without its own source


def own_profile(name: str) -> Profile:
    """Return a profile that ships."""
    return read_profile(Path(SHIPPED.files("models")[name]))


def test_a_profiles_own_total_gives_way_to_others_where_its_owner_is_left_out() -> None:
    device, own = load_device("v100-pcie", SHIPPED), own_profile("bert-large.v100-pcie.fp32.b8")
    known, others = (
        transfer(own, device, own.batch, "fp32", Catalog(None, without))
        for without in ((), {"hkbu-hpml"})
    )
    assert known.quantity.source.startswith("HKBU-HPML")
    assert "HKBU-HPML" not in others.quantity.source
    assert others.profile.iteration_s != pytest.approx(known.profile.iteration_s, rel=1e-3)


def test_a_model_that_nobody_else_measured_goes_by_its_kernels_without_its_source() -> None:
    left_out = Catalog(None, {"vineeths96"})
    device, own = load_device("v100", left_out), own_profile("resnet50-cifar.v100.fp32.b128")
    found = transfer(own, device, own.batch, "fp32", left_out)
    assert found.notes[0].startswith("No iteration of resnet50-cifar on v100 in fp32 is known")
    assert "vineeths96" not in " ".join(found.notes)
    by_kernels = kernels_s("resnet50-cifar", "v100", "fp32", own.batch)
    # Two deviations of what a model on a GPU may differ from its kernels.
    assert abs(math.log(found.quantity.value / by_kernels)) < 2 * math.hypot(
        *FITTED_DEVIATIONS._replace(batch=0)
    )
