"""The command that holds random scenarios to laws finds what breaks one."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.session import Session
from scripts import random_laws
from scripts.random_laws import broken, drawn, variations

FIELDS = {"model": "llama3-8b", "gpu": "h100", "net": "10gbe", "gpus": 16, "batch": 1, "seq": 1024}


def test_the_same_seed_draws_the_same_scenarios() -> None:
    first, again, other = ([*islice(drawn(seed), 5)] for seed in (1, 1, 2))
    assert first == again != other


def test_some_answers_of_today_obey_the_laws() -> None:
    session = Session()
    found = [broken(fields, session) for fields in (FIELDS, FIELDS | {"model": "vit-b16", "ep": 2})]
    assert found == [[], None]


def test_what_breaks_a_law_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that all take as long but for a faster link, which takes twice as long."""

    def predicted(scenario: Any, session: Session) -> Any:
        if scenario.accumulate > 1:
            raise RequestError("accumulate", "is refused.")
        seconds = 1.0 if scenario.net == FIELDS["net"] else 2.0
        return SimpleNamespace(iteration_s=seconds, iteration_s_interval=(0.5, 0.9))

    monkeypatch.setattr(random_laws, "predict", predicted)
    laws = [law for law, *_ in variations(FIELDS)]
    assert laws[:2] == ["a faster link", "a newer board"]
    assert broken(FIELDS, Session()) == [
        "its iteration is in its interval",
        "a faster link: 2.000 times as long",
    ]
