"""GPUs of a node that slow each other: by hand, by law, and where it does not apply."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.node_load import INPUTS, node_load
from perfsim.errors import RequestError
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED


def _scenario(**fields: object) -> dict[str, object]:
    asked = {"model": "resnet50", "gpu": "v100", "gpus": 8, "gpus_per_node": 8, "net": "ib100"}
    return asked | fields


def test_a_doubling_costs_the_same_share_of_both_passes() -> None:
    """With messages behind the passes, which slow computation beside them by themselves."""
    asked = _scenario(single_gpu="100ms", overlap=False)
    alone = predict(make_scenario(asked | {"gpus": 1, "gpus_per_node": 1}))
    eight = predict(make_scenario(asked))
    share = INPUTS["storage"].share
    for part in ("forward", "backward"):
        assert eight.breakdown_s[part] == pytest.approx(
            alone.breakdown_s[part] * (1.0 + 3.0 * share), rel=1e-9
        )
    # The update is the GPU's own.
    assert eight.breakdown_s["update"] == pytest.approx(alone.breakdown_s["update"], rel=1e-9)


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_costs_what_its_sources_say(name: str) -> None:
    load = INPUTS[name]
    assert 0.0 <= load.low <= load.share <= load.high
    assert load.source
    setup = resolve(make_scenario(_scenario(input=name)), SHIPPED)
    assert setup.node_load == pytest.approx(1.0 + 3.0 * load.share)


@given(st.sampled_from(sorted(INPUTS)), st.integers(1, 72), st.integers(1, 72))
def test_more_gpus_of_a_node_never_slow_less(name: str, gpus: int, more: int) -> None:
    assert node_load(name, 1) == 1.0
    assert node_load(name, gpus + more) > node_load(name, gpus)
    assert node_load(name, 2 * gpus) - node_load(name, gpus) == pytest.approx(INPUTS[name].share)
    assert math.isfinite(node_load(name, gpus))


def test_the_gpus_in_use_of_a_node_count_and_nodes_do_not() -> None:
    one_each = resolve(make_scenario(_scenario(gpus_per_node=1)), SHIPPED)
    two_nodes = resolve(make_scenario(_scenario(gpus=16)), SHIPPED)
    assert one_each.node_load == 1.0
    assert two_nodes.node_load == resolve(make_scenario(_scenario()), SHIPPED).node_load


def test_models_over_text_read_tokens_and_others_storage() -> None:
    words = {"model": "bert-base", "gpu": "v100", "precision": "fp32"}
    assert resolve(make_scenario(_scenario(**words)), SHIPPED).input == "tokens"
    assert resolve(make_scenario(_scenario()), SHIPPED).input == "storage"
    assert resolve(make_scenario(_scenario(input="synthetic")), SHIPPED).input == "synthetic"


def test_computation_that_was_fitted_on_full_nodes_is_not_slowed_again() -> None:
    llama = {"model": "mpt-7b", "gpu": "h100", "net": "ib400", "method": "fsdp", "batch": 1}
    assert resolve(make_scenario(_scenario(**llama)), SHIPPED).node_load == 1.0
    # A time that the user measured on one GPU is.
    given_s = resolve(make_scenario(_scenario(**llama, single_gpu="900ms")), SHIPPED)
    assert given_s.node_load == pytest.approx(1.0 + 3.0 * INPUTS["tokens"].share)


def test_scaling_efficiency_is_over_one_gpu_alone() -> None:
    asked = _scenario(single_gpu="100ms", gpus=8, net="1000Gbit/s,1ns", intra_net="1000GB/s,1ns")
    prediction = predict(make_scenario(asked))
    assert prediction.scaling_efficiency < 1.0 / (1.0 + 2.5 * INPUTS["storage"].share)


def test_the_resolved_scenario_and_a_note_say_what_was_taken() -> None:
    prediction = predict(make_scenario(_scenario()))
    assert prediction.scenario.to_dict()["input"] == "storage"
    (note,) = [note for note in prediction.notes if "Both passes take" in note]
    assert "4.5% longer" in note and "8 GPUs of a node share its host" in note
    alone = predict(make_scenario(_scenario(gpus_per_node=1)))
    assert not [note for note in alone.notes if "Both passes take" in note]


def test_the_gpus_of_a_rack_do_not_share_one_host() -> None:
    """An operating system runs a tray of 4 GPUs of an NVL72, whose links join 64 of them."""
    fields = {"model": "bert-large", "node": "gb200-nvl72"}
    rack, few = (resolve(make_scenario(fields | {"gpus": gpus}), SHIPPED) for gpus in (64, 2))
    assert rack.cluster.gpus_per_node == 64
    assert (rack.gpus_of_host, few.gpus_of_host) == (4, 2)
    assert rack.node_load == pytest.approx(1.0 + 2.0 * INPUTS["tokens"].share)
    (note,) = [note for note in predict(rack.scenario).notes if "Both passes take" in note]
    assert "4 GPUs of a tray share its host" in note


def test_an_unknown_input_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"no 'storag'; did you mean 'storage'\?"):
        make_scenario(_scenario(input="storag"))


def test_sequences_of_unequal_length_are_told_and_can_be_asked_for() -> None:
    asked = {"model": "bert-large", "gpu": "a100", "precision": "amp-fp16", "batch": 32}
    plain = _scenario(**asked, software="mlperf")
    note = "Padding is not computed"
    told = predict(make_scenario(plain))
    assert [one for one in told.notes if note in one]
    varied = predict(make_scenario(plain | {"jitter": "11%"}))
    assert not [one for one in varied.notes if note in one]
    assert varied.iteration_s > 1.05 * told.iteration_s
