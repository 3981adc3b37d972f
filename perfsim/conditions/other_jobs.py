"""Other jobs on the network: the scenario of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfsim.conditions.spec import label
from perfsim.errors import PerfsimError, RequestError
from perfsim.note import assumption
from perfsim.scenario import parse_types

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.scenario import Scenario

__all__ = ["other_job"]

_NETWORK_FIELDS = ("net", "oversubscription", "background")
"""Fields that another job takes from the job that is asked about: they are on one network."""


def other_job(name: str, scenario: Scenario, catalog: Catalog) -> tuple[Scenario, list[str]]:
    """Return the scenario of another job on the network of this one, and the notes on it.

    Raises
    ------
    RequestError
        If there is no such scenario, it is wrong, or it cannot be simulated beside another job.
    DataError
        If its file is damaged.
    """
    from perfsim.methods import AUTO_METHOD
    from perfsim.scenario import make_scenario
    from perfsim.scenario_file import read_fields

    try:
        path = catalog.scenario(name)
    except RequestError as error:
        raise type(error)("beside", error.why, value=name, nearest=error.nearest) from None
    fields = read_fields(path)
    own = fields.get("net") or fields.get("node")
    for field in ("beside", "jitter"):
        if fields.get(field):
            raise RequestError(
                "beside", f"{Path(name).name} sets {field}, which another job cannot have."
            )
    fields |= {field: getattr(scenario, field) for field in _NETWORK_FIELDS}
    try:
        other = make_scenario(fields, Path(name).name)
    except RequestError as error:
        raise error.within("`beside`") from None
    except PerfsimError as error:
        raise RequestError("beside", str(error)) from None
    if other.method.lower() == AUTO_METHOD:
        raise RequestError(
            "beside", f"{Path(name).name}: the method is auto; name the one that it runs."
        )
    if len(parse_types(other.gpu)) > 1:
        raise RequestError(
            "beside",
            f"{Path(name).name} has several types of GPU ({other.gpu}), which is not simulated"
            " beside another job.",
        )
    notes: list[str] = []
    if own not in (None, scenario.net):
        notes.append(
            assumption(
                f"{label(name)} is put on the network of this job, {scenario.net}, in place of"
                f" {own} in its file.",
                f"{label(name)} on {scenario.net}",
            )
        )
    return other, notes
