"""The command that holds random scenarios to laws finds what breaks one."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from scripts import random_laws
from scripts.random_laws import asked_of_the_command_line, broken, drawn, variations

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
        # A B200 takes longer by what its kernels of compression do.
        compression = {"h100": 0.0, "b200": 0.3}[scenario.gpu]
        return SimpleNamespace(
            iteration_s=seconds + compression,
            iteration_s_interval=(0.5, 0.9),
            breakdown_s={"forward": 0.1, "backward": 0.2, "compression": compression},
            memory_bytes={"state": 8.0 if scenario.recompute == "none" else 9.0, "overhead": 1.0},
            communication={"bytes_per_gpu": 1.0},
        )

    monkeypatch.setattr(random_laws, "predict", predicted)
    laws = [law.name for law in variations(FIELDS)]
    assert laws[:2] == ["a faster link", "a newer board"]
    assert broken(FIELDS, Session()) == [
        "its iteration is in its interval",
        "a faster link: 2.000 times as much",
        "recomputation: memory: 1.125 times as much",
    ]


def test_the_command_line_has_the_same_answer() -> None:
    want = predict(make_scenario(FIELDS)).iteration_s
    assert asked_of_the_command_line(FIELDS) == want
