"""Software eras: which framework, of which time, runs the kernels and launches them.

A scenario names one era (``software``) and every kernel and launch is priced for it, the model's
and the method's alike. Measured rows use the era of their source.
"""

from __future__ import annotations

from typing import NamedTuple

from perfsim.errors import unknown

__all__ = ["ERAS", "NEWEST", "SoftwareEra", "software_era"]


class SoftwareEra(NamedTuple):
    """One era of training software: its name, what it means, and the year it stands for."""

    name: str
    title: str
    year: int


ERAS: dict[str, SoftwareEra] = {
    era.name: era
    for era in (
        SoftwareEra("mxnet-2017", "MXNet 1.x, symbolic executor, 2017 to 2019", 2017),
        SoftwareEra("tensorflow-2017", "TensorFlow 1.x, graph mode, 2017 to 2020", 2017),
        SoftwareEra("torch1.1", "PyTorch before 1.6, eager, 2018 to 2020", 2019),
        SoftwareEra("torch1.8", "PyTorch 1.6 to 1.10, eager, 2020 to 2021", 2021),
        SoftwareEra("torch1.12", "PyTorch 1.11 to 1.13, eager, 2022", 2022),
        SoftwareEra("torch2", "PyTorch 2, eager", 2024),
        SoftwareEra("torch2-compiled", "PyTorch 2 with torch.compile", 2024),
        SoftwareEra("mlperf", "captured in CUDA graphs and fused, as MLPerf submitters tune", 2024),
    )
}
"""Every era by the name that ``software`` takes, oldest first."""

NEWEST = "torch2"
"""The default: what `pip install torch` runs today without further work."""


def software_era(name: str) -> SoftwareEra:
    """Return an era by its name.

    Raises
    ------
    RequestError
        If there is no such era; the message gives the nearest name.

    Examples
    --------
    >>> software_era("torch2").year
    2024
    """
    if name not in ERAS:
        raise unknown("software", name, ERAS)
    return ERAS[name]
