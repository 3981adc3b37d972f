"""Entering an algorithm: what the decorator keeps of a formula, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perfsim import collectives
from perfsim.collectives import Hops, Line, Parts, algorithm, algorithms, find_algorithm
from perfsim.errors import RequestError

PAIR = Hops.flat(2, 1e-5, 1e-9)
ALONE = Hops.flat(1, 1e-5, 1e-9)


@pytest.fixture(autouse=True)
def _entered_for_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take what a test enters out again, here and in what was looked up meanwhile."""
    algorithms()
    monkeypatch.setattr(collectives, "_REGISTRY", dict(collectives._REGISTRY))
    algorithms.cache_clear()
    yield
    algorithms.cache_clear()
    find_algorithm.cache_clear()


def formula_in(module: str, seconds: float = 1.0) -> Callable[[float, Hops], Parts]:
    """Return a formula that stands in a module: ``seconds`` of latency, and of each byte."""

    def made_up(size_bytes: float, hops: Hops) -> Parts:
        return Parts(seconds, seconds * size_bytes)

    made_up.__module__ = module
    return made_up


def twice(size_bytes: float, hops: Hops) -> float:
    return 2.0 * size_bytes


def never(hops: Hops) -> str:
    return "is made up"


def one_line(hops: Hops) -> Line:
    return Line(1, 0, 1.0, hops.beta_s_per_byte)


def test_what_is_said_of_an_algorithm_is_kept() -> None:
    formula = formula_in("perfsim.collectives.made_up")
    enter = algorithm(
        "broadcast",
        "made_up",
        sent_bytes=twice,
        latency="tree",
        automatic=False,
        blocks=True,
        flows="pairs",
        one_rank=True,
        needs="a test",
        refusal=never,
        line=one_line,
    )
    assert enter(formula) is formula
    assert algorithms()["broadcast"] == ("binomial", "chain", "made_up", "split_binary")
    found = find_algorithm("broadcast", "made-up")
    assert (found.collective, found.name) == ("broadcast", "made_up")
    assert found.formula(3.0, PAIR) == Parts(1.0, 3.0)
    assert found.sent_bytes(3.0, PAIR) == 6.0
    assert (found.latency, found.automatic, found.blocks) == ("tree", False, True)
    assert (found.flows, found.one_rank, found.needs) == ("pairs", True, "a test")
    assert found.refusal(PAIR) == "is made up"
    assert found.line is one_line


def test_what_is_not_said_of_an_algorithm_is_what_most_have() -> None:
    """A ring that NCCL considers, of all ranks and whole messages; anybody can use it."""
    algorithm("push", "made_up", sent_bytes=twice)(formula_in("perfsim.collectives.made_up"))
    found = find_algorithm("push", "made_up")
    assert (found.latency, found.automatic, found.blocks) == ("ring", True, False)
    assert (found.flows, found.one_rank, found.needs) == ("ring", False, "")
    assert found.refusal(PAIR) == ""
    assert found.line is None


def test_one_rank_is_answered_without_the_formula() -> None:
    algorithm("pull", "made_up", sent_bytes=twice)(formula_in("perfsim.collectives.made_up"))
    found = find_algorithm("pull", "made_up")
    assert found.formula(3.0, ALONE) == Parts(0.0, 0.0)
    assert found.sent_bytes(3.0, ALONE) == 0.0


def test_a_file_that_is_read_again_replaces_what_it_entered() -> None:
    for seconds in (1.0, 5.0):
        formula = formula_in("perfsim.collectives.made_up", seconds)
        algorithm("pull", "made_up", sent_bytes=twice)(formula)
    assert find_algorithm("pull", "made_up").formula(0.0, PAIR) == Parts(5.0, 0.0)


def test_a_name_in_two_files_is_refused() -> None:
    enter = algorithm("all_reduce", "ring", sent_bytes=twice)
    with pytest.raises(ValueError, match=r"^all_reduce ring is in two files") as error:
        enter(formula_in("perfsim.collectives.made_up"))
    assert str(error.value) == (
        "all_reduce ring is in two files: perfsim.collectives.all_reduce and"
        " perfsim.collectives.made_up"
    )


def test_a_name_may_stand_under_two_collectives() -> None:
    algorithm("pull", "ring", sent_bytes=twice)(formula_in("perfsim.collectives.made_up"))
    assert algorithms()["pull"] == ("one_way", "ring", "sharded")
    assert find_algorithm("all_reduce", "ring").formula.__module__ == (
        "perfsim.collectives.all_reduce"
    )


def test_a_collective_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no collective 'allreduce'") as error:
        algorithm("allreduce", "made_up", sent_bytes=twice)
    assert str(error.value) == (
        "no collective 'allreduce'; there are all_reduce, reduce_scatter, all_gather, broadcast,"
        " reduce, all_to_all, send_recv, push, pull"
    )


@pytest.mark.parametrize("module", ["elsewhere", "perfsim.collectives_of_mine", "__main__"])
def test_a_formula_outside_the_folder_is_not_entered(module: str) -> None:
    formula = formula_in(module)
    assert algorithm("push", "made_up", sent_bytes=twice)(formula) is formula
    assert algorithms()["push"] == ("one_way", "sharded")
    with pytest.raises(RequestError) as error:
        find_algorithm("push", "made_up")
    assert error.value.value == "made_up"
