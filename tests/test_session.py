"""A session keeps files, jobs and the order of tasks, and never an answer."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import prediction
from perfsim import session as sessions
from perfsim.compute.anchors import load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.kernel import Kernel, elementwise
from perfsim.compute.profile import Gradient, Profile
from perfsim.data.catalog import Catalog, owner_of, shipped
from perfsim.data.files import noting
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, SentGradients
from perfsim.libraries import library as find_library
from perfsim.methods import load_method, method_names
from perfsim.methods.base import Compute, Job, JobStage, Method, MethodContext, PassPoint, Send
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.network.network_file import load_network
from perfsim.planning.compare import compare
from perfsim.prediction import predict
from perfsim.resolve import resolve, with_gpu
from perfsim.scenario import Scenario, make_scenario
from perfsim.schedule import rounds
from perfsim.schedule.build import issue
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.costs import Costs, reprice
from perfsim.schedule.job_structure import GraphOfJobs, structure_of
from perfsim.schedule.rounds import build_rounds
from perfsim.session import (
    JobCache,
    RecordedCosts,
    RememberingCluster,
    Session,
    SessionWithNetworks,
    SourceSession,
    WorksOfJobs,
    default_session,
)
from perfsim.what_if import steady_s
from support.builders import hand_device, profile, ring_cluster
from support.dense import stages_and_kernels

SHIPPED = Session()
SMALL: dict[str, Any] = {"model": "resnet20-cifar", "gpus": 8, "net": "10gbe"}
OTHERS: list[dict[str, Any]] = [
    {},
    {"net": "1Gbit/s,50us"},
    {"gpus": 16},
    {"bucket": "100KB"},
    {"overlap": False},
    {"single_gpu": "30ms"},
    {"straggler": ["1:1.5"]},
    {"jitter": 0.05},
]


def told(asked: Scenario, catalog: Catalog) -> object:
    try:
        found = predict(asked, catalog)
    except RequestError as error:
        return str(error)
    return found.to_dict(), found.worth, found.moves


@pytest.mark.parametrize("method", ["dgc", "mgwfbp", "spd_kfac", "localsgd"])
def test_what_is_kept_changes_no_prediction(method: str) -> None:
    session = Session()
    for other in OTHERS:
        asked = make_scenario(SMALL | {"method": method} | other)
        made, taken_over = told(asked, session), told(asked, session)
        assert made == taken_over == told(asked, Catalog())


SHAPES: list[dict[str, Any]] = [
    {"gpus": 8},
    {"gpus": 16},
    {"gpus": 16, "gpus_per_node": 2},
    {"gpus": 4, "gpus_per_node": 4},
    {"gpus": 16, "net": "1Gbit/s,50us"},
    {"gpus": 16, "bucket": "100KB"},
    {"gpus": 8, "accumulate": 2},
    {"gpus": 16, "accumulate": 2},
    {"gpus": 16, "overlap": False},
    {"gpus": 16, "options": {"density": 0.02}},
    {"gpus": 16, "options": {"bits": 4}},
    {"gpus": 16, "options": {"rank": 2}},
]
"""Clusters of other shapes: a method does the same on each, with other messages and kernels."""


@pytest.mark.parametrize("method", method_names())
def test_a_graph_taken_over_by_other_jobs_is_theirs(method: str) -> None:
    jobs = JobCache()
    for shape in SHAPES:
        try:
            setup = resolve(make_scenario(SMALL | {"method": method} | shape), SHIPPED)
            made = build_rounds(setup)
        except RequestError:
            continue
        for one, other in zip(made, build_rounds(setup, jobs), strict=True):
            assert one.graph.tasks == other.graph.tasks
            assert one.charges == other.charges
            assert stages_and_kernels(one) == stages_and_kernels(other)
            sums = (one.sent_bytes, one.calls, one.gathered_bytes)
            assert sums == (other.sent_bytes, other.calls, other.gathered_bytes)
            assert sorted(map(repr, one.terms)) == sorted(map(repr, other.terms))
        quick = steady_s(build_rounds(setup, jobs, timing_only=True))
        assert quick == steady_s(build_rounds(setup, timing_only=True)) == steady_s(made)


def test_one_graph_is_issued_for_clusters_of_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    issued: list[str] = []
    monkeypatch.setattr(
        rounds, "issue", lambda *args, **more: issued.append("") or issue(*args, **more)
    )
    jobs = JobCache()
    for shape in ({"gpus": 8}, {"gpus": 16}, {"gpus": 32, "net": "1Gbit/s,50us"}):
        build_rounds(resolve(make_scenario(SMALL | {"method": "dgc"} | shape), SHIPPED), jobs)
    assert len(issued) == 1


def test_a_comparison_that_is_asked_again_issues_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session, issued = Session(), []

    def counted(profile: Profile, method: Method, *args: Any, **more: Any) -> CostedGraph:
        issued.append(type(method).__name__)
        return issue(profile, method, *args, **more)

    monkeypatch.setattr(rounds, "issue", counted)
    asked = make_scenario({"model": "resnet50", "gpus": 64, "net": "10gbe"})
    first = compare(asked, catalog=session)
    assert len(set(issued)) > 60
    issued.clear()
    again = compare(asked, catalog=session)
    assert issued == [] and again.to_dict() == first.to_dict()
    compare(asked.model_copy(update={"net": "1gbe"}), catalog=session)
    assert 0 < len(issued) < 30, "those whose buckets or jobs follow from what messages take"


def test_a_graph_is_priced_once_for_each_place_that_is_asked_for_again() -> None:
    jobs = JobCache()

    def rounds_on(**fields: Any) -> CostedGraph:
        asked = make_scenario(SMALL | {"method": "dgc"} | fields)
        return build_rounds(resolve(asked, SHIPPED), jobs)[0]

    eight = rounds_on()
    assert rounds_on() is eight
    many = rounds_on(gpus=64)
    assert many is not eight and rounds_on(gpus=64) is many
    slow = rounds_on(gpus=64, algorithm="tree")
    assert slow.priced_on is not None and not slow.priced_on.same(many.priced_on)
    assert slow.priced_on.same_kernels(many.priced_on)
    back = rounds_on()
    assert back.task_s == eight.task_s and back.charges == eight.charges


@pytest.mark.parametrize("method", ["dgc", "qsgd", "kaisa", "mgwfbp"])
def test_a_graph_whose_times_alone_were_asked_is_whole_where_it_is_asked_for(method: str) -> None:
    jobs = JobCache()
    for gpus, timing_only in ((8, False), (64, True), (64, True), (64, False), (8, True)):
        setup = resolve(make_scenario(SMALL | {"method": method, "gpus": gpus}), SHIPPED)
        found = build_rounds(setup, jobs, timing_only=timing_only)
        for mine, fresh in zip(found, build_rounds(setup, timing_only=timing_only), strict=True):
            assert mine.task_s == fresh.task_s and mine.sent_bytes == fresh.sent_bytes
            if not timing_only:
                assert [task.duration_s for task in mine.graph.tasks] == mine.task_s
                assert mine.charges == fresh.charges
                assert sorted(map(repr, mine.terms)) == sorted(map(repr, fresh.terms))


def test_works_of_jobs_are_priced_once_a_gpu() -> None:
    stage = Compute((elementwise(10**6, 2),), "compress")
    works = WorksOfJobs([[Job("0", (stage,), PassPoint("backward", 0.5))]])
    work = works.work(stage)
    assert works.work(stage) is work
    costs = Costs(hand_device(), ring_cluster(4, "1GB/s,1ms"))
    known = works.kernels_s(costs)(work)
    assert known == costs.kernels_s(work) == works.kernels_s(costs)(work)
    slower = replace(costs, kernel_factor=2.0)
    assert works.kernels_s(slower)(work) == 2 * known
    other = replace(costs, device=load_device("k80", Session()))
    assert works.kernels_s(other)(work) == other.kernels_s(work) != known
    later = WorksOfJobs([[Job("0", (stage, stage._replace()), PassPoint("backward", 0.6))]], works)
    assert later.work(stage) is work and later.work(stage._replace()) is not work


def test_jobs_of_other_structure_take_no_graph_over() -> None:
    """Two stages that are one here and two there; a stage more; another stream."""
    send, other = Send("all_reduce", 8.0), Send("all_reduce", 16.0)
    kernel = Compute((elementwise(8, 1),), "compress")

    def jobs(*stages: JobStage) -> list[list[Job]]:
        point = PassPoint("backward", 0.5)
        return [[Job(f"{at}", (stage,), point) for at, stage in enumerate(stages)]]

    def graph(made: list[list[Job]]) -> CostedGraph:
        costs = Costs(hand_device(), ring_cluster(4, "1GB/s,1ms"))
        return issue(profile([4], [0.5]), load_method("ssgd", {}), costs, made)

    one = jobs(send, send)
    taken = GraphOfJobs(graph(one), one).with_jobs(jobs(other, other))
    assert taken is not None and {work.stage for work in taken.work if work} == {other}
    assert taken.calls == 2
    assert GraphOfJobs(graph(one), one).with_jobs(jobs(send, other)) is None
    larger = kernel._replace(kernels=(elementwise(16, 1),))
    for stage, changed in ((send, other), (kernel, larger)):
        alike = jobs(stage, stage._replace())  # equal, but not the same object
        found = graph(alike)
        assert len({id(work) for work in found.work if work}) == 1  # priced once
        assert GraphOfJobs(found, alike).with_jobs(jobs(stage, changed)) is None
    assert structure_of(one) == structure_of(jobs(other, send))
    for another in (jobs(send), jobs(send, kernel), jobs(send, send._replace(stream="own"))):
        assert structure_of(one) != structure_of(another)


_MOMENTS = [0.0, 0.1, 0.25, 0.5, 0.75, 1.0]
"""When jobs begin, as shares of a pass."""


@given(
    st.lists(
        st.tuples(st.sampled_from(["forward", "backward"]), st.sampled_from(_MOMENTS)),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.2, 5.0),
)
def test_jobs_that_begin_in_the_same_order_take_a_graph_over(
    begins: list[tuple[Literal["forward", "backward"], float]], power: float
) -> None:
    """The parts of the passes are those of a graph that is issued for these jobs."""
    where, send = profile([4], [2.0], forward_s=1.5), Send("all_reduce", 8.0)
    passes_s = {"forward": 1.5, "backward": 2.0}

    def jobs(moved: float) -> list[list[Job]]:
        points = [PassPoint(phase, at**moved * passes_s[phase]) for phase, at in begins]
        return [[Job(f"{name}", (send,), point) for name, point in enumerate(points)], []]

    def graph(made: list[list[Job]]) -> CostedGraph:
        costs = Costs(hand_device(), ring_cluster(4, "1GB/s,1ms"))
        return issue(where, load_method("wfbp", {}), costs, made)

    one, other = jobs(1.0), jobs(power)
    assert structure_of(one, passes_s) == structure_of(other, passes_s)
    taken = GraphOfJobs(graph(one), one, passes_s).with_jobs(other)
    assert taken is not None
    issued = graph(other)
    assert taken.graph.tasks == issued.graph.tasks and taken.parts == issued.parts
    assert taken.charges == issued.charges


def test_when_jobs_begin_counts_where_more_depends_on_it_than_parts_of_passes() -> None:
    send, passes_s = Send("all_reduce", 8.0), {"forward": 1.0, "backward": 2.0}

    def structure(*begins_s: float, **fields: Any) -> Hashable:
        points = [PassPoint("backward", seconds) for seconds in begins_s]
        jobs = [Job(f"{name}", (send,), point, **fields) for name, point in enumerate(points)]
        return structure_of([jobs], passes_s)

    assert structure(0.5, 1.5) == structure(0.6, 1.9)
    # In another order, together, at an end of the pass or behind it, and where the next pass waits.
    for others in ((1.5, 0.5), (0.5, 0.5), (0.0, 1.5), (0.5, 2.0), (0.5, 2.5)):
        assert structure(0.5, 1.5) != structure(*others)
    assert structure(0.5, 2.5) != structure(0.5, 2.6)
    held = {"holds": PassPoint("next", 0.5)}
    assert structure(0.5, 1.5, **held) != structure(0.6, 1.9, **held)


def test_one_graph_is_issued_for_as_many_messages_on_networks_of_other_rates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued: list[CostedGraph] = []
    monkeypatch.setattr(
        rounds, "issue", lambda *args, **more: issued.append(issue(*args, **more)) or issued[-1]
    )
    jobs, counts = JobCache(), set[int]()
    for rate in range(1, 30):
        asked = {"model": "resnet50", "gpus": 8, "net": f"{rate}Gbit/s,50us", "method": "mgwfbp"}
        setup = resolve(make_scenario(asked), SHIPPED)
        (mine,) = build_rounds(setup, jobs, timing_only=True)
        taken = len(issued)
        (fresh,) = build_rounds(setup, timing_only=True)
        del issued[taken:]
        assert mine.task_s == fresh.task_s and mine.parts == fresh.parts
        counts.add(len(mine.graph.tasks))
    assert len(issued) == len(counts) > 2


def test_times_alone_are_those_of_a_graph_priced_whole() -> None:
    """By hand: kernels and a message that goes three times in a row, on other links and GPUs."""
    send = Send("all_reduce", 1e6, repeats=3.0)
    kernels = Compute((elementwise(10**6, 1), elementwise(10**6, 1)), "compress")
    job = Job("0", (kernels, send), PassPoint("backward", 1.0))
    where = profile([10], [1.0]), load_method("ssgd", {})
    device = hand_device()
    quicker = replace(device, launch_s=device.launch_s._replace(value=1e-6))
    first, *others = [
        Costs(gpu, ring_cluster(ranks, link), timing_only=True)
        for gpu, ranks, link in (
            (device, 8, "1GB/s,1ms"),
            (device, 4, "2GB/s,1ms"),
            (quicker, 4, "2GB/s,1ms"),
        )
    ]
    graph = issue(*where, first, [[job]])
    for costs in others:
        fresh = issue(*where, costs, [[job]])
        graph = reprice(graph, costs, durations_only=True)
        assert graph.task_s == fresh.task_s
        assert graph.sent_bytes == fresh.sent_bytes == 3.0 * 2.0 * 3.0 / 4.0 * 1e6


def test_a_warm_prediction_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # A method with kernels asks what they cost in other eras, whose files a plain one never reads.
    for method in ("ssgd", "topk"):
        predict(make_scenario(SMALL | {"method": method}))
    for module in ("perfsim.data.files", "perfsim.data.tables", "perfsim.data.toml"):
        monkeypatch.setattr(f"{module}.read_text", None)
    other = predict(make_scenario(SMALL | {"bucket": "70KB", "method": "dgc"}))
    assert other.iteration_s > 0


def test_a_warm_prediction_takes_a_fraction_of_a_cold_one() -> None:
    # About a thirtieth; a third leaves room for a busy machine.
    asked = make_scenario({"model": "resnet50", "gpus": 64, "net": "1gbe"})
    predict(asked)

    def least_s(catalog: Catalog | None) -> float:
        taken = []
        for _ in range(3):
            began = time.process_time()
            predict(asked, catalog)
            taken.append(time.process_time() - began)
        return min(taken)

    assert least_s(None) < least_s(Catalog()) / 3


def copy(name: str, to: Path) -> None:
    """Copy a network that ships under another name."""
    text = (shipped() / "networks" / f"{name}.toml").read_text(encoding="utf-8")
    to.write_text(text.replace(f'name = "{name}"', f'name = "{to.stem}"', 1), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own with one network, on the search path."""
    (tmp_path / "networks").mkdir()
    copy("10gbe", tmp_path / "networks" / "wire.toml")
    monkeypatch.setenv("PERFSIM_PATH", str(tmp_path))
    return tmp_path


def test_a_changed_file_is_seen(folder: Path) -> None:
    asked = make_scenario(SMALL | {"net": "wire"})
    before = predict(asked).iteration_s
    assert predict(asked).iteration_s == before
    path = folder / "networks" / "wire.toml"
    copy("1gbe", path)
    os.utime(path, ns=(1, 1))
    assert predict(asked).iteration_s > before


def test_a_new_file_that_goes_first_is_seen(folder: Path) -> None:
    asked = make_scenario(SMALL)
    before = predict(asked).iteration_s
    copy("1gbe", folder / "networks" / "10gbe.toml")
    os.utime(folder / "networks", ns=(1, 1))
    assert predict(asked).iteration_s > before


def test_another_search_path_has_a_session_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = default_session()
    assert default_session() is own
    monkeypatch.delenv("PERFSIM_PATH")
    assert default_session() is not own


@pytest.mark.parametrize("kind", ["learning", "methods", "measurements"])
def test_records_that_are_added_to_a_named_folder_are_seen(tmp_path: Path, kind: str) -> None:
    (tmp_path / "networks").mkdir()
    session = Session(tmp_path)
    assert not session.outdated()
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "evidence.csv").write_text("")
    assert session.outdated()


def test_the_oldest_jobs_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_TASKS", 6)
    cache, recorded, made = JobCache(), RecordedCosts(MethodContext(8)), []

    def of(key: str, count: int) -> list[Any]:
        def make() -> list[Any]:
            made.append(key)
            return [key] * count

        return cache.jobs((key,), recorded, make)

    of("a", 1), of("b", 1), of("a", 1)
    assert made == ["a", "b"]
    of("c", 2)  # with the key itself 2 + 2 + 3 is too much
    of("b", 1), of("c", 2), of("a", 1)
    assert made == ["a", "b", "c", "a"]
    assert of("d", 20) == of("d", 20) == ["d"] * 20  # the last one is kept whatever its size
    assert made == ["a", "b", "c", "a", "d"]


def bucket(*names: str, ready_s: float = 1.0) -> Bucket:
    return Bucket(tuple(Gradient(name, (2,), ready_s, 0) for name in names), ready_s)


def formed(buckets: list[Bucket]) -> Hashable:
    return SentGradients((), lambda gradient: 0.0).told_apart(buckets)


def test_buckets_that_come_again_at_other_costs_have_their_jobs_again() -> None:
    """A policy asks for a kernel's time and merges a and b below 2 s; the jobs ask for ranks."""
    cache, made = JobCache(), []

    def of(kernel_s: float, ranks: int = 8, reads_ranks: bool = True) -> list[Any]:
        recorded = RecordedCosts(MethodContext(ranks, kernel_s=lambda kernel: kernel_s))
        context = recorded.context

        def make() -> list[Any]:
            merged = context.kernel_s("a kernel") < 2.0
            buckets = [bucket("a", "b")] if merged else [bucket("a"), bucket("b")]

            def jobs() -> list[Any]:
                made.append(len(buckets))
                return [context.ranks if reads_ranks else 0] * len(buckets)

            return cache.jobs_of(lambda: formed(buckets), ("key",), recorded, jobs)

        return cache.jobs(("key",), recorded, make)

    first = of(1.0)
    assert (first, made) == ([8], [1])
    assert of(1.5) is first and made == [1], "other costs, the same buckets"
    assert (of(3.0), made) == ([8, 8], [1, 2]), "other buckets"
    assert (of(1.0, ranks=16), made) == ([16], [1, 2, 1]), "the same, among other ranks"
    # What was taken over rests on the answers of the jobs too, not of the policy alone.
    of(1.5)
    assert of(1.5, ranks=16) == [16] and of(1.2) is first and len(made) == 3


def test_buckets_of_the_same_gradients_at_other_times_are_others() -> None:
    cache = JobCache()
    recorded = RecordedCosts(MethodContext(8, kernel_s=lambda kernel: 1.0))

    def of(*buckets: Bucket) -> list[Any]:
        recorded.answers = {("kernel", "a kernel"): 1.0}  # what the policy asked
        return cache.jobs_of(lambda: formed([*buckets]), ("key",), recorded, lambda: [object()])

    first = of(bucket("a", "b"))
    assert of(bucket("a", "b")) is first
    assert recorded.answers == {("kernel", "a kernel"): 1.0}
    assert of(bucket("a", "b", ready_s=2.0)) is not first
    assert of(bucket("a"), bucket("b")) is not first
    # Where nothing was asked, the key has them, and nothing is kept for the buckets.
    recorded.answers = {}
    plain = [cache.jobs_of(lambda: 1, ("key",), recorded, lambda: [object()]) for _ in "ab"]
    assert plain[0] is not plain[1]


def test_a_policy_that_asks_a_cluster_for_a_function_is_asked_again_on_another_cluster() -> None:
    """The function stands for all its answers: the cluster's own, the same each time."""
    asked = make_scenario({"model": "resnet50", "gpus": 8, "net": "10gbe", "method": "mgwfbp"})
    session, cache, made = Session(), JobCache(), []
    for net, times in (("10gbe", 1), ("10gbe", 1), ("1gbe", 2), ("10gbe", 3)):
        setup = resolve(asked.model_copy(update={"net": net}), session)
        costs = Costs(setup.device, setup.data_cluster)
        recorded = RecordedCosts(costs.context(setup.profile), costs)

        def make(recorded: RecordedCosts = recorded) -> list[Any]:
            made.append(recorded.by_size("all_reduce").of(1e6))
            return []

        cache.jobs(("key",), recorded, make)
        assert len(made) == times
    assert made[0] == made[2] < made[1]


def test_an_answer_that_was_compared_is_not_worked_out_again() -> None:
    asked: list[str] = []

    def kernel_s(kernel: Any) -> float:
        asked.append(kernel)
        return 2.0

    recorded = RecordedCosts(MethodContext(8, kernel_s=kernel_s))
    assert not recorded.same_answers({("kernel", "a"): 1.0, ("kernel", "b"): 2.0})
    assert recorded.same_answers({("kernel", "a"): 2.0})
    assert (asked, recorded.answers) == (["a"], {}), "the first that differs is enough"
    assert recorded.context.kernel_s("a") == 2.0 and asked == ["a"]
    assert recorded.answers == {("kernel", "a"): 2.0}


def test_the_garbage_collector_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the process's own: a library neither turns it off nor tunes it."""
    seen: list[bool] = []
    rule = prediction.resolve

    def watched(*args: Any) -> Any:
        seen.append(gc.isenabled())
        return rule(*args)

    before = gc.get_threshold()
    monkeypatch.setattr(prediction, "resolve", watched)
    predict(make_scenario(SMALL))
    with pytest.raises(RequestError):
        predict(make_scenario(SMALL | {"model": "nothing"}))
    assert seen == [True, True] and gc.isenabled() and gc.get_threshold() == before
    gc.disable()
    try:
        predict(make_scenario(SMALL))
        assert not gc.isenabled()  # who has turned it off finds it off
    finally:
        gc.enable()


def test_a_session_of_ones_own_sees_changed_and_new_files(folder: Path) -> None:
    """`predict` refreshes the session that it is given, as it does its own."""
    session = Session()
    wire, usual = (make_scenario(SMALL | {"net": net}) for net in ("wire", "10gbe"))
    before = predict(wire, session).iteration_s
    assert predict(usual, session).iteration_s == predict(usual, Catalog()).iteration_s
    path = folder / "networks" / "wire.toml"
    copy("1gbe", path)
    os.utime(path, ns=(1, 1))
    assert predict(wire, session).iteration_s > before
    copy("1gbe", folder / "networks" / "10gbe.toml")  # goes before the shipped one
    os.utime(folder / "networks", ns=(2, 2))
    assert predict(usual, session).iteration_s == predict(usual, Catalog()).iteration_s
    assert predict(usual, session).iteration_s == predict(wire, session).iteration_s
    path.unlink()
    with pytest.raises(RequestError, match="wire"):
        predict(wire, session)


def test_a_changed_profile_and_gpu_are_seen_by_a_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made of files goes with them: profiles, jobs, costs of kernels."""
    session, asked = Session(), make_scenario(SMALL | {"method": "dgc", "net": "wire"})
    before = predict(asked, session)
    (folder / "models").mkdir(), (folder / "devices").mkdir()
    [stem] = {Path(before.scenario.profile).stem}
    shipped_profile = shipped() / "models" / f"{stem}.csv"
    lines = shipped_profile.read_text(encoding="utf-8").splitlines(keepends=True)
    own = folder / "models" / f"{stem}.csv"
    own.write_text("".join(lines), encoding="utf-8")
    same = predict(asked, session)
    assert same.iteration_s == before.iteration_s
    assert not any("in place of the shipped one" in note for note in same.notes), "it is a copy"
    device = (shipped() / "devices" / "p102-100.toml").read_text(encoding="utf-8") + "# own\n"
    (folder / "devices" / "p102-100.toml").write_text(device, encoding="utf-8")
    other = predict(asked, session)
    assert other.to_dict()["scenario"] == before.to_dict()["scenario"]
    assert other.iteration_s == predict(asked, Catalog()).iteration_s
    assert any("p102-100 is read from" in note for note in other.warnings)


def test_records_keep_nothing_themselves() -> None:
    """What a session remembers is in what the session made, not in the records of the formulas."""
    link = custom_link("1GB/s,1ms", "x")
    cluster, device = Cluster(4, (1, 1, 1, 1), link, None), load_device("v100", Catalog())
    before = dict(vars(cluster)), dict(vars(device))
    cluster.cost("all_reduce", 1e6), device.cost(Kernel("randk_encode", 2**20, 0.0))
    assert {name for name in vars(cluster) if name not in before[0]} <= {"gpus_per_node", "uneven"}
    assert dict(vars(device)) == before[1]
    kept = RememberingCluster.like(cluster)
    assert kept.cost("all_reduce", 1e6) is kept.cost("all_reduce", 1e6)
    assert kept.cost("all_reduce", 1e6) == cluster.cost("all_reduce", 1e6)
    changed = replace(kept, background=0.5)
    assert changed.cost("all_reduce", 1e6).seconds > kept.cost("all_reduce", 1e6).seconds
    assert changed.without_traffic().cost("all_reduce", 1e6) == cluster.cost("all_reduce", 1e6)


CLUSTERS: dict[str, dict[str, Any]] = {
    "formulas": {"net": "10Gbit/s,20us"},
    "curves": {"net": "a100-nvlink3-4", "gpus": 4, "gpus_per_node": 4},
    "data sheet": {"net": "dgx-h100"},
    "gloo": {"net": "10Gbit/s,20us", "library": "gloo"},
    "mpi": {"net": "10Gbit/s,20us", "library": "mpi"},
    "traffic": {"net": "10Gbit/s,20us", "background": 0.3},
    "one GPU": {"net": "10Gbit/s,20us", "gpus": 1},
    "one node": {"net": "10Gbit/s,20us", "gpus": 4, "gpus_per_node": 4},
    "sites": {"net": "10Gbit/s,20us", "site": "8,8", "wan": "1Gbit/s,20ms"},
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_remembered_times_are_those_of_the_cluster(name: str) -> None:
    """Whatever tells them: formulas alone, whose routes are found once, or more than these."""
    asked = make_scenario({"model": "resnet50", "gpus": 16, "gpus_per_node": 1} | CLUSTERS[name])
    kept = resolve(asked, Session()).cluster
    assert isinstance(kept, RememberingCluster)
    plain = Cluster(**{field.name: getattr(kept, field.name) for field in fields(Cluster)})
    pairs = [(kept, plain)]
    if plain.gpus > 4:
        pairs.append((kept.cluster_of(4), plain.cluster_of(4)))
    compared = 0
    for mine, theirs in pairs:
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
            named = {"ring"}.intersection(find_library(plain.library).names(collective))
            for algorithm in ("auto", *named):
                for size_bytes in (1e3, 1e5, 1e7):
                    question = collective, size_bytes, algorithm
                    assert mine.timing(*question) == theirs.timing(*question)
                    assert mine.seconds(*question) == theirs.cost(*question).seconds
                    by_size = mine.by_size(collective, algorithm)
                    assert by_size is mine.by_size(collective, algorithm)
                    assert by_size.of(size_bytes) == theirs.cost(*question).seconds
                compared += bool(mine.compared_routes(collective, algorithm))
    # Of sites, the groups inside one.
    assert (compared > 0) == (name in ("formulas", "gloo", "mpi", "one node", "sites"))


def test_a_view_has_the_gpu_of_its_own_network() -> None:
    """By its curves a network tells on which GPU it was measured; one without them tells none."""
    session, name = Session(), "a100-nvlink3-4"
    asked = make_scenario({"model": "resnet50", "gpus": 4, "gpus_per_node": 4, "net": name})
    bare = load_network(name, session, "net")._replace(known=None)
    view = SessionWithNetworks(session, lambda field, name: bare)
    found = [with_gpu(asked, catalog)[0].gpu for catalog in (session, view, session, view)]
    assert found == ["a100-40gb", "v100", "a100-40gb", "v100"]


@pytest.mark.parametrize("degrees", [{"tp": 4}, {"pp": 2, "accumulate": 4}, {"tp": 2, "pp": 2}])
def test_a_view_divides_models_on_its_own_network(degrees: dict[str, int]) -> None:
    """What groups of ranks send is priced on the network that is given, whoever asked before."""
    fields = {"model": "gpt2", "gpus": 16, "gpus_per_node": 4, "gpu": "a100", "net": "10gbe"}
    asked, session = make_scenario(fields | {"batch": 4} | degrees), Session()
    nets = {net: load_network(net, session, "net") for net in ("10gbe", "1gbe")}
    alone_s = {
        net: predict(asked.model_copy(update={"net": net}), Session()).iteration_s for net in nets
    }
    assert alone_s["1gbe"] > alone_s["10gbe"]
    for net in ("1gbe", "10gbe", "1gbe"):
        given = nets[net]
        view = SessionWithNetworks(
            session, lambda field, name, given=given: given if field == "net" else None
        )
        assert predict(asked, view).iteration_s == alone_s[net]
    assert predict(asked, session).iteration_s == alone_s["10gbe"]


NODES: dict[str, Any] = {"gpus": 16, "node": "dgx-a100", "batch": 4}
ORDERS: dict[str, tuple[dict[str, Any], ...]] = {
    "widths": ({"method": "topk"}, {"reduce_dtype": "bf16"}, {"method": "dgc"}),
    "protocols": tuple(NODES | {"tp": 2, "protocol": name} for name in ("simple", "ll")),
    "algorithms": tuple(NODES | {"tp": 2, "algorithm": name} for name in ("tree", "ring")),
}


@pytest.mark.parametrize("name", ORDERS)
def test_what_was_asked_before_changes_no_answer(name: str) -> None:
    base: dict[str, Any] = {"model": "gpt2", "gpus": 8}
    asked = [make_scenario(base | more) for more in ORDERS[name]]
    alone = [predict(one, Session()) for one in asked]
    assert len({one.iteration_s for one in alone}) == len(asked)
    for order in (asked, asked[::-1]):
        session = Session()
        found = {id(one): predict(one, session) for one in order}
        for one, expected in zip(asked, alone, strict=True):
            assert found[id(one)].iteration_s == expected.iteration_s
            assert found[id(one)].baseline_s == expected.baseline_s


def test_a_view_with_other_networks_leaves_out_what_its_session_does() -> None:
    session = Session(None, {"someone"}, {"zhuangwang93"})
    view = SessionWithNetworks(session, lambda field, name: None)
    assert (view.without, view.without_kernels) == (session.without, session.without_kernels)
    assert "dgc_encode" in load_device("v100", Session()).points
    # The view reads it first, and the session keeps what the view read.
    assert "dgc_encode" not in load_device("v100", view).points
    assert "dgc_encode" not in load_device("v100", session).points


def test_each_thread_has_a_default_session_of_its_own() -> None:
    """Threads that shared one met a dictionary that changed while they looked through it."""
    with ThreadPoolExecutor(1) as thread:
        of_thread = thread.submit(default_session).result()
        assert thread.submit(default_session).result() is of_thread
    assert default_session() is default_session() is not of_thread
    asked = [
        make_scenario({"model": model, "gpus": gpus, "method": method})
        for model in ("resnet18", "gpt2")
        for gpus in (2, 8, 16)
        for method in ("ssgd", "dgc", "dear")
    ]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(predict, asked)) == list(map(predict, asked))


def _asked_of(session: Session) -> tuple[list[str], object]:
    """Return the owners of a GPU's anchors, and the points of its kernels."""
    owners = [owner_of(one.source) for one in load_anchors("v100", session)]
    return owners, load_device("v100", session).points


def test_sources_leave_out_their_own_of_files_that_are_read_once() -> None:
    whole = Session()
    all_owners, points = _asked_of(whole)
    read: dict[str, object] = {}
    with noting(read):  # type: ignore[arg-type]
        left = {
            owner: _asked_of(SourceSession(whole, {owner}, {owner}))
            for owner in ("apache", "zhuangwang93")
        }
    assert read == {}
    for owner, (owners, _) in left.items():
        assert owners == [one for one in all_owners if one != owner]
    assert "apache" in all_owners and left["apache"][1] == points
    assert left["zhuangwang93"][1] != points
    plain = Session(None, {"zhuangwang93"}, {"zhuangwang93"})
    assert _asked_of(plain) == left["zhuangwang93"]


def test_the_session_of_a_source_reads_a_file_anew_that_has_changed(tmp_path: Path) -> None:
    own = tmp_path / "devices" / "v100.anchors.csv"
    own.parent.mkdir()
    text = (shipped() / "devices" / own.name).read_text()
    own.write_text(text)
    session = SourceSession(Session(tmp_path), {"apache"})
    before = load_anchors("v100", session)
    own.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert load_anchors("v100", session) == before and session.outdated()
    session.refresh()
    assert load_anchors("v100", session) == before[:-1] and not session.outdated()
