"""Kernels on a GPU of round numbers by hand, a model of one layer by closed form, and laws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute import work as work_module
from perfsim.compute.device import Device, load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import (
    Constants,
    ModelTime,
    kernel_rates,
    layer_times,
    model_time,
)
from perfsim.compute.software import ERAS
from perfsim.compute.work import Work, model_work, work_of
from perfsim.errors import RequestError
from perfsim.models import defined_models
from perfsim.models.layers import batchnorm, linear
from perfsim.quantity import Quantity
from support.builders import hand_device
from support.what_ships import SHIPPED

PLAIN = Constants(
    **dict.fromkeys(Constants._fields, 1.0)
    | {"wave": 0.0, "gap_s": 0.0, "layout": 0.0, "kepler": 1.0}
)
"""Kernels that reach the whole rate and bandwidth and take nothing beside their work."""


def device(flops: float = 1e13, bandwidth: float = 1e12, **rates: float) -> Device:
    """Return a GPU with fp32 at 10 TFLOP/s and 1 TB/s, or as asked, and further precisions."""
    made = {
        name.replace("_", "-"): Quantity(rate, "FLOP/s", "derived", "by hand")
        for name, rate in ({"fp32": flops} | rates).items()
    }
    memory = Quantity(bandwidth, "B/s", "derived", "by hand")
    return replace(hand_device(), rates=made, memory_bandwidth=memory, multiprocessors=100.0)


# By hand


def test_a_product_adds_computation_and_movement_by_the_fourth_power() -> None:
    rates = kernel_rates(device(), "fp32", "torch2", PLAIN)
    # 1e10 operations a sample at 1e13: 1 ms; 2.5e8 values of 4 bytes at 1e12: 1 ms.
    work = Work("product", 1e10, 2.5e8)
    assert rates.seconds(work, 1, False) == pytest.approx(1e-3 * 2**0.25)
    assert rates.seconds(work, 7, False) == pytest.approx(7e-3 * 2**0.25)
    weights = Work("product", 1e10, 0.0, weights=2.5e8)
    assert rates.seconds(weights, 2, False) == pytest.approx((2**4 + 1) ** 0.25 * 1e-3)
    # Convolutions overlap the two less: the square.
    assert rates.seconds(work._replace(kind="conv"), 1, False) == pytest.approx(1e-3 * 2**0.5)


def test_the_last_wave_and_what_each_kernel_takes_come_on_top() -> None:
    constants = PLAIN._replace(wave=0.5, gap_s=4e-6)
    rates = kernel_rates(device(), "fp32", "torch2", constants)
    # 100 tiles of 128 x 128 by 1000 at 1e13 operations/s; half of that idle.
    wave_s = 0.5 * 100 * 2 * 128**2 * 1000 / 1e13
    work = Work("product", 1e10, 0.0, inner=1000.0)
    assert rates.seconds(work, 1, False) == pytest.approx(1e-3 + wave_s + 4e-6)
    stream = Work("stream", 0.0, 2.5e8)
    assert rates.seconds(stream, 1, False) == pytest.approx(1e-3 + 4e-6)


def test_half_precision_halves_what_is_moved_but_for_what_stays_in_fp32() -> None:
    rates = kernel_rates(device(amp_fp16=1e14), "amp-fp16", "torch2", PLAIN)
    stream = Work("stream", 0.0, 2.5e8)
    assert rates.seconds(stream, 1, False) == pytest.approx(0.5e-3)
    assert rates.seconds(stream._replace(wide=True), 1, False) == pytest.approx(1e-3)


def test_a_convolution_on_tensor_cores_changes_layouts_unless_it_has_theirs() -> None:
    constants = PLAIN._replace(layout=1.5)
    gpu, work = device(amp_fp16=1e14, tf32=5e13), Work("conv", 0.0, 5e8)
    for era, precision, times in (
        ("torch2", "amp-fp16", 2.5),  # 1 ms and layouts of 1.5 ms
        ("ngc-2020", "amp-fp16", 1.0),
        ("torch2", "fp32", 2.0),  # 4 bytes a value
    ):
        rates = kernel_rates(gpu, precision, era, constants)
        assert rates.seconds(work, 1, False) == pytest.approx(times * 1e-3), (era, precision)


def test_libraries_take_fp32_where_tf32_would_take_longer() -> None:
    """Winograd's convolutions in fp32 may be faster than others on tensor cores."""
    constants = PLAIN._replace(winograd_fp32=8.0, winograd_tf32=1.0)
    rates = kernel_rates(device(tf32=5e13), "tf32", "torch2", constants)
    work = Work("winograd", 8e10, 0.0)
    assert rates.seconds(work, 1, False) == pytest.approx(1e-3)
    assert rates.seconds(work._replace(kind="product"), 1, False) == pytest.approx(1.6e-3)


@pytest.mark.parametrize(
    ("era", "channels", "rate"),
    [
        ("torch2", 16, 160e9),
        ("torch2", 64, 640e9),
        ("torch2", 128, 1e12),
        ("ngc-2020", 16, 1e12),
        ("torch2-compiled", 16, 1e12),
        ("mlperf", 16, 1e12),
    ],
)
def test_a_batch_normalisation_moves_so_much_a_channel(
    era: str, channels: int, rate: float
) -> None:
    """10 GB/s a channel, up to what memory moves; not where channels come last or are fused."""
    passes = execution_of(era).passes.norm
    layer = batchnorm("bn", channels, 1000)
    work = work_of((layer, linear("fc", 8, 8)), era).layers[0]
    rates = kernel_rates(device(), "fp32", era, PLAIN)
    for works, count in ((work.forward, passes[0]), (work.backward, passes[1])):
        moved = 4 * count * layer.outputs
        assert rates.seconds(works[0], 1, False) == pytest.approx(moved / rate)


@pytest.mark.parametrize(
    ("precision", "era", "side", "rate"),
    [
        ("amp-fp16", "torch2", 50_257, 120e12),
        ("amp-fp16", "torch2", 30_522, 240e12),
        ("amp-fp16", "torch2", 50_260, 480e12),
        ("amp-fp16", "torch2", 50_304, 1e15),
        ("tf32", "torch2", 50_257, 120e12),
        ("tf32", "torch2", 50_260, 5e14),
        ("fp32", "torch2", 50_257, 1e13),
        ("amp-fp16", "torch2-compiled", 50_257, 1e15),
        ("amp-fp16", "megatron", 50_257, 1e15),
    ],
)
def test_products_that_tensor_cores_cannot_load_at_once_are_slower(
    precision: str, era: str, side: int, rate: float
) -> None:
    """120 TFLOP/s for each value of a load that the sides divide into, unless software pads."""
    layer = linear("head", 768, side, rows=1000, bias=False)
    rates = kernel_rates(device(amp_fp16=1e15, tf32=5e14), precision, era, PLAIN)
    product = next(work for work in work_of((layer,), era).layers[0].forward)
    free = product._replace(values=0.0, weights=0.0)
    assert rates.seconds(free, 8, False) == pytest.approx(8 * product.flops / rate)


@pytest.mark.parametrize("precision", ["fp8", "nvfp4"])
def test_only_dense_products_have_the_rate_of_narrow_operands(precision: str) -> None:
    gpu = device(amp_bf16=1e14, **{precision: 2e14})
    rates = kernel_rates(gpu, precision, "torch2", PLAIN).flops_per_s
    assert rates["product"] == 2e14
    assert {rates[kind] for kind in ("batched", "conv", "winograd")} == {1e14}
    assert rates["attention"] < 1e14


def test_attention_in_heads_of_64_takes_as_much_longer_as_it_was_measured_to() -> None:
    """FlashAttention 2 on Ampere: 2^0.17 both ways; in Triton all heads alike."""
    gpu = replace(device(amp_bf16=1e13), architecture="Ampere")
    wide = Work("attention", 1e12, 0.0, tokens=2048, head=128)
    for era, longer in (("torch2", 2**0.17), ("composer-2023", 1.0)):
        rates = kernel_rates(gpu, "amp-bf16", era, PLAIN)
        full_s, half_s = (rates.seconds(one, 1, True) for one in (wide, wide._replace(head=64)))
        assert half_s / full_s == pytest.approx(longer)
        assert rates.seconds(wide._replace(head=256), 1, True) == full_s


# By closed form: a network of one dense layer, 1000 to 1000 for one row

PRODUCT_S = ((2e6 / 1e13) ** 4 + (4 * (2000 + 1e6) / 1e12) ** 4) ** 0.25
"""One of its three products in fp32 at batch 1."""
LOSS_S = (4 * 4 * 1000 / 1e12, 5 * 4 * 1000 / 1e12)
"""Passes of the loss over its outputs, forward and backward, in eager PyTorch."""
FUSED_LOSS_S = (4 * 4 * 1000 / 1e12, 3 * 4 * 1000 / 1e12)
"""The same in other software."""


@pytest.fixture
def one_layer(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Make the network ``one`` and return its passes on the plain GPU at batch 1 [s]."""
    layers = (linear("fc", 1000, 1000, bias=False),)
    monkeypatch.setattr(work_module, "packed_model", lambda model, tokens, document: layers)
    work_module.model_work.cache_clear()
    yield 3 * PRODUCT_S + sum(LOSS_S)
    work_module.model_work.cache_clear()


def test_an_iteration_is_the_later_of_gpu_and_host_in_passes_and_update(one_layer: float) -> None:
    rates = kernel_rates(device(), "fp32", "torch2", PLAIN)
    found = model_time("one", None, 1, rates)
    update_s = 4 * 11 * 1e6 / 1e12
    era = execution_of("torch2")
    assert found.passes_s == pytest.approx(one_layer)
    assert found.update_s == pytest.approx(update_s)
    # Three products, and five operations of the loss.
    assert found.host_passes_s == pytest.approx(8 * era.op_s)
    assert found.host_update_s == pytest.approx(era.tensor_s)
    expected = max(one_layer, 8 * era.op_s) + max(update_s, era.tensor_s)
    assert found.iteration_s == pytest.approx(expected)
    assert layer_times("one", None, 1, rates) == [
        pytest.approx((PRODUCT_S + LOSS_S[0], 2 * PRODUCT_S + LOSS_S[1]))
    ]


def test_a_captured_graph_leaves_the_gpu_alone_and_forward_and_backward_no_update(
    one_layer: float,
) -> None:
    rates = kernel_rates(device(), "fp32", "mlperf", PLAIN)
    found = model_time("one", None, 1, rates, update=False)
    assert found.host_s == 0 and found.update_s == 0
    fused = one_layer - sum(LOSS_S) + sum(FUSED_LOSS_S)
    assert found.iteration_s == found.device_s == pytest.approx(fused)


def test_mixed_precision_casts_weights_and_gradients(one_layer: float) -> None:
    gpu = device(amp_fp16=1e13)
    rates = kernel_rates(gpu, "amp-fp16", "mlperf", PLAIN)
    found = model_time("one", None, 1, rates)
    product_s = ((2e6 / 1e13) ** 4 + (2 * (2000 + 1e6) / 1e12) ** 4) ** 0.25
    # 12 bytes for each of a million parameters, the loss in fp32.
    expected = 3 * product_s + sum(FUSED_LOSS_S) + 12e-6
    assert found.passes_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (ModelTime(3.0, 1.0, 2.0, 0.5), 4.0),
        (ModelTime(3.0, 1.0, 5.0, 0.5), 6.0),
        (ModelTime(3.0, 1.0, 2.0, 2.5), 5.5),
        (ModelTime(3.0, 1.0, 5.0, 2.5), 7.5),
    ],
)
def test_both_passes_and_the_update_wait_for_the_later(times: ModelTime, expected: float) -> None:
    assert times.iteration_s == expected


@pytest.mark.parametrize(("era", "sgd", "adam"), [("megatron", 5, 7), ("torch2", 11, 20)])
def test_an_update_passes_over_the_parameters_by_its_optimizer(
    era: str, sgd: int, adam: int
) -> None:
    rates = kernel_rates(device(), "fp32", era, PLAIN)
    for model, passes in (("resnet50", sgd), ("bert-base", adam)):
        parameters = model_work(model, None, era).parameters
        found = model_time(model, None, 1, rates)
        assert found.update_s == pytest.approx(4 * passes * parameters / 1e12)


# By law

EVERY_MODEL = st.sampled_from(defined_models())
EVERY_ERA = st.sampled_from(list(ERAS))


@given(model=EVERY_MODEL, era=EVERY_ERA, gpu=st.sampled_from(["k80", "v100", "a100", "h100"]))
def test_a_larger_batch_takes_longer_but_not_for_a_sample(model: str, era: str, gpu: str) -> None:
    loaded = load_device(gpu, SHIPPED)
    for precision in loaded.rates:
        rates = kernel_rates(loaded, precision, era)
        seconds = {
            batch: model_time(model, None, batch, rates).iteration_s
            for batch in (1, 2, 3, 8, 64, 1000)
        }
        for (small, short), (large, long) in pairwise(seconds.items()):
            assert 0 < short <= long * (1 + 1e-12)
            assert long / large <= short / small * (1 + 1e-12)


@given(
    model=EVERY_MODEL,
    era=EVERY_ERA,
    batch=st.integers(1, 512),
    rate=st.floats(1e12, 1e15),
    bandwidth=st.floats(1e11, 1e13),
    times=st.floats(1.0, 10.0),
)
def test_more_bandwidth_or_rate_is_never_slower(
    model: str, era: str, batch: int, rate: float, bandwidth: float, times: float
) -> None:
    def seconds(flops: float, bytes_per_s: float) -> float:
        rates = kernel_rates(device(flops, bytes_per_s), "fp32", era)
        return model_time(model, None, batch, rates).iteration_s

    base = seconds(rate, bandwidth) * (1 + 1e-9)
    assert seconds(rate * times, bandwidth) <= base
    assert seconds(rate, bandwidth * times) <= base
    assert seconds(rate * times, bandwidth * times) >= base / times * (1 - 1e-6)


@given(model=EVERY_MODEL, era=EVERY_ERA, batch=st.integers(1, 512))
def test_layers_add_up_to_the_passes(model: str, era: str, batch: int) -> None:
    rates = kernel_rates(device(), "fp32", era)
    layers = layer_times(model, None, batch, rates)
    total = sum(forward + backward for forward, backward in layers)
    assert total == pytest.approx(model_time(model, None, batch, rates).passes_s)


@pytest.mark.parametrize("model", defined_models())
def test_tuning_never_takes_longer(model: str) -> None:
    """Compiled no longer than eager, captured and fused no longer than compiled."""
    loaded = load_device("a100", SHIPPED)
    for precision in ("fp32", "tf32", "amp-bf16"):
        seconds = [
            model_time(model, None, 32, kernel_rates(loaded, precision, era)).iteration_s
            for era in ("torch2", "torch2-compiled", "mlperf")
        ]
        assert seconds == sorted(seconds, reverse=True), precision


# Bad input


def test_a_precision_or_era_that_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match="hand has no 'tf32' rate"):
        kernel_rates(device(), "tf32", "torch2")
    with pytest.raises(RequestError, match="did you mean 'torch2'"):
        kernel_rates(device(), "fp32", "torch3")
