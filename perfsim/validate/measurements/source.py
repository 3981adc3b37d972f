"""Where cases come from: a table that is given, or every table that ships."""

from __future__ import annotations

from pathlib import Path

from perfsim.data.catalog import Catalog
from perfsim.errors import DataError
from perfsim.validate.measurements.case import Case, read_cases

__all__ = ["cases_of", "shipped_cases"]


def cases_of(path: Path | None, catalog: Catalog) -> list[Case]:
    """Return the cases of a table, or of all that the catalog finds for None.

    Raises
    ------
    DataError
        If a table is damaged, or two tables have a row of the same id.
    """
    return shipped_cases(catalog) if path is None else read_cases(path)


def shipped_cases(catalog: Catalog) -> list[Case]:
    """Return the cases of every table in the catalog's folders of measurements."""
    found: dict[str, Case] = {}
    for path in catalog.files("measurements").values():
        for case in read_cases(path):
            if case.id in found:
                raise DataError(f"{case.id!r} stands in another table too", path=path, column="id")
            found[case.id] = case
    return list(found.values())
