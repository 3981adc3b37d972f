"""Ranks meet: who is there, by which interface, and who has fallen silent."""

from __future__ import annotations

import pytest

from perfsim.calibrate.measure.job import rank_groups
from perfsim.calibrate.measure.rendezvous import (
    check_same_software,
    hosts_apart,
    interface_towards,
    meet_all_ranks,
    named_interface,
)
from perfsim.errors import RequestError
from support.fake_wire import Store, at_once, word


def test_all_ranks_hear_all_words() -> None:
    store = Store()
    found = at_once(
        *(lambda rank=rank: meet_all_ranks(store, rank, 3, word(rank), 5.0) for rank in range(3))
    )
    assert found == [[word(0), word(1), word(2)]] * 3


def test_a_rank_that_cannot_go_on_says_why_to_all_others() -> None:
    store = Store()
    said = [word(0), word(1, wrong="no such interface")]
    first, own = at_once(
        *(lambda rank=rank: meet_all_ranks(store, rank, 2, said[rank], 5.0) for rank in (0, 1))
    )
    assert str(first) == "calibrate network: rank 1 on h1 cannot go on: no such interface"
    assert own == said


def test_a_rank_that_does_not_come_is_named() -> None:
    with pytest.raises(RequestError, match=r"rank 1 of 2 has not come within 0 s; does it run"):
        meet_all_ranks(Store(), 0, 2, word(0), 0.1)


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"perfsim": "2"}, "rank 0 on h0 has perfsim 1, rank 1 on h1 has 2; install the same"),
        ({"device": "A100"}, "rank 0 on h0 has device cpu, rank 1 on h1 has A100"),
        ({"interface": "lo"}, "rank 1 on h1 would use the interface 'lo', which reaches no other"),
    ],
)
def test_ranks_of_different_things_do_not_make_one_cluster(
    differs: dict[str, str], said: str
) -> None:
    check_same_software([word(0), word(1)])
    with pytest.raises(RequestError) as refused:
        check_same_software([word(0), word(1, **differs)])
    assert said in str(refused.value)


def test_two_nodes_of_one_name_are_noticed() -> None:
    told = [word(rank, host="node", local_rank=rank % 2) for rank in range(4)]
    with pytest.raises(RequestError, match=r"ranks 0 and 2 are both number 0 on a host named"):
        check_same_software(told)
    check_same_software([word(rank, host="node", local_rank=rank) for rank in range(4)])


def test_hosts_of_one_name_are_told_apart_by_their_boot() -> None:
    told = [word(rank, host="node", boot="ab"[rank // 2], local_rank=rank % 2) for rank in range(4)]
    apart = hosts_apart(told)
    assert [rank["host"] for rank in apart] == ["node", "node", "node (2)", "node (2)"]
    check_same_software(apart)
    assert [group.name for group in rank_groups([rank["host"] for rank in apart])] == [
        "2 ranks (1 x 2)",
        "2 ranks (2 x 1)",
        "4 ranks (2 x 2)",
    ]
    alone = [word(rank, host="node", boot="ab"[rank]) for rank in range(2)]
    assert [rank["host"] for rank in hosts_apart(alone)] == ["node", "node (2)"]
    unknown = [word(rank, host="node") for rank in range(2)]
    assert hosts_apart(unknown) == unknown


def test_an_interface_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    with pytest.raises(RequestError, match=r"GLOO_SOCKET_IFNAME: .* has no interface 'eth77'"):
        named_interface("GLOO_SOCKET_IFNAME")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "^docker0")
    assert named_interface("GLOO_SOCKET_IFNAME") == "^docker0"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert named_interface("GLOO_SOCKET_IFNAME") == ""


def test_the_way_to_oneself_is_the_loopback() -> None:
    assert interface_towards("127.0.0.1") in ("lo", "lo0", "")
    assert interface_towards("no such host.") == ""
