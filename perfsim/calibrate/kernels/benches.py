"""All benches, in the order that they are measured: those first that methods read most."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.calibrate.kernels.bench import Bench
from perfsim.calibrate.kernels.decomposing import DECOMPOSING
from perfsim.calibrate.kernels.place import Place
from perfsim.calibrate.kernels.products import PRODUCTS, RATES
from perfsim.calibrate.kernels.quantising import QUANTISING
from perfsim.calibrate.kernels.scattering import SCATTERING
from perfsim.calibrate.kernels.selecting import SELECTING
from perfsim.calibrate.kernels.streaming import STREAMING
from perfsim.errors import unknown

__all__ = ["chosen", "everything"]


def everything(place: Place) -> list[Bench]:
    """Return the benches that run at a place."""
    rates = [RATES[precision] for precision in place.precisions()]
    all_of_them = (
        *STREAMING,
        *rates,
        *SELECTING,
        *SCATTERING,
        *QUANTISING,
        *PRODUCTS,
        *DECOMPOSING,
    )
    return [bench for bench in all_of_them if place.gpu or bench.only != "cuda"]


def chosen(place: Place, names: Sequence[str]) -> list[Bench]:
    """Return the benches of some names, of all where none is given.

    Raises
    ------
    RequestError
        If a name is no bench here.
    """
    benches = everything(place)
    known = [bench.name for bench in benches]
    for name in names:
        if name not in known:
            raise unknown("--kernels", name, known)
    return [bench for bench in benches if not names or bench.name in names]
