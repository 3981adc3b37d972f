"""The job's store: waiting for all ranks; what a user's variables hold collectives to."""

from __future__ import annotations

import pytest

from perfsim.calibrate.measure.mpi_wire import MpiWire
from perfsim.calibrate.measure.torch_wire import TorchWire, wait_for_all
from support.fake_wire import Store, at_once


def test_waiting_for_all_ends_when_all_have_come_or_time_is_up() -> None:
    store = Store()
    assert at_once(*[lambda: wait_for_all(store, "x", 3)] * 3) == [True] * 3
    assert not wait_for_all(store, "y", 2, patience_s=0.05)


def test_what_nccl_is_held_to_stands_on_its_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = object.__new__(TorchWire)
    monkeypatch.setenv("NCCL_ALGO", "allreduce:Tree")
    monkeypatch.setenv("NCCL_PROTO", "LL128")
    wire._gpu = True
    assert wire.held("all_reduce") == ("tree", "ll128")
    assert wire.held("all_gather") == ("", "ll128")
    monkeypatch.setenv("NCCL_ALGO", "Ring,Tree")
    assert wire.held("all_reduce") == ("", "ll128"), "it has a choice"
    wire._gpu = False
    assert wire.held("all_reduce") == ("", ""), "gloo reads none of NCCL's"


@pytest.mark.parametrize("word", ["4", "ring", "RING"])
def test_open_mpi_is_held_where_dynamic_rules_are_on(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = object.__new__(MpiWire)
    monkeypatch.setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", word)
    monkeypatch.delenv("OMPI_MCA_coll_tuned_use_dynamic_rules", raising=False)
    assert wire.held("all_reduce") == ("", ""), "the variable alone changes nothing"
    monkeypatch.setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "true")
    assert (wire.held("all_reduce"), wire.held("all_gather")) == (("ring", ""), ("", ""))
    monkeypatch.setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", "0")
    assert wire.held("all_reduce") == ("", "")
