"""Models that are kept in 16 bits whole: parameters, gradients and the optimizer's state."""

from __future__ import annotations

from typing import Any

import pytest

from perfsim.compute.device import load_device
from perfsim.compute.execution import EXECUTIONS
from perfsim.compute.kernel_time import UPDATES, ModelTime, kernel_rates, model_time
from perfsim.compute.memory import OPTIMIZER_STATES, REPLICATED, StateShares, state_bytes
from perfsim.compute.work import model_work
from perfsim.errors import RequestError
from perfsim.memory import memory_use
from perfsim.methods import method_class, method_names
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

MODEL = "llama3.2-1b"


def asked(**fields: Any) -> dict[str, Any]:
    """Return a question of Llama 3.2 1B on 8 H100 in bf16, all of it kept in 16 bits."""
    usual = {"model": MODEL, "gpus": 8, "node": "dgx-h100", "batch": 2, "seq": 2048}
    return usual | {"precision": "bf16", "master_weights": False} | fields


def answer(**fields: Any) -> Prediction:
    return predict(make_scenario(asked(**fields)), SHIPPED)


def times(era: str, optimizer: str | None = None) -> tuple[ModelTime, ModelTime]:
    """Return the model's time on an H100 without master weights, and with them."""
    device = load_device("h100", SHIPPED)

    def found(master_weights: bool) -> ModelTime:
        rates = kernel_rates(device, "amp-bf16", era, autocast=False, master_weights=master_weights)
        return model_time(MODEL, 2048, 2, rates, optimizer=optimizer and UPDATES[optimizer])

    return found(False), found(True)


# By hand


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused", "momentum", "lamb"])
@pytest.mark.parametrize("era", ["torch1.8", "torch2", "torch2-compiled", "megatron"])
def test_an_update_moves_half_the_bytes_and_nothing_is_cast(era: str, optimizer: str) -> None:
    narrow, usual = times(era, optimizer)
    assert narrow.update_s == pytest.approx(usual.update_s / 2)
    # The weight and its gradient: 4 and 2 bytes each, at the bandwidth that kernels reach.
    device = load_device("h100", SHIPPED)
    moves = kernel_rates(device, "amp-bf16", era).bytes_per_s
    parameters = model_work(MODEL, 2048, era).parameters
    assert usual.passes_s - narrow.passes_s == pytest.approx(12 * parameters / moves)


@pytest.mark.parametrize(
    ("optimizer", "sharding", "each"),
    [
        ("adamw", REPLICATED, 2 + 2 + 2 * 2),
        ("sgd", REPLICATED, 2 + 2),
        ("momentum", REPLICATED, 2 + 2 + 2),
        ("adam-8bit", REPLICATED, 2 + 2 + 2),  # two moments of a byte each, as beside fp32
        ("adamw", StateShares(buckets=True), 8 + 2),  # DDP's buckets are of the gradients' type
        ("adamw", StateShares(1 / 8, 1 / 8, 1 / 8), 1),
    ],
)
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_state_is_so_many_bytes_a_parameter(
    precision: str, optimizer: str, sharding: StateShares, each: float
) -> None:
    found = state_bytes(1e9, precision, optimizer, sharding, master_weights=False)
    assert found.held == pytest.approx(each * 1e9, rel=0.005)
    assert found.copies == 0  # nothing is kept narrower beside it
    step = OPTIMIZER_STATES[optimizer].temporary / 2 * 1e9
    assert found.step == step * sharding.optimizer


def test_a_unit_is_gathered_and_sent_in_16_bits() -> None:
    sharding = StateShares(1 / 8, 1 / 8, 1 / 8, unit=1e8, root=2e8)
    found = state_bytes(1e9, "bf16", "adamw", sharding, master_weights=False)
    assert found.copies == 2 * (2 * 1e8 + 2e8)
    assert found.messages == (2 + 2) * 1e8


def test_fp32_is_kept_as_ever() -> None:
    usual = state_bytes(1e9, "fp32", "adamw")
    assert state_bytes(1e9, "fp32", "adamw", master_weights=False) == usual


def test_bytes_sent_are_those_of_16_bits() -> None:
    def sent(**fields: Any) -> float:
        return float(answer(**fields).to_dict()["communication"]["bytes_per_gpu"])

    # A ring of 8 sends 7/8 of the parameters twice; FSDP gathers twice and scatters once.
    parameters = model_work(MODEL, 2048, "torch2").parameters
    assert sent(method="ddp") == pytest.approx(7 / 8 * 2 * 2 * parameters, rel=1e-3)
    assert sent(method="fsdp") == pytest.approx(7 / 8 * 3 * 2 * parameters, rel=1e-3)
    assert sent(method="ddp", reduce_dtype="bf16") == sent(method="ddp")


# Laws


@pytest.mark.parametrize("era", list(EXECUTIONS))
def test_no_era_is_slower_without_master_weights(era: str) -> None:
    narrow, usual = times(era)
    assert narrow.iteration_s <= usual.iteration_s


@pytest.mark.parametrize("fields", [{"method": "ddp"}, {"method": "fsdp"}, {"tp": 2, "batch": 1}])
@pytest.mark.parametrize("model", ["gpt2", "bert-large", MODEL, "vit-b16"])
def test_iterations_take_less_time_and_memory(model: str, fields: dict[str, Any]) -> None:
    fields = {"model": model, "seq": None, **fields}
    wide = asked(master_weights=True, autocast=False, **fields)
    narrow = asked(**fields)
    before, after = (predict(make_scenario(one), SHIPPED) for one in (wide, narrow))
    assert after.iteration_s < before.iteration_s
    kept = [memory_use(resolve(make_scenario(one), SHIPPED)).parts for one in (wide, narrow)]
    states = [parts["parameters"] + parts["optimizer"] for parts in kept]
    assert states[1] <= states[0] / 2


# What is refused


@pytest.mark.parametrize(
    "method", [name for name in method_names() if method_class(name).keeps_half]
)
def test_methods_that_keep_an_fp32_copy_refuse_it(method: str) -> None:
    with pytest.raises(RequestError, match="keeps a copy of the parameters in fp32") as error:
        answer(method=method)
    assert error.value.field == "master_weights"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"precision": "fp32"}, "in fp32 all is kept in fp32"),
        ({"precision": "tf32"}, "in tf32 all is kept in fp32"),
        ({"autocast": True}, "autocast casts the values of a model in fp32"),
    ],
)
def test_it_has_no_meaning_where_values_are_fp32(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why) as error:
        answer(**fields)
    assert error.value.field == "master_weights"


# PyTorch's own


@pytest.mark.torch
def test_pytorch_keeps_adamws_state_as_wide_as_the_parameters() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(300, 200, bias=False).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 300, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    tensors = [model.weight, model.weight.grad]
    kept = [state for one in optimizer.state.values() for state in one.values() if state.dim()]
    found = sum(one.numel() * one.element_size() for one in (*tensors, *kept))
    assert found == state_bytes(300 * 200, "bf16", "adamw", master_weights=False).held
