"""A session keeps files, jobs and the order of tasks, and never an answer."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest

from perfsim import prediction
from perfsim import session as sessions
from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import RequestError
from perfsim.methods.base import MethodContext
from perfsim.prediction import predict
from perfsim.scenario import Scenario, make_scenario
from perfsim.session import JobCache, RecordedCosts, Session, default_session

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


def test_a_warm_prediction_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    predict(make_scenario(SMALL))
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


def test_the_oldest_jobs_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_KEPT_TASKS", 6)
    kept, asked, made = JobCache(), RecordedCosts(MethodContext(8)), []

    def of(key: str, count: int) -> list[Any]:
        def make() -> list[Any]:
            made.append(key)
            return [key] * count

        return kept.of((key,), None, asked, make)

    of("a", 1), of("b", 1), of("a", 1)
    assert made == ["a", "b"]
    of("c", 2)  # with the key itself 2 + 2 + 3 is too much
    of("b", 1), of("c", 2), of("a", 1)
    assert made == ["a", "b", "c", "a"]
    assert of("d", 20) == of("d", 20) == ["d"] * 20  # the last one is kept whatever its size
    assert made == ["a", "b", "c", "a", "d"]


def test_garbage_is_not_looked_for_while_a_prediction_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []
    rule = prediction.resolve

    def watched(*args: Any) -> Any:
        seen.append(gc.isenabled())
        return rule(*args)

    monkeypatch.setattr(prediction, "resolve", watched)
    predict(make_scenario(SMALL))
    with pytest.raises(RequestError):
        predict(make_scenario(SMALL | {"model": "nothing"}))
    assert seen == [False, False] and gc.isenabled()
    gc.disable()
    try:
        predict(make_scenario(SMALL))
        assert not gc.isenabled()  # who has turned it off finds it off
    finally:
        gc.enable()
