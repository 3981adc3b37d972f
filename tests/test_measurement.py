"""Measurements: shipped rows are whole, damaged ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.catalog import Catalog, shipped
from perfsim.errors import DataError
from perfsim.measurement import load_measurements, read_measurements

SHIPPED = sorted(shipped().glob("measurements/*.csv"))


def test_ids_are_unique_and_test_rows_have_a_scenario() -> None:
    rows = load_measurements(Catalog())
    assert len({row.id for row in rows}) == len(rows) > 0
    scenarios = Catalog().scenarios()
    for row in rows:
        assert (row.scenario in scenarios) if row.role == "test" else not row.scenario


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",test,", ",tset,", ["column 'role'", "'tset'", "calibration, test, excluded"]),
        (",samples/s,", ",GB,", ["column 'unit'", "'GB'"]),
        ("1795.74", "17x5.74", ["column 'value'", "'17x5.74'"]),
        ("measurements/1", "measurements/2", ["schema", "perfsim/measurements/2"]),
        (",metric,", ",metrics,", ["metric"]),
        (",8,hkbu", ",8.5,hkbu", ["column 'gpus'", "whole"]),
    ],
)
def test_damage_is_named(old: str, new: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(SHIPPED[0].read_text().replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_measurements(path)
    for word in ("mine.csv", *words):
        assert word in str(caught.value)
