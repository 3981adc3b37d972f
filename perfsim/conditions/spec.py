"""What a scenario says of its conditions: slow GPUs, jitter, and other jobs on the network."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from perfsim.errors import RequestError, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perfsim.conditions.measured import MeasuredJitter

__all__ = [
    "MAX_JITTER",
    "MAX_SLOWDOWN",
    "Conditions",
    "checked_names",
    "full_paths",
    "label",
    "parse_straggler",
]

MAX_SLOWDOWN = 1000.0
"""The largest factor of a straggler."""

MAX_JITTER = 0.3
"""The largest relative standard deviation. Beyond it a normal distribution has too many values
below zero (at 0.3 one in 2,300), which are cut off."""


class Conditions(NamedTuple):
    """How ranks differ.

    Parameters
    ----------
    ranks : P, all ranks
    stragglers : pairs (ranks, how many times slower they compute), of the first ranks
    jitter : relative standard deviation of a rank's computation from iteration to iteration
    seed : of the draws
    each : GPUs of a rank, which wait for each other in every layer: it takes as long as the slowest
    measured : the distribution that a rank's passes have in place of a normal one; ``jitter`` is
        then its standard deviation
    alike : ranks in a row that compute the same samples: a measured draw holds for all of them

    Notes
    -----
    Computation is all that a GPU runs: passes, update, kernels of the method. In an iteration all
    of a rank's computation takes f times as long. f is normal with mean 1 and standard deviation
    ``jitter``, cut off at 0, independent among ranks and iterations. It is normal by the central
    limit theorem: an iteration is the sum of very many kernels. Giladi et al. study synchronous
    steps, the largest of P workers' times, for computation that varies so. Rare long stalls have a
    heavier tail and are not included.

    A measured distribution is of both passes only, as it was measured. Of it f is drawn by its
    inverse, once for all GPUs of a replica, which are slow together in the traces
    (``profiles/build/jitter_record.py``).

    References
    ----------
    Giladi et al. 2023, DropCompute: simple and more robust distributed synchronous training via
    compute variance reduction, NeurIPS, arXiv 2306.10598.

    Examples
    --------
    >>> Conditions(4, ((1, 1.5), (2, 1.2))).factors().tolist()
    [1.5, 1.2, 1.2, 1.0]
    """

    ranks: int
    stragglers: tuple[tuple[int, float], ...] = ()
    jitter: float = 0.0
    seed: int = 0
    each: int = 1
    measured: MeasuredJitter | None = None
    alike: int = 1

    @property
    def varies(self) -> bool:
        """Whether chance decides which rank is waited for."""
        return self.jitter > 0 and self.ranks // self.alike * self.each > 1

    @property
    def slowest(self) -> float:
        """How many times slower than normal the slowest rank computes."""
        return max((factor for _, factor in self.stragglers), default=1.0)

    def factors(self) -> NDArray[np.float64]:
        """Return how many times slower than normal each rank computes, without jitter."""
        import numpy as np

        factors = np.ones(self.ranks)
        first = 0
        for count, factor in self.stragglers:
            factors[first : first + count] = factor
            first += count
        return factors


def parse_straggler(text: object, field: str = "straggler") -> tuple[int, float]:
    """Read GPUS:FACTOR: how many GPUs are slow, and how many times slower.

    Raises
    ------
    RequestError
        If the text has another form, or a number is out of bounds.

    Examples
    --------
    >>> parse_straggler("1:1.5")
    (1, 1.5)
    """
    count, colon, factor = str(text).partition(":")
    try:
        ranks, times = int(count), float(factor)
    except ValueError:
        colon = ""
    if not isinstance(text, str) or not colon:
        raise RequestError(
            field,
            f"{shown(text)} is not GPUS:FACTOR such as 1:1.5 (one GPU that computes 1.5"
            " times slower).",
        )
    if ranks < 1 or not 1.0 <= times <= MAX_SLOWDOWN:
        raise RequestError(
            field,
            f"{shown(text)} is not allowed: it must be 1 GPU or more and 1 to {MAX_SLOWDOWN:g}"
            " times slower, such as 1:1.5.",
        )
    return ranks, times


_MAX_OTHER_JOBS = 4
"""Other jobs that are simulated beside one."""


def checked_names(value: object) -> tuple[str, ...]:
    """Check the names of other jobs, as flags or a file give them.

    Raises
    ------
    RequestError
        If one is not a name, or there are too many.

    Examples
    --------
    >>> checked_names("bert.toml")
    ('bert.toml',)
    """
    listed = value if isinstance(value, list | tuple) else (value,)
    listed = [str(one) if isinstance(one, PurePath) else one for one in listed]
    if not all(isinstance(one, str) and one.strip() for one in listed):
        raise RequestError(
            "beside",
            "the scenario of the other job is needed, a file such as bert.toml or a"
            " shipped one (`perfsim list scenarios`).",
        )
    if len(listed) > _MAX_OTHER_JOBS:
        raise RequestError("beside", f"{len(listed)} other jobs; at most {_MAX_OTHER_JOBS}.")
    return tuple(str(one).strip() for one in listed)


def full_paths(path: Path, value: object) -> object:
    """Return the other jobs that a scenario file names; files in its folder by their full path."""
    listed = value if isinstance(value, list | tuple) else [value]
    near = [path.parent / one if isinstance(one, str) else None for one in listed]
    return [
        str(file) if file is not None and file.is_file() else one
        for one, file in zip(listed, near, strict=True)
    ]


def label(name: str) -> str:
    """Return the name of another job, as messages call it.

    Examples
    --------
    >>> label("jobs/bert.toml")
    'bert'
    """
    return Path(name).name.removesuffix(".toml")
