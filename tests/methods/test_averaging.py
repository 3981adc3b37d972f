"""Methods that average now and then or late: the time of an iteration by hand, and memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.averaged import SLOW, mean_ms, pairs, plans, times
from support.builders import profile


def test_cpsgd_exposes_one_averaging_an_interval() -> None:
    # Pack 2 MB: 4 passes 8 us, 2 launches 20 us; all-reduce 9.
    assert times(plans("cpsgd", {})) == [
        (3, pytest.approx(42)),
        (1, pytest.approx(42 + 0.028 + 9)),
    ]
    assert times(plans("cpsgd", {"interval": 1})) == [(1, pytest.approx(51.028))]


def test_cpsgd_of_gradients_packs_and_unpacks() -> None:
    # 2 passes 4 us, a launch 10 us; all-reduce 9, beside which the host goes through the tensors;
    # 4 passes 8 us.
    options = {"exchange": "gradients", "interval": 2}
    local, exchange = times(plans("cpsgd", options))
    assert local == (1, pytest.approx(42))
    assert exchange == (1, pytest.approx(42 + 0.014 + 9 + 0.008))


@pytest.mark.parametrize(
    ("options", "sent"),
    # 500 000 values among 4: qsgd of 6 bits sums in 8 (4 x 31 < 128) after a norm of 4 B; Rand-k
    # sends 4 B of each 1 % of them; max-norm gathers 4 B of each rank and sends 4 B a value, at two
    # scales a byte twice. A ring sends 3/2 n.
    [
        ({"compress": "qsgd", "bits": 6}, 1.5 * (500_000 + 4)),
        ({"compress": "qsgd", "bits": 8}, 1.5 * (2_000_000 + 4)),
        ({"compress": "qsgd", "bits": 6, "second_bits": 10}, 1.5 * (2 * 500_000 + 4)),
        ({"compress": "randk", "density": 0.01}, 1.5 * 4 * 5000),
        ({"compress": "randk_maxnorm", "values": 5000}, 1.5 * 4 * 5000 + 3 * 4),
        ({"compress": "randk_maxnorm", "values": 5000, "two_scale": True}, 1.5 * 2 * 5000 + 3 * 4),
    ],
)
def test_cpsgd_compresses_exchanged_gradients(options: dict[str, Any], sent: float) -> None:
    found = plans("cpsgd", options | {"exchange": "gradients", "interval": 2})
    assert [plan.sent_bytes for plan in found] == [0, pytest.approx(sent)]


def test_kernels_cost_what_they_were_measured_to_on_one_gpu() -> None:
    # On one GPU 14 us to pack, and 60 us of launches to write back, which nothing hides: given as
    # 148 us all kernels take twice as long. Here the all-reduce hides what the host does.
    options = {"exchange": "gradients", "interval": 2}
    found = plans("cpsgd", options, kernels_s=148e-6)
    assert times(found) == [(1, pytest.approx(42)), (1, pytest.approx(42 + 0.028 + 9 + 0.016))]
    assert any("single_gpu_kernels" in term.quantity.source for _, term in found[1].terms)
    with pytest.raises(RequestError, match="runs no kernels of its own"):
        plans("wfbp", {}, kernels_s=1e-3)


def test_cpsgd_compresses_no_parameters() -> None:
    with pytest.raises(RequestError, match=r"options\.compress: qsgd is for gradients"):
        load_method("cpsgd", {"compress": "qsgd"})


def test_local_sgd_averages_tensor_by_tensor() -> None:
    # Each tensor in turn: cloned, 2 passes 2 us and a launch; 7.5; divided, the same again.
    found = plans("localsgd", {"interval": 3})
    assert times(found) == [(2, pytest.approx(42)), (1, pytest.approx(42 + 2 * 7.524))]
    assert mean_ms(plans("localsgd", {"interval": 4}, fusion="whole")) == pytest.approx(
        mean_ms(plans("cpsgd", {}))
    )


def test_fleet_averages_differences_two_at_a_time() -> None:
    # Differences of 3 passes, 3 us and a launch each. The all-reduces begin 13 us apart and have
    # 6 ms of latency at once; their 1.5 ms of bytes share the link: 9 ms from the first's begin.
    # Then 7 passes of 2 MB, 14 us, in 6 launches.
    found = plans("localsgd", {"interval": 3, "variant": "fleet"})
    assert times(found) == [(2, pytest.approx(42)), (1, pytest.approx(42 + 0.013 + 9 + 0.074))]
    sent = [plan.sent_bytes for plan in found]
    assert sent == [plan.sent_bytes for plan in plans("localsgd", {"interval": 3})]


def test_fleet_keeps_a_snapshot_and_none_of_ddps_buckets() -> None:
    used = {}
    for variant in ("accelerate", "fleet"):
        asked = {"gpus": 16, "method": "localsgd", "options": {"variant": variant}}
        found = predict(make_scenario({"model": "resnet50"} | asked)).memory_bytes
        used[variant] = found["method"], found["messages"]
    model = 4 * 25_557_032
    assert used == {"accelerate": (0, model), "fleet": (model, 0)}
    with pytest.raises(RequestError, match="local_gradients"):
        load_method("localsgd", {"variant": "fleet", "local_gradients": True})


def test_local_sgd_reduces_gradients_inside_the_node_where_asked() -> None:
    # One bucket of DDP, 2 MB: divided, 4 us and a launch; in the node 2 hops of 1 us and 2 MB at 10
    # GB/s. Averaging costs what it costs without.
    between, exchange = times(plans("localsgd", {"local_gradients": True, "interval": 3}, pairs()))
    assert between == (2, pytest.approx(42 + 0.014 + 0.202))
    local, averaged = times(plans("localsgd", {"interval": 3}, pairs()))
    assert exchange[1] - between[1] == pytest.approx(averaged[1] - local[1])
    # PyTorch's hook with subgroups does the same in between.
    hook = times(plans("postlocalsgd", {"dense_share": 0, "interval": 3}, pairs()))[0]
    assert hook == (pytest.approx(2 / 3), pytest.approx(between[1]))
    # One GPU a node has nothing to reduce inside.
    alone, plain = (plans("localsgd", {"local_gradients": value}) for value in (True, False))
    assert times(alone) == times(plain)


def test_adpsgd_takes_the_variance_each_time() -> None:
    # After the averaging 4 passes 8 us, 2 launches 20 us, and 4 B by all.
    extra = 0.028 + 9 + 0.028 + 6 + 6e-6
    found = plans("adpsgd", {"interval": 5})
    assert times(found) == [(4, pytest.approx(42)), (1, pytest.approx(42 + extra))]
    # 100 at every 2nd, 300 at every 6th: 50 + 50 of 400 exchange.
    uneven = plans("adpsgd", {"schedule": "2x100,6x300"})
    assert mean_ms(uneven) == pytest.approx(42 + extra / 4)


def test_adpsgd_refuses_what_is_no_schedule() -> None:
    with pytest.raises(RequestError, match=r"options\.schedule: '4,8' is not allowed"):
        load_method("adpsgd", {"schedule": "4,8"})


def test_post_local_sgd_weights_its_phases() -> None:
    # DDP: two divisions, 2 passes 2 us and a launch each, and the second all-reduce, 7.5, is
    # exposed. Then 1 of 4 averages.
    found = plans("postlocalsgd", {"dense_share": 0.5}, fusion="none")
    assert times(found) == [
        (0.5, pytest.approx(49.5 + 2 * 0.012)),
        (0.375, pytest.approx(42)),
        (0.125, pytest.approx(51.028)),
    ]
    assert len(plans("postlocalsgd", {"dense_share": 1})) == 1
    assert mean_ms(plans("postlocalsgd", {"dense_share": 0})) == pytest.approx(
        mean_ms(plans("cpsgd", {}))
    )


def test_post_local_sgd_reduces_gradients_inside_the_node() -> None:
    # In the node 2 hops of 1 us and 1 MB at 10 GB/s for the last bucket; two divisions of 12 us.
    _, apart, _ = plans("postlocalsgd", {}, pairs(), fusion="none")
    assert times([apart])[0][1] == pytest.approx(42.102 + 2 * 0.012)
    assert apart.calls == 2
    _, alone, _ = plans("postlocalsgd", {"local_gradients": False}, pairs())
    assert alone.calls == 0 and times([alone])[0][1] == pytest.approx(42)


def test_a_late_gradient_hides_behind_an_iteration() -> None:
    # Swap 2 MB: 8 passes 16 us, 8 launches 80 us.
    assert mean_ms(plans("lbsgd", {})) == pytest.approx(42.096)
    # Else the swap and the all-reduce follow each other: 6 + 3 MB at 20 MB/s.
    assert mean_ms(plans("lbsgd", {}, SLOW)) == pytest.approx(156.096)
    assert mean_ms(plans("lbsgd", {}, overlap=False)) == pytest.approx(42.096 + 9)


def test_delayed_averaging_hides_behind_the_interval() -> None:
    # Pack 28 us as it begins; merge 5 passes 10 us and 4 launches 40 us.
    assert mean_ms(plans("dasgd", {"interval": 2})) == pytest.approx(42.039)
    # 156 from 0.028 on, past the update that waits for it; then merge.
    slow = 0.028 + 156 + 0.05
    assert mean_ms(plans("dasgd", {"interval": 2}, SLOW)) == pytest.approx(slow / 2)
    one_late = plans("dasgd", {"interval": 2, "late": 1}, SLOW)
    assert mean_ms(one_late) == pytest.approx((slow + 42) / 2)
    assert mean_ms(plans("dasgd", {"interval": 1}, SLOW)) == pytest.approx(slow)
    alone = mean_ms(plans("dasgd", {"interval": 2}, overlap=False))
    # It begins once the backward pass is over: 2 of 9 go by beside the update.
    assert alone == pytest.approx((84.078 + 7) / 2)


def test_delayed_averaging_merges_before_it_begins_again() -> None:
    with pytest.raises(RequestError, match=r"options\.late: 3 is over interval=2"):
        load_method("dasgd", {"interval": 2, "late": 3})


@pytest.mark.parametrize("name", ["cpsgd", "localsgd", "adpsgd", "postlocalsgd", "dasgd"])
def test_longer_intervals_never_take_longer(name: str) -> None:
    means = [mean_ms(plans(name, {"interval": interval}, SLOW)) for interval in (1, 2, 3, 8)]
    assert all(after < before for before, after in pairwise(means))


@pytest.mark.parametrize(
    ("name", "options", "share"),
    [
        ("cpsgd", {}, 0),
        ("lbsgd", {}, 1),
        ("dasgd", {}, 1),
        ("sgp", {}, 3),
        ("dpsgd", {"topology": "all"}, 1),
    ],
)
def test_what_stays_in_memory(name: str, options: dict[str, Any], share: float) -> None:
    gradients = profile([(500, 500)] * 2, [0.1, 0.2]).gradients
    assert load_method(name, options).memory_bytes(gradients, 4) == share * 2e6


@pytest.mark.parametrize("name", ["cpsgd", "localsgd", "adpsgd", "dasgd", "dpsgd"])
def test_parameters_stay_fp32_where_gradients_are_sent_in_16_bits(name: str) -> None:
    wide, narrow = (
        predict(make_scenario({"model": "resnet50", "gpus": 16, "method": name} | more))
        for more in ({}, {"reduce_dtype": "bf16"})
    )
    assert narrow.communication["bytes_per_gpu"] == wide.communication["bytes_per_gpu"]
    assert narrow.memory_bytes["method"] == wide.memory_bytes["method"]


def test_post_local_sgd_sends_its_gradients_in_16_bits_and_its_models_in_fp32() -> None:
    # Four nodes of four: half of all iterations send gradients by all, the others in the node; a
    # quarter of those average the model.
    asked = {"model": "resnet50", "gpus": 16, "net": "10gbe", "method": "postlocalsgd"}
    found = predict(make_scenario(asked | {"reduce_dtype": "bf16"}))
    n = 25_557_032
    gradients = 2 * n * (0.5 * 2 * 15 / 16 + 0.5 * 2 * 3 / 4)
    models = 4 * n * 0.125 * 2 * 15 / 16
    assert found.communication["bytes_per_gpu"] == pytest.approx(gradients + models, rel=1e-9)
