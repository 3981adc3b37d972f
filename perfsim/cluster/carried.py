"""How wrong carried collectives have been: the 90 % interval of what no curve shows directly."""

from __future__ import annotations

from functools import cache

from perfsim.catalog import shipped
from perfsim.limits import SPREAD
from perfsim.table import number, read_table

__all__ = ["COLUMNS", "FILE", "SCHEMA", "growth_error", "interpolation_error"]

FILE = "networks/growth_errors.csv"
"""Written by ``python -m perfsim.validate.nccl.record``."""

SCHEMA = "perfsim/growth-errors/1"
COLUMNS = ("question", "ratio_up_to", "count", "median", "p90", "plain_median", "plain_p90")


@cache
def _errors() -> tuple[tuple[float, float], ...]:
    path = shipped() / FILE
    return tuple(
        (
            number(cells["ratio_up_to"], "ratio_up_to", path, row),
            number(cells["p90"], "p90", path, row, within=SPREAD),
        )
        for row, cells in read_table(path, SCHEMA, COLUMNS)
    )


def growth_error(ratio: float) -> float:
    """Return the relative 90 % half-width of a time carried to ``ratio`` times the ranks.

    The 90th percentile of the absolute relative errors that the same laws make on measured
    clusters; a ratio below 1 is as far as its inverse, 1 is another collective of the same ranks.
    """
    away = max(ratio, 1.0 / ratio)
    found = _errors()
    return next((p90 for most, p90 in found if away <= most), found[-1][1])


def interpolation_error() -> float:
    """Return the relative 90 % half-width of a time between two measured sizes.

    From every second size of measured curves, read between the others: half as dense as the
    curves themselves are, so an upper bound for them.
    """
    return _errors()[0][1]
