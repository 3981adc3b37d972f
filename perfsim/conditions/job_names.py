"""Names of other jobs on the same network, as flags and files give them and words say them."""

from __future__ import annotations

from pathlib import Path

from perfsim.errors import RequestError

__all__ = ["checked_names", "found_from", "label"]

MOST_BESIDE = 4
"""Other jobs that are followed beside one."""


def checked_names(value: object) -> tuple[str, ...]:
    """Return the names of other jobs as flags or a file give them.

    Raises
    ------
    RequestError
        If one is no name, or there are too many.

    Examples
    --------
    >>> checked_names("bert.toml")
    ('bert.toml',)
    """
    listed = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, str) and one.strip() for one in listed):
        raise RequestError(
            "--beside: the scenario of the other job is needed, a file such as bert.toml or a"
            " shipped one (`perfsim list scenarios`)."
        )
    if len(listed) > MOST_BESIDE:
        raise RequestError(f"--beside: {len(listed)} other jobs; at most {MOST_BESIDE}.")
    return tuple(str(one).strip() for one in listed)


def found_from(path: Path, value: object) -> object:
    """Return the other jobs that a scenario file names, files beside it by their whole path."""
    listed = value if isinstance(value, list | tuple) else [value]
    near = [path.parent / one if isinstance(one, str) else None for one in listed]
    return [
        str(file) if file is not None and file.is_file() else one
        for one, file in zip(listed, near, strict=True)
    ]


def label(name: str) -> str:
    """Return how another job is called.

    Examples
    --------
    >>> label("jobs/bert.toml")
    'bert'
    """
    return Path(name).name.removesuffix(".toml")
