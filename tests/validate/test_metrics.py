"""Phases of second-order methods by hand, and that they add up to the iteration."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.kernel import elementwise
from perfsim.methods.building.kfac_factors import (
    decomposed,
    inverted,
    packed_triangle,
    preconditioned,
    rescaled,
    unpacked_triangle,
)
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.run import run
from perfsim.simulate.timeline import Timeline
from perfsim.throughput import CONVENTIONS
from perfsim.validate.metrics import (
    METRICS,
    PHASE_METRICS,
    PHASE_PARTS,
    added_s,
    busy_s,
    part_of,
    predicted_metric,
)
from support.kfac_of_two_layers import (
    FIRST,
    MS,
    PASSES,
    SECOND,
    SIDES,
    TRIANGLES,
    built,
    k,
    plans,
    reduce_s,
)


def phases(timeline: Timeline) -> list[float]:
    """Return what each phase adds to those before it [s]."""
    found = []
    for place, parts in enumerate(PHASE_PARTS):
        before = frozenset[str]().union(*PHASE_PARTS[:place])
        found.append(added_s(timeline, before, parts))
    return found


def test_the_phases_of_d_kfac_by_hand() -> None:
    [plan] = plans("d_kfac")
    layers = (FIRST, SECOND)
    own = [kernel for layer in layers for kernel in preconditioned(layer, "cholesky")]
    packing = k(
        *map(packed_triangle, SIDES),
        *(one for s in SIDES for one in unpacked_triangle(s, mean=True)),
    )
    assert phases(run(plan)) == pytest.approx(
        [
            PASSES + 2 * MS,
            reduce_s(1840, 4),
            k(*built(), *own, *map(rescaled, layers)),
            packing + reduce_s(TRIANGLES, 4),
            sum(k(*inverted(side)) for side in SIDES),
            0.0,
        ],
        rel=1e-9,
        abs=1e-12,
    )


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["d_kfac", "mpd_kfac", "spd_kfac"]),
    st.integers(2, 9),
    st.booleans(),
    st.booleans(),
)
def test_phases_add_up_to_the_iteration(
    name: str, ranks: int, pipelined: bool, symmetric: bool
) -> None:
    options = {"everywhere_below": 31} if name == "spd_kfac" else {}
    [plan] = plans(name, ranks, pipelined=pipelined, symmetric=symmetric, **options)
    timeline = run(plan)
    found = phases(timeline)
    assert sum(found) == pytest.approx(timeline.iteration_s, rel=1e-9)
    assert min(found) > -1e-12


@pytest.mark.parametrize("release", ["0.3", "0.4"])
def test_what_kaisas_parts_take_by_themselves(release: str) -> None:
    [plan] = plans("kaisa", 2, inversion="eigen", fraction=0.5, release=release)
    timeline = run(plan)
    assert {part_of(task) for task in plan.graph.tasks} == {
        "passes",
        "gradients",
        "factors",
        "factors sent",
        "inverses",
        "preconditioning",
        "gradients sent",
        "scaling",
    }
    # The rank with the larger layer is shown.
    quotients = elementwise(31 * 40, 5, 3)
    own = (*decomposed(31, copied=False), *decomposed(40, copied=False), quotients)
    assert busy_s(timeline, "inverses") == pytest.approx(k(*own))
    steps = preconditioned(SECOND, "eigen", quotients=True)
    assert busy_s(timeline, "preconditioning") == pytest.approx(k(*steps))
    sent = [task.duration_s for task in plan.graph.tasks if part_of(task) == "gradients sent"]
    assert len(sent) == 2 and busy_s(timeline, "gradients sent") == pytest.approx(sum(sent))
    assert busy_s(timeline, "inverses sent") == 0


def test_phase_metrics_are_answered_and_counted_apart() -> None:
    model = {"model": "resnet18", "gpu": "rtx2080ti", "gpus": 8, "net": "10gbe"}
    prediction = predict(make_scenario(model | {"method": "d_kfac"}))
    (inverse_s, low, high), error = predicted_metric("inverse_compute_s", 1.0, prediction)
    assert inverse_s == low == high and error == inverse_s - 1.0 and 0 < inverse_s < 1
    assert predicted_metric("inverse_total_s", 1.0, prediction)[0][0] == pytest.approx(inverse_s)
    assert set(METRICS) - set(PHASE_METRICS) == {
        "iteration_s",
        "throughput",
        "throughput_per_gpu",
        *(f"flops_per_gpu_{name}" for name in CONVENTIONS),
        "scaling_efficiency",
        "speedup_vs_1gpu",
    }


def test_a_rate_of_flops_is_the_source_s_own_count() -> None:
    """GPT-3 of 6.7 billion: 6 N a token, and 12 layers x width x length more by PaLM's count."""
    model = {"model": "gpt3-6.7b", "gpu": "a100", "gpus": 8, "net": "dgx-a100", "seq": 1024}
    prediction = predict(make_scenario(model | {"batch": 1, "precision": "amp-bf16"}))
    per_s = prediction.samples_per_s / 8
    plain, palm, whole, causal = (
        predicted_metric(f"flops_per_gpu_{name}", 1e14, prediction)
        for name in ("6n", "palm", "products", "causal")
    )
    attention = 12 * 32 * 4096 * 1024 * 1024 * per_s
    assert palm[0][0] - plain[0][0] == pytest.approx(attention, rel=1e-9)
    assert whole[0][0] - causal[0][0] == pytest.approx(attention / 2, rel=0.01)
    assert plain[1] == pytest.approx(1e14 / plain[0][0] - 1.0)
    assert prediction.throughput.flops_per_gpu("palm") == pytest.approx(palm[0][0])
