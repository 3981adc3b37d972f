"""``perfsim calibrate network`` without a network: when a point ends, what stays, what is written.

A wire of ours stands for the communication library; its ranks are threads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.job import RankGroup, rank_groups
from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.calibrate.measure.network_sweep import (
    NetworkRequest,
    SweepPoint,
    SweepRule,
    measure_network,
    measured_curves,
    message_sizes,
    points_to_measure,
    run_sweep,
)
from perfsim.calibrate.measure.rendezvous import check_same_request, open_journal
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.network.cluster import Network, load_network
from support.fake_wire import Wire, at_once, quiet, wires
from support.sweep_points import SETTING, point

PAIR = RankGroup((0, 1), 2, 1)


def swept(rule: SweepRule, law: Callable[[str, int], float] = lambda *_: 0.01) -> list[Wire]:
    both = wires(2, law)
    points = [SweepPoint("all_reduce", PAIR, 1024)]
    assert at_once(
        *(lambda one=one: run_sweep(one, points, rule, None, quiet) for one in both)
    ) == [
        None,
        None,
    ]
    return both


def repeats(wire: Wire) -> int:
    return sum(call[3] for call in wire.calls)


def test_a_point_ends_when_it_is_tight() -> None:
    first, other = swept(SweepRule(tolerance=0.02, budget_s=100.0))
    assert first.calls == other.calls
    # A warm-up, one call, a batch of 10: all alike, so the interval is nought.
    assert [call[3] for call in first.calls] == [1, 1, 10]


def test_a_point_ends_when_its_time_is_spent() -> None:
    draw = random.Random(1)
    noisy = {}

    def law(collective: str, size: int) -> float:
        return noisy.setdefault(len(noisy), draw.uniform(0.005, 0.015))

    first = wires(1, law)[0]
    first._shared["barrier"] = Barrier(1)
    alone = RankGroup((0,), 1, 1)
    first.run = lambda c, g, s, n: (  # type: ignore[method-assign]
        first.calls.append((c, g.ranks, s, n)) or [law(c, s) for _ in range(n)]
    )
    run_sweep(
        first,
        [SweepPoint("all_reduce", alone, 1024)],
        SweepRule(tolerance=1e-9, budget_s=0.5),
        None,
        quiet,
    )
    assert 50 <= repeats(first) <= 60  # 0.5 s of 0.01 s calls, and at most a batch more
    first.calls.clear()
    run_sweep(
        first,
        [SweepPoint("all_reduce", alone, 1024)],
        SweepRule(tolerance=1e-9, budget_s=100.0),
        None,
        quiet,
    )
    assert repeats(first) == 200 + 1  # the most, and the warm-up


def test_a_call_longer_than_the_budget_is_its_own_sample(tmp_path: Path) -> None:
    both = wires(2, lambda *_: 3.0)
    journal = NetworkJournal(tmp_path / "x.part", SETTING)
    points = [SweepPoint("all_reduce", PAIR, 1024)]
    for one in both:
        one._shared["clock"] = lambda calls: 3.0 * sum(call[3] for call in calls)
    rule = SweepRule(budget_s=2.0)
    at_once(
        *(
            lambda one=one: run_sweep(one, points, rule, None if one.rank else journal, quiet)
            for one in both
        )
    )
    assert [call[3] for call in both[0].calls] == [1]
    assert journal.points[0].seconds == (3.0,) and math.isinf(journal.points[0].spread)


def test_ranks_outside_a_group_wait_for_it_and_measure_nothing() -> None:
    three = wires(3)
    points = [
        SweepPoint("all_reduce", PAIR, 1024),
        SweepPoint("all_reduce", RankGroup((0, 1, 2), 3, 1), 1024),
    ]
    at_once(*(lambda one=one: run_sweep(one, points, SweepRule(), None, quiet) for one in three))
    assert [one.joined for one in three] == [[(0, 1), (0, 1, 2)]] * 3
    assert {call[1] for call in three[2].calls} == {(0, 1, 2)}
    assert three[0].calls == three[1].calls


@pytest.mark.parametrize(
    "collectives", [("send_recv",), ("all_reduce",), ("all_reduce", "send_recv")]
)
@pytest.mark.parametrize("hosts", ["ab", "aabb", "aabbcc", "aaaabbbb"])
def test_ranks_of_a_group_call_the_same_in_the_same_order(
    hosts: str, collectives: tuple[str, ...]
) -> None:
    """Else one would wait for a call that the others do not make: the last looks too."""
    all_of = wires(len(hosts))
    points = list(points_to_measure(collectives, rank_groups(list(hosts)), (1024, 4096)))
    rule = SweepRule(budget_s=100.0)
    at_once(*(lambda one=one: run_sweep(one, points, rule, None, quiet) for one in all_of))
    for group in {one.group.ranks for one in points}:
        called = [[call for call in all_of[rank].calls if call[1] == group] for rank in group]
        assert called[0] and called == [called[0]] * len(group)


# From ranks to a file


def ring(collective: str, size_bytes: int) -> float:
    """Two hosts over 1 GB/s and 50 us: a ring of two steps, or one message."""
    steps = 1 if collective == "send_recv" else 2
    share = 1.0 if collective == "send_recv" else 0.5
    return steps * (50e-6 + share * size_bytes / 1e9)


def slower_ring(collective: str, size_bytes: int) -> float:
    """As `ring` over 50 MB/s."""
    return ring(collective, 20 * size_bytes)


def measured(
    monkeypatch: pytest.MonkeyPatch,
    wanted: NetworkRequest,
    ranks: int = 2,
    law: Callable[[str, int], float] | None = None,
    pair_law: Callable[[int, int, int], float] | None = None,
    **more: Any,
) -> tuple[list[Any], list[Wire]]:
    all_of = wires(ranks, law or ring)
    if pair_law is not None:
        all_of[0]._shared["pair_law"] = pair_law
    monkeypatch.setattr(
        "perfsim.calibrate.measure.network_sweep.open_wire", lambda launch, _: all_of[launch.rank]
    )
    # Only the main thread may set signals; the guard has its own tests.
    monkeypatch.setattr("perfsim.calibrate.measure.watch.signal.signal", lambda *_: None)
    told = [{"RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
    calls = (
        lambda rank=rank: measure_network(more.get(str(rank), wanted), quiet, told[rank])
        for rank in range(ranks)
    )
    return at_once(*calls), all_of


def load(path: Path) -> Network:
    return load_network(str(path), Catalog(), "net")


def test_a_sweep_ends_in_the_network_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", most_bytes=64 * 2**20)
    (made, nothing), _ = measured(monkeypatch, wanted)
    assert nothing is None and made.network == wanted.out
    assert made.use == f"now: perfsim predict --model resnet50 --gpus 2 --net {wanted.out}"
    network = load(wanted.out)
    assert network.links["inter"].rate.value == pytest.approx(1e9, rel=0.01)
    assert network.library == "gloo" and network.known is not None
    assert len(network.known.curves) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.curves.csv", "ours.toml"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("reduce_scatter", "gloo has no reduce_scatter. Allowed: all_reduce, send_recv."),
        ("all_reduc", "no 'all_reduc'; did you mean 'all_reduce'?"),
    ],
)
def test_a_collective_that_the_library_lacks_is_refused_and_the_job_is_left(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that ends with its process group open may be aborted by PyTorch's threads."""
    left: list[int] = []
    monkeypatch.setattr(Wire, "close", lambda self: left.append(self.rank))
    wanted = NetworkRequest(tmp_path / "ours.toml", collectives=("all_reduce", name))
    refused, _ = measured(monkeypatch, wanted)
    assert all(f"collectives: {why}" in str(one) for one in refused)
    assert sorted(left) == [0, 1] and not list(tmp_path.iterdir())


def test_an_interrupted_sweep_measures_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = NetworkRequest(
        tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=64 * 2**20
    )
    kept = message_sizes(1024, 2**20)
    begun(tmp_path / "ours.toml", kept)
    (made, _), both = measured(monkeypatch, wanted)
    again = [call for call in both[0].calls if call[2] in kept]
    assert {call[2] for call in again} == {1024, kept[len(kept) // 2], 2**20}
    assert {call[2] for call in both[0].calls} - set(kept) == set(message_sizes(2**21, 2**26))
    assert made.fit.curves[0].size_bytes == tuple(map(float, message_sizes(1024, 2**26)))
    note = load(wanted.out).notes[0]
    assert "(h0, h1; x; a CPU; interface eth0 eth0 1000 Mbit/s)" in note
    assert "; begun " in note and "; gone on " in note


def begun(
    out: Path,
    sizes: Sequence[int],
    factor: float = 1.0,
    law: Callable[[str, int], float] = ring,
) -> None:
    """Leave what an interrupted sweep of the same job leaves, ``factor`` times as slow."""
    alone = wires(2)[0]
    alone.gather = lambda told: [told]  # type: ignore[method-assign]
    journal, _ = open_journal(alone, out, fresh=False, force=False)
    assert journal is not None
    journal.add_run("begun yesterday")
    for size in sizes:
        journal.add_point(point(size, *[factor * law("all_reduce", size)] * 5))


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.4, 10.0])
def test_a_sweep_does_not_go_on_where_kept_points_no_longer_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=2**24)
    begun(wanted.out, message_sizes(1024, 2**20), factor, slower_ring)
    both, _ = measured(monkeypatch, wanted, law=slower_ring)
    for error in both:
        assert isinstance(error, RequestError)
        assert "all_reduce on 2 ranks (2 x 1) at " in str(error)
        assert str(error).endswith("so the network is another one; fresh begins anew.")
    assert not wanted.out.exists()
    (made, _), _ = measured(monkeypatch, replace(wanted, fresh=True), law=slower_ring)
    assert made.network == wanted.out and made.noticed == ()


def changes(
    monkeypatch: pytest.MonkeyPatch, wanted: NetworkRequest, after: int, factor: float
) -> list[Any]:
    """Measure on a network whose bytes take ``factor`` times as long after so many sizes."""
    seen: dict[int, list[int]] = {}

    def law(collective: str, size: int) -> float:
        # A size counts as measured with its second call: each is tried once for the reference.
        calls = seen.setdefault(size, [0])
        calls[0] += 1
        done = sum(count[0] > 2 for count in seen.values())
        return slower_ring(collective, int(size * (factor if done > after else 1.0)))

    return measured(monkeypatch, wanted, law=law)[0]


@pytest.mark.parametrize("after", [4, 10])
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_rate_that_changes_on_the_way_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, factor: float
) -> None:
    wanted = NetworkRequest(
        tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=2**22, force=True
    )
    made, _ = changes(monkeypatch, wanted, after, factor)
    found = [one for one in made.noticed if one.what == "change"]
    assert found and "all_reduce on 2 ranks (2 x 1) at 524.3 kB took" in found[0].text
    assert ("as long" if factor > 1 else "as fast") in found[0].text
    assert load(wanted.out).noticed == made.noticed
    assert found[0].text in made.report


@pytest.mark.parametrize("share", [0.015, -0.012, 0.0])
def test_a_rate_that_drifts_by_less_than_a_change_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=2**22)
    # A point takes a second: a look costs little beside it, and comes after each size.
    monkeypatch.setattr("support.fake_wire.spent", lambda calls: 1.0)
    seen: dict[int, dict[int, int]] = {}

    def law(collective: str, size: int) -> float:
        # Each rank, a thread, meets the same times.
        calls = seen.setdefault(get_ident(), {})
        calls[size] = calls.get(size, 0) + 1
        done = sum(count > 2 for count in calls.values())
        scatter = random.Random(size + calls[size]).uniform(0.995, 1.005)
        return slower_ring(collective, size) * (1.0 + share * done) * scatter

    (made, _), _ = measured(monkeypatch, wanted, law=law)
    assert load(wanted.out).noticed == made.noticed
    if not share:
        assert made.noticed == ()
        return
    assert [one.what for one in made.noticed] == ["drift"]
    assert "all_reduce on 2 ranks (2 x 1) at 524.3 kB took" in made.noticed[0].text
    assert ("(+" if share > 0 else "(-") in made.noticed[0].text


def test_a_fit_that_misses_its_points_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=2**22)

    def zigzag(collective: str, size: int) -> float:
        return ring(collective, size) * (2.5 if size.bit_length() % 2 else 1.0)

    (error, _), _ = measured(monkeypatch, wanted, law=zigzag)
    assert isinstance(error, DataError)
    assert "no network file is written, since the rate fitted to all_reduce on 2" in str(error)
    assert "stated error" in str(error) and "worst at" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["ours.part"]
    (made, _), _ = measured(monkeypatch, replace(wanted, force=True), law=zigzag)
    assert [one.what for one in made.noticed] == ["poor_fit"]
    assert load(wanted.out).noticed == made.noticed


def test_a_slow_host_is_named_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", collectives=("all_reduce",), most_bytes=2**22)

    def pair_law(first: int, other: int, size: int) -> float:
        return (10.0 if 2 in (first, other) else 1.0) * (1e-4 + size / 1e8)

    (made, *_), _ = measured(monkeypatch, wanted, ranks=4, pair_law=pair_law)
    assert [one.what for one in made.noticed] == ["slow_host", "slow_host"]
    assert {one.text.split(":")[0] for one in made.noticed} == {"h2 is slow"}


def test_a_sweep_that_tells_no_link_keeps_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = NetworkRequest(tmp_path / "ours.toml", most_bytes=4096)
    (error, _), _ = measured(monkeypatch, wanted)
    assert isinstance(error, DataError)
    assert str(error).endswith(f"what was measured is kept in {tmp_path / 'ours.part'}")
    assert [path.name for path in tmp_path.iterdir()] == ["ours.part"]


def test_ranks_with_different_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (NetworkRequest(tmp_path / "ours.toml", tolerance=one) for one in (0.02, 0.05))
    both, _ = measured(monkeypatch, first, **{"1": other})
    said = (
        "calibrate network: rank 0 on h0 was asked for tolerance 0.02, rank 1 on h1 for 0.05; start"
        " all with the same options."
    )
    assert [str(error) for error in both] == [said, said]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("ours.txt", "does not end in .toml, as a network file does."),
        ("taken.toml", "is there already; force replaces it."),
        ("none/ours.toml", "is not there."),
    ],
)
def test_where_it_is_to_go_is_checked_by_rank_0_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, said: str
) -> None:
    (tmp_path / "taken.toml").write_text("")
    both, all_of = measured(monkeypatch, NetworkRequest(tmp_path / out))
    assert str(both[0]).startswith("out: ") and str(both[0]).endswith(said)
    assert str(both[1]) == "calibrate network: rank 0 could not begin; its message says why."
    assert not all_of[0].calls


def test_what_a_collective_is_held_to_stands_on_its_own_curve() -> None:
    wire = wires(2)[0]
    wire._shared["held"] = {"all_reduce": ("ring", "ll")}
    points = [point(2048, 2e-3), point(1024, 1e-3), point(1024, 1e-4, collective="send_recv")]
    reduced, sent = measured_curves(points, wire, "eth0")
    assert (reduced.algorithm, reduced.protocol) == ("ring", "ll")
    assert (sent.algorithm, sent.protocol) == ("", "")
    assert reduced.size_bytes == (1024.0, 2048.0) and reduced.seconds == (1e-3, 2e-3)
    assert reduced.kind == "measured" and reduced.spread is None  # one repeat tells no spread


def test_open_journal_and_request_are_known_to_all(tmp_path: Path) -> None:
    both = wires(2)

    def begin(one: Wire) -> Any:
        check_same_request(one, ["h0", "h1"], {"most_bytes": 1})
        return open_journal(one, tmp_path / "x.toml", fresh=False, force=False)[1]

    assert at_once(*(lambda one=one: begin(one) for one in both)) == [set(), set()]


def test_a_path_that_leads_to_no_network_is_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.toml", tmp_path):
        text = str(missing) if missing.suffix else f"{missing}/x\0.toml"
        with pytest.raises(RequestError, match=r"net: there is no file "):
            load_network(text, Catalog(), "net")


def test_a_point_that_was_disturbed_is_measured_again_and_the_shorter_time_kept(
    tmp_path: Path,
) -> None:
    # 2048 B took 9 s in its three batches, more than 4096 B: looked at twice, it takes 2 s.
    told = {1024: [1.0], 2048: [9.0, 9.0, 9.0, 2.0], 4096: [4.0]}
    taken: dict[int, int] = {}

    def seconds(_: str, size: int) -> float:
        at = taken[size] = taken.get(size, -1) + 1
        return told[size][min(at, len(told[size]) - 1)]

    (alone,) = wires(1, seconds)
    group = RankGroup((0,), 1, 1)
    points = [SweepPoint("all_reduce", group, size) for size in told]
    journal = NetworkJournal(tmp_path / "net.part", {"library": "x"})
    run_sweep(alone, points, SweepRule(budget_s=100.0, most=5), journal, quiet)
    assert {point.size_bytes: point.median_s for point in journal.points} == {
        1024: 1.0,
        2048: 2.0,
        4096: 4.0,
    }
    # What was replaced stays replaced when the record is read again.
    again = NetworkJournal(tmp_path / "net.part", {"library": "x"})
    assert sorted(point.median_s for point in again.points) == [1.0, 2.0, 4.0]


def test_calls_that_wait_now_and_then_are_put_together_and_not_chosen_from(tmp_path: Path) -> None:
    # Half of the calls at 2048 B wait: each batch has both kinds, none is a disturbance.
    (alone,) = wires(1)
    group = RankGroup((0,), 1, 1)
    alone.run = lambda c, g, s, n: [  # type: ignore[method-assign]
        2.0 if s == 2048 and call % 2 else s / 2**20 for call in range(n)
    ]
    journal = NetworkJournal(tmp_path / "net.part", {"library": "x"})
    points = [SweepPoint("all_reduce", group, size) for size in (1024, 2048, 4096)]
    run_sweep(alone, points, SweepRule(budget_s=100.0, most=20), journal, quiet)
    (waits,) = (one for one in journal.points if one.size_bytes == 2048)
    assert len(waits.seconds) > 20 and set(waits.seconds) == {2.0, 2048 / 2**20}
    assert 0.7 < waits.mean_s < 1.1


def test_time_that_early_points_leave_goes_to_later_ones() -> None:
    rule = SweepRule(budget_s=2.0, whole_s=20.0)
    assert rule.share(4.0, 2).budget_s == 8.0
    # What they took beyond their shares, those after them do not lack.
    assert rule.share(19.0, 5).budget_s == 2.0
    assert SweepRule(budget_s=2.0).share(4.0, 2).budget_s == 2.0


def test_send_recv_is_asked_of_pairs_alone() -> None:
    pair, three = RankGroup((0, 1), 2, 1), RankGroup((0, 1, 2), 3, 1)
    found = [
        (one.collective, one.group.nodes)
        for one in points_to_measure(("all_reduce", "send_recv"), (pair, three), (8,))
    ]
    assert found == [("all_reduce", 2), ("send_recv", 2), ("all_reduce", 3)]


@given(st.integers(1, 4096), st.integers(0, 2**30))
def test_sizes_rise_by_at_most_the_factor_and_end_at_the_most(least: int, more: int) -> None:
    found = message_sizes(least, least + more)
    assert found[0] == least and found[-1] == least + more
    assert all(a < b <= 2 * a for a, b in pairwise(found))
