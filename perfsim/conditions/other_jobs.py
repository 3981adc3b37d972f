"""Other jobs on the same network: the scenarios that they are described by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfsim.conditions.spec import label
from perfsim.errors import PerfsimError, RequestError
from perfsim.scenario import parse_types

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.scenario import Scenario

__all__ = ["NETWORK", "other_job"]

NETWORK = ("net", "oversubscription", "background")
"""What another job takes over from the one that is asked about: they are on one network."""


def other_job(name: str, scenario: Scenario, catalog: Catalog) -> tuple[Scenario, list[str]]:
    """Return the scenario of another job on the network of this one, and what is to be said.

    Raises
    ------
    RequestError
        If there is no such scenario, it is wrong, or it cannot be followed beside another.
    DataError
        If its file is damaged.
    """
    from perfsim.methods import AUTO_METHOD
    from perfsim.scenario import Scenario, make_scenario
    from perfsim.scenario_file import read_scenario

    try:
        path = catalog.scenario(name)
    except RequestError as error:
        raise RequestError("beside", error.why, value=name, nearest=error.nearest) from None
    fields = dict(read_scenario(path)["scenario"])
    own = fields.get("net", Scenario.model_fields["net"].default)
    for field in ("beside", "jitter"):
        if fields.get(field):
            raise RequestError(
                "beside", f"{Path(name).name} has {field} itself; a job beside another has none."
            )
    fields |= {field: getattr(scenario, field) for field in NETWORK}
    try:
        found = make_scenario(fields, Path(name).name)
    except RequestError as error:
        raise error.within("`beside`") from None
    except PerfsimError as error:
        raise RequestError("beside", str(error)) from None
    if found.method.lower() == AUTO_METHOD:
        raise RequestError("beside", f"{Path(name).name}: method auto; name the one that it runs.")
    if len(parse_types(found.gpu)) > 1:
        raise RequestError(
            "beside",
            f"{Path(name).name}: GPUs of several types ({found.gpu}) are not followed"
            " beside another job.",
        )
    notes = []
    if own != scenario.net:
        notes.append(
            f"{label(name)} is on the network of this job, {scenario.net}, in place of {own} in its"
            " file."
        )
    return found, notes
