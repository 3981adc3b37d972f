"""Rows of a sweep that share setups, jobs and graphs are those of ``predict()``, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.errors import PerfsimError, spelling
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.shared_rows import SharedRows, SharedSetups
from perfsim.planning.sweep import Sweep, SweepRows
from perfsim.prediction import predict
from perfsim.resolve import Setup, resolve, resolve_like
from perfsim.scenario import (
    SCENARIO_FIELDS,
    SCHEDULE_FIELDS,
    Scenario,
    make_scenario,
    with_checked,
)
from perfsim.schedule.costs import work_times
from perfsim.schedule.rounds import build_rounds
from perfsim.session import JobCache, Session
from support.what_ships import shipped


@pytest.fixture(autouse=True, scope="module")
def _arrays_from_four_rows_on() -> Iterator[None]:
    """Let the few rows of a test run as arrays, which pay for more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfsim.planning.shared_rows._MIN_TOGETHER", 4)
        yield


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """Note the scenarios whose rounds are built."""
    made: list[Scenario] = []

    def noted(setup: Setup, *args: Any, **more: Any) -> Any:
        made.append(setup.scenario)
        return build_rounds(setup, *args, **more)

    monkeypatch.setattr("perfsim.planning.shared_rows.build_rounds", noted)
    return made


BASE = {"model": "resnet50", "gpus": 16, "net": "10gbe"}
HALF = {"model": "gpt2", "gpu": "h100", "precision": "bf16"}
VARIED = {
    "model": "resnet50,bert-base,nosuch",
    "gpus": "1,8,16,12",
    "net": "1gbe,ib100",
    "algorithm": "auto,ring,tree,hierarchical,nosuch",
    "protocol": "auto,ll,simple",
    "library": "nccl,gloo",
    "overlap": "true,false",
    "overlap_slowdown": "1,1.2",
    "accumulate": "1,2",
    "exchange_each": "true,false",
    "precision": "fp32,fp16",
    "reduce_dtype": "fp32,bf16",
    "jitter": "0%,5%",
    "straggler": "1:1.5",
    "fusion": "size,none",
    "bucket": "1MiB,25MiB",
    "single_gpu_kernels": "3ms",
    "background": "20%",
    "options.density": "0.001,0.3,7",
    "options.rank": "1,4",
}
METHODS = (
    *("ssgd", "topk", "dgc", "powersgd", "mgwfbp", "dear", "fsdp", "zero", "localsgd"),
    *("p3", "gtopk", "hierarchical", "spd_kfac", "diloco", "onebit_adam", "fp16", "nosuch"),
)
ROUNDS = (
    *(
        "adpsgd",
        "asc_wfbp",
        "byteps",
        "cpsgd",
        "dct",
        "diloco",
        "localsgd",
        "oktopk",
        "onebit_adam",
    ),
    *("p3", "postlocalsgd", "sparseloco", "streaming_diloco", "thc", "zero_one_adam"),
)
"""Methods of several rounds, of priorities, and of streams that share links."""

ALONE = Session()
"""What ships, for predictions each by itself: their jobs and graphs are dropped before each."""


@st.composite
def _grids(draw: st.DrawFn) -> SweepGrid:
    names = draw(st.lists(st.sampled_from(list(VARIED)), min_size=1, max_size=4, unique=True))
    methods = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=3, unique=True))
    varied = {name: VARIED[name] for name in names}
    at = draw(st.integers(0, len(names)))
    pairs = [*varied.items()]
    pairs.insert(at, ("method", ",".join(methods)))
    return SweepGrid(BASE, axes_of(dict(pairs)))


@pytest.fixture(scope="module")
def session() -> Session:
    """The session that all rows of this file share: it must not matter which were asked before."""
    return Session()


@settings(max_examples=25, deadline=None)
@given(grid=_grids(), data=st.data())
def test_rows_are_those_of_predict(session: Session, grid: SweepGrid, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(grid) - 1), min_size=1, max_size=8, unique=True))
    _assert_rows(grid, rows, session)


def _assert_rows(grid: SweepGrid, rows: Sequence[int], session: Session) -> list[float]:
    """Hold rows against ``predict()``, and return their iterations [s]."""
    found = SharedRows(grid, session).columns(rows)
    assert found.keys() == set(rows)
    iterations_s = []
    for row in rows:
        *figures, reason = found[row]
        try:
            ALONE.jobs = JobCache()
            alone = predict(make_scenario(grid.fields(row)), ALONE)
        except PerfsimError as error:
            with spelling("`{}`".format):
                assert reason == str(error)
            assert figures == [None] * 4
        else:
            sent = alone.communication["bytes_per_gpu"]
            expected = [alone.iteration_s, alone.samples_per_s, alone.scaling_efficiency, sent]
            assert (figures, reason) == (expected, ""), grid.fields(row)
            iterations_s.append(figures[0])
    return iterations_s


@pytest.mark.parametrize(
    "more",
    [
        *({"method": name} for name in ROUNDS),
        {"method": "sparseloco", "options": {"exchange": "object_store"}},
        {"method": "ssgd", "beside": ["Zhang2023_ssgd_resnet50_10gbe_32"]},
        {"method": "dgc", "gpu": "v100:8,p100:8"},
        {"method": "ssgd", "straggler": ["1:1.5"]},
        {"method": "ssgd", "model": "gpt2", "tp": 2},
        {"method": "fsdp", "model": "gpt2", "tp": 2, "pp": 2, "accumulate": 4},
    ],
    ids=lambda more: "-".join(map(str, more.values())),
)
def test_rows_of_each_kind_of_run_are_those_of_predict(
    more: dict[str, Any], session: Session
) -> None:
    """Several rounds, priorities, links that streams share, ranks that differ, divided models."""
    varied = {"net": "10gbe,1gbe", "algorithm": "auto,tree"}
    if more["method"] == "sparseloco":
        varied["options.topk"] = "32,64,128"
    grid = SweepGrid(BASE | more, axes_of(varied))
    rows = range(0, len(grid), 3 if "beside" in more else 1)  # other jobs take a while
    assert len(set(_assert_rows(grid, rows, session))) > 1


def test_a_protocol_that_a_library_lacks_is_none(session: Session) -> None:
    grid = SweepGrid(BASE, axes_of({"library": "nccl,gloo", "protocol": "auto,ll"}))
    setups = SharedSetups(grid, session)
    nccl, gloo = setups.of(0), setups.of(2)
    assert setups.sent_by(nccl, 1) == ("auto", "ll", True)
    assert setups.sent_by(gloo, 3) is None


@settings(max_examples=25, deadline=None)
@given(grid=_grids(), data=st.data())
def test_setups_are_those_of_resolve(
    session: Session, grid: SweepGrid, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(grid) - 1), min_size=1, max_size=12, unique=True))
    setups = SharedSetups(grid, session)
    for alike in setups.by_jobs(rows):
        for row in alike:
            try:
                alone = resolve(make_scenario(grid.fields(row)), session)
            except PerfsimError as error:
                with pytest.raises(type(error)) as refused:
                    setups.of(row)
                assert str(refused.value) == str(error)
            else:
                _assert_same(setups.of(row), alone)


def _assert_same(one: Setup, other: Setup) -> None:
    for name in ("scenario", "device", "cluster", "network", "method", "policy", "notes", "ssgd"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.limit_bytes == other.limit_bytes and one.policy_name == other.policy_name
    assert one.transferred.profile == other.transferred.profile
    assert one.resolved_scenario() == other.resolved_scenario()


@pytest.mark.parametrize("name", sorted(SCHEDULE_FIELDS - {"options"}))
def test_a_setup_is_taken_over_in_each_field_of_the_schedule(name: str, session: Session) -> None:
    other: dict[str, Any] = {
        "method": "topk",
        "algorithm": "ring",
        "protocol": "ll",
        "overlap": False,
        "overlap_slowdown": 1.5,
        "accumulate": 3,
        "exchange_each": False,
        "single_gpu_kernels": "2ms",
    }
    like = resolve(make_scenario(BASE), session)
    changed = with_checked(like.scenario, {name: other[name]})
    assert getattr(changed, name) != SCENARIO_FIELDS[name].value
    taken = resolve_like(changed, like, session)
    assert taken is not None
    assert taken.cluster is like.cluster and taken.transferred is like.transferred
    _assert_same(taken, resolve(make_scenario(BASE | {name: other[name]}), session))


@pytest.mark.parametrize(
    ("like", "asked"),
    [
        (HALF, {"method": "fsdp"}),  # computes in 16 bits throughout
        (HALF | {"method": "fsdp"}, {"method": "zero"}),  # a note names the method
        ({"model": "gpt2", "tp": 2, "precision": "fp16"}, {"accumulate": 2}),
        ({"beside": ["Zhang2023_ssgd_resnet50_10gbe_32"]}, {"algorithm": "ring"}),
        ({"gpu": "v100:8,p100:8"}, {"algorithm": "ring"}),
    ],
)
def test_a_setup_is_not_taken_over_where_more_depends_on_the_field(
    like: dict[str, Any], asked: dict[str, Any], session: Session
) -> None:
    known = resolve(make_scenario(BASE | like), session)
    assert resolve_like(with_checked(known.scenario, asked), known, session) is None


def test_values_that_contradict_each_other_are_refused_together() -> None:
    slowed = make_scenario(BASE | {"overlap_slowdown": 1.5})
    with pytest.raises(PerfsimError, match="true"):
        with_checked(slowed, {"overlap": False})


def test_rows_that_differ_in_algorithm_and_protocol_price_the_same_tasks(
    session: Session, built: list[Scenario]
) -> None:
    """Jobs are made once for six pairs, unless they follow from what collectives take."""
    varied = {"algorithm": "auto,ring,tree", "protocol": "auto,ll", "method": "topk,mgwfbp"}
    grid = SweepGrid(BASE, axes_of(varied))
    rows = SharedRows(grid, session)
    rows.columns(range(len(grid)))  # each value is checked once
    built.clear()
    found = rows.columns(range(len(grid)))
    made = [one.method for one in built]
    assert (made.count("topk"), made.count("mgwfbp")) == (1, 6)
    assert len({columns[0] for columns in found.values()}) > 4


@pytest.mark.parametrize(
    ("base", "varied"),
    [
        ({"method": "dgc"}, {"options.density": "0.001,0.01,0.1", "overlap": "true,false"}),
        ({"method": "topk"}, {"overlap": "false,true", "options.density": "0.001,0.01,0.1"}),
        # Passes are cut at other moments for each size of buckets.
        ({"method": "topk"}, {"bucket": "5MiB,25MiB,1MiB", "overlap": "true,false"}),
        # Messages slow computation beside them where nodes have several NICs.
        (
            {"method": "topk", "gpu": "a100", "gpus": 32, "gpus_per_node": 8},
            {"net": "10gbe,dgx-a100", "options.density": "0.01,0.1", "overlap": "false,true"},
        ),
    ],
    ids=["dgc", "topk", "buckets", "slowed"],
)
def test_rows_that_differ_in_overlap_have_the_same_works(
    base: dict[str, Any],
    varied: dict[str, str],
    session: Session,
    built: list[Scenario],
    request: pytest.FixtureRequest,
) -> None:
    """What works take is told once; how they are laid out is known from an earlier row."""
    grid = SweepGrid(BASE | base, axes_of({**varied, "algorithm": "auto,tree"}))
    SharedRows(grid, session).columns(range(len(grid)))  # from here on graphs are taken over
    built.clear()
    found = _assert_rows(grid, range(len(grid)), session)
    made = [one.overlap for one in built]
    assert len(set(found)) > len(grid) // 3
    if request.node.callspec.id in ("dgc", "topk"):
        asked_first = made[0]
        assert made.count(asked_first) == 3 > made.count(not asked_first)


@pytest.mark.parametrize(
    ("base", "varied", "builds"),
    [
        ({"method": "dgc"}, {"net": "1gbe,10gbe,10gbe-mpi", "gpus": "16,32"}, 2),  # asks for ranks
        ({"method": "localsgd"}, {"net": "1gbe,10gbe,ib100", "gpus": "16,32"}, 1),
        ({"method": "ssgd"}, {"background": "10%,20%", "gpus": "16,32"}, 1),
        ({"method": "dear"}, {"net": "1gbe,10gbe,ib100", "gpus": "16,32"}, 6),  # asks for messages
        ({"method": "ssgd", "jitter": 0.05}, {"net": "1gbe,10gbe", "gpus": "16,32"}, 4),
        ({"method": "topk", "single_gpu_kernels": "3ms"}, {"net": "1gbe,10gbe", "gpus": "16"}, 2),
        # One GPU, and one node, where messages slow computation beside them; then several nodes.
        ({"method": "ssgd"}, {"gpus": "1,2,3,4,8,24", "net": "10gbe,1gbe"}, 1 + 6 + 1),
        # Nodes of four GPUs and of eight, and of several NICs.
        ({"method": "topk", "gpu": "v100"}, {"net": "10gbe,dgx1-v100-ib100,100gbe"}, 3),
        ({"method": "topk", "gpu": "a100", "gpus_per_node": 8}, {"net": "10gbe,dgx-a100"}, 2),
        ({"method": "topk", "gpu": "v100-pcie"}, {"net": "10gbe,dgx1-v100-ib100"}, 2),
        ({"method": "topk"}, {"net": "10gbe,g4dn,100gbe"}, 3),  # which has another GPU
        ({"method": "ssgd"}, {"gpus": "16,32", "model": "resnet50,vgg16"}, 2),
        # A node that is not full, whose GPUs cost each other less; slowest GPUs of more and more.
        ({"method": "ssgd", "model": "bert-base"}, {"gpus": "2,4,8,16"}, 2),
        ({"method": "ssgd", "gpu": "h100", "model": "dit-s2"}, {"gpus": "16,64"}, 2),
    ],
)
def test_rows_that_differ_in_their_cluster_alone_share_their_rounds(
    base: dict[str, Any], varied: dict[str, str], builds: int, built: list[Scenario]
) -> None:
    """They are built once, where they do not follow from what messages take, nor from nodes."""
    session, grid = Session(), SweepGrid(BASE | {"gpus": 32} | base, axes_of(varied))
    SharedRows(grid, session).columns(range(len(grid)))  # from here on it is known who asks
    built.clear()
    found = _assert_rows(grid, range(len(grid)), session)
    assert len(built) == builds
    assert len(set(found)) > len(grid) // 2


def test_rounds_without_an_all_reduce_take_as_long_by_any_algorithm(session: Session) -> None:
    """Top-k gathers; DGC all-reduces its vectors besides, by the algorithm that is asked for."""
    for method, takes in (("topk", False), ("dgc", True)):
        setup = resolve(make_scenario({**BASE, "method": method}), session)
        (costed,) = build_rounds(setup, JobCache(), timing_only=True)
        assert costed.takes_algorithm is takes
        same = work_times(costed, "auto", "auto")
        assert costed.layout.times(same) == costed.times
        asked = work_times(costed, "ring", "auto"), work_times(costed, "ring", "ll")
        assert (asked[0] == same) is not takes
        assert asked[1].seconds != asked[0].seconds, "a protocol is of everything sent"


def test_a_file_that_changed_is_read_anew_by_the_next_chunk(tmp_path: Path) -> None:
    """What rows share does not outlive the files that it was made of."""
    mine = tmp_path / "networks" / "10gbe.toml"
    mine.parent.mkdir()
    text = (shipped() / "networks" / mine.name).read_text("utf-8")
    mine.write_text(text, "utf-8")
    varied = axes_of({"algorithm": "auto,ring", "overlap": "true,false"})
    rows = SweepRows(Sweep(SweepGrid(BASE, varied), str(tmp_path)))
    before = rows.chunk(0, 4)
    mine.write_text(text.replace('"1.173GB/s"', '"0.586GB/s"'), "utf-8")
    for was, now in zip(before, rows.chunk(0, 4), strict=True):
        assert now[0] > 1.01 * was[0]


def test_rounds_are_taken_over_where_the_cluster_has_no_say_in_them(session: Session) -> None:
    """From the third network on; where a method asks how many ranks there are, from as many."""

    def graphs(method: str, asked: Sequence[tuple[int, str]]) -> list[Any]:
        found, cache = [], JobCache()
        for gpus, net in asked:
            fields = {**BASE, "gpus": gpus, "net": net, "method": method}
            setup = resolve(make_scenario(fields), session)
            (costed,) = build_rounds(setup, cache, timing_only=True)
            (alone,) = build_rounds(setup, timing_only=True)
            assert costed.task_s == pytest.approx(alone.task_s, rel=1e-12)
            assert costed.sent_bytes == alone.sent_bytes
            found.append(costed.graph)
        return found

    first, *others = graphs("ssgd", [(16, "10gbe"), (16, "1gbe"), (64, "ib100"), (24, "1gbe")])
    assert all(one is first for one in others)
    for method in ("dgc", "mgwfbp"):
        graphs(method, [(16, "10gbe"), (64, "10gbe"), (16, "1gbe"), (64, "1gbe"), (16, "10gbe")])
    graphs("gtopk", [(16, "10gbe"), (64, "1gbe"), (16, "1gbe")])
    with pytest.raises(PerfsimError, match="not 12"):
        graphs("gtopk", [(16, "10gbe"), (64, "1gbe"), (12, "1gbe")])
