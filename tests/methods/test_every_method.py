"""Laws that every file of perfsim/methods keeps; a new method is held to them as it lands."""

from __future__ import annotations

import inspect
from functools import cache
from math import isfinite

import pytest

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import COMPRESSING, FAMILIES, Method, MethodContext
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.describe import sections
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.run import run
from support.builders import profile
from support.one_matrix import COLUMNS, ROWS, by_formula, mean, one_matrix

PARTS = ("Bytes a rank", "Memory", "Left out")
"""What a method's docstring says besides what is sent, when and in which order."""


@cache
def predicted(method: str, gpus: int = 16, net: str = "10gbe") -> Prediction:
    """Return the prediction for ResNet-50, or BERT-Base where the method refuses that."""
    return predict(make_scenario({"model": "resnet50", "gpus": gpus, "net": net, "method": method}))


def seconds(plans: list[CostedGraph]) -> float:
    """Return the mean iteration [s]."""
    total = sum(plan.iterations for plan in plans)
    return sum(plan.count * float(run(plan).period_s) for plan in plans) / total


@pytest.mark.parametrize("name", method_names())
def test_it_says_what_it_is(name: str) -> None:
    cls = method_class(name)
    text = " ".join((inspect.getdoc(cls) or "").split())
    missing = [part for part in PARTS if f"{part}" not in text]
    assert not missing, f"{name}'s docstring does not say: {', '.join(missing)}"
    assert cls.family in FAMILIES
    assert len(cls.summary) <= 90 and "\n" not in cls.summary
    assert any(year in cls.citation for year in map(str, range(1990, 2027)))
    assert all(field.description for field in cls.model_fields.values())


TENSOR_BY_TENSOR = [
    name
    for name in method_names()
    if issubclass(method_class(name), GathersThroughHorovod)
    and method_class(name)().default_fusion() == "none"
]
"""Methods whose default form is the loop of a library that gathers through Horovod."""


@pytest.mark.parametrize("name", TENSOR_BY_TENSOR)
def test_a_loop_over_tensors_after_the_backward_pass_is_named_first(name: str) -> None:
    """A user of a hook that compresses DDP's buckets must see that this is not it."""
    first = sections(inspect.getdoc(method_class(name)) or "")["kernels"].split(". ")[0]
    assert "GRACE" in first and "each tensor by itself, decoded after the backward pass" in first


@pytest.mark.parametrize("name", method_names())
def test_its_annotations_are_no_texts(name: str) -> None:
    """Pydantic would evaluate each text anew, and commands that load all methods start later."""
    annotations = vars(method_class(name)).get("__annotations__", {})
    assert not [field for field, kind in annotations.items() if isinstance(kind, str)]


OF_BUCKETS = [name for name in method_names() if method_class(name).stages is not Method.stages]
"""Methods that say what they do with one bucket."""


@pytest.mark.parametrize("name", OF_BUCKETS)
def test_buckets_of_the_same_shapes_have_the_same_stages(name: str) -> None:
    method, world = load_method(name, {}), MethodContext(8, profile=profile([9], [0.02]))
    shapes = [(64, 32), (128,), (8, 4, 3, 3)]
    early = [Gradient(f"early {at}", shape, 0.001, 0) for at, shape in enumerate(shapes)]
    late = [Gradient(f"late {at}", shape, 0.02, 1 + at) for at, shape in enumerate(shapes)]
    for count in (1, 3):
        one, other = Bucket.of(early[:count]), Bucket.of(late[:count])
        for iteration in method.rounds()[-1].iterations:
            assert method.stages(one, world, iteration) == method.stages(other, world, iteration)


@pytest.mark.parametrize("name", method_names())
def test_one_gpu_sends_nothing_and_runs_kernels_only_where_said(name: str) -> None:
    found = predicted(name, 1)
    assert found.communication["bytes_per_gpu"] == found.communication["calls"] == 0
    own_s = found.breakdown_s["compression"] + found.breakdown_s["second_order"]
    assert (own_s > 0) == load_method(name, {}).works_alone
    assert found.iteration_s == pytest.approx(predicted("ssgd", 1).iteration_s + own_s, rel=1e-9)


@pytest.mark.parametrize("name", method_names())
def test_time_and_bytes_are_finite_and_repeatable(name: str) -> None:
    found = predicted(name)
    again = predict(
        make_scenario({"model": "resnet50", "gpus": 16, "net": "10gbe", "method": name})
    )
    assert isfinite(found.iteration_s) and found.iteration_s > 0
    assert found.communication["bytes_per_gpu"] > 0
    assert again.to_dict() == found.to_dict()
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    low, high = found.iteration_s_interval
    assert low <= found.iteration_s <= high


@pytest.mark.parametrize("name", method_names())
def test_memory_is_accounted(name: str) -> None:
    method = load_method(name, {})
    one = profile([(ROWS, COLUMNS)], [0.010])
    for ranks in (2, 16):
        extra = method.memory_bytes(one.gradients, ranks)
        assert isfinite(extra) and extra >= 0
        kept_share = method.kept_share(MethodContext(ranks, profile=one))
        assert set(kept_share) == {"parameters", "gradients", "optimizer"}
        assert all(0 < share <= 1 for share in kept_share.values())


KEEPING = [
    name
    for name in method_names()
    if method_class(name).family in COMPRESSING and name != "demo"  # whose momentum is as wide
]
"""Methods whose errors and momenta are fp32."""


@pytest.mark.parametrize("name", KEEPING)
def test_what_it_keeps_is_fp32_whatever_type_gradients_are_sent_in(name: str) -> None:
    wide = profile([(ROWS, COLUMNS)], [0.010])
    narrow = wide.sent_in(2.0)
    method = load_method(name, {})
    assert method.memory_bytes(narrow.gradients, 8) == method.memory_bytes(wide.gradients, 8)


@pytest.mark.parametrize("name", method_names())
@pytest.mark.parametrize("ranks", [2, 16])
def test_bytes_on_the_wire_are_the_documented_formula(name: str, ranks: int) -> None:
    method = load_method(name, {})
    try:
        plans = one_matrix(method, ranks)
    except RequestError:
        pytest.skip(f"{name} does not run on {ranks} ranks of one matrix")
    assert mean(plans, "sent_bytes") == pytest.approx(by_formula(method, ranks), rel=1e-9)


@pytest.mark.parametrize("name", method_names())
def test_a_faster_network_is_never_slower(name: str) -> None:
    method = load_method(name, {})
    if method.decides or method.order == "priority":
        pytest.skip("what it does depends on what things cost")
    slow, fast, faster = (
        seconds(one_matrix(method, 8, link)) for link in ("1GB/s,20us", "2GB/s,20us", "2GB/s,5us")
    )
    assert faster <= fast * (1 + 1e-9) and fast <= slow * (1 + 1e-9)


@pytest.mark.parametrize("name", method_names())
def test_bytes_do_not_depend_on_the_network(name: str) -> None:
    if load_method(name, {}).decides:
        pytest.skip("what it does depends on what things cost")
    found, other = (predicted(name, net=net).communication for net in ("10gbe", "ib100"))
    assert other["bytes_per_gpu"] == pytest.approx(found["bytes_per_gpu"], rel=1e-12)
    assert other["calls"] == found["calls"]


@pytest.mark.parametrize("name", method_names())
def test_a_slower_wide_network_is_never_faster(name: str) -> None:
    method = load_method(name, {})
    if method.decides or method.order == "priority":
        pytest.skip("what it does depends on what things cost")
    sites = {"model": "resnet50", "gpus": 8, "gpus_per_node": 4, "site": [4, 4], "method": name}
    try:
        fast, thin, far = (
            predict(make_scenario(sites | {"wan": wan})).iteration_s
            for wan in ("10Gbit/s,10ms", "1Gbit/s,10ms", "10Gbit/s,60ms")
        )
    except RequestError as refused:
        pytest.skip(str(refused))
    assert fast <= min(thin, far) * (1 + 1e-9)


@pytest.mark.parametrize("name", method_names())
def test_kernels_measured_on_one_gpu_are_taken_or_refused(name: str) -> None:
    given = {"model": "resnet50", "gpus": 16, "net": "10gbe", "method": name}
    try:
        slow, slower = (
            predict(make_scenario(given | {"single_gpu_kernels": text})).iteration_s
            for text in ("50ms", "500ms")
        )
    except RequestError as error:
        assert "runs no kernels of its own here" in str(error)
    else:
        assert slow < slower
