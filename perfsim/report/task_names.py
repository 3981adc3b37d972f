"""Words for the names of tasks, buckets and parts: what a reader knows in place of our numbers.

The JSON keeps the names themselves, such as ``all_gather 0.unit 3``: the collective, the iteration
in the round, and the method's job.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perfsim.methods import method_class
from perfsim.methods.base import COMPRESSING
from perfsim.report.terminal import SHORT_PART_NAMES

if TYPE_CHECKING:
    from perfsim.planning.explain import Exposed, PathStep

__all__ = ["METHOD_KERNELS", "bucket_words", "compresses", "kind_words", "part_words", "task_words"]

METHOD_KERNELS = "method's kernels"
"""What a method's kernels are called where it compresses nothing: copies, casts, averages."""

_JOB = re.compile(r"(\d+)\.(.+)")
"""The iteration in its round, and the job's name."""

_NUMBERED = re.compile(r"(unit|again|sum|inner|)\s?([\d.]+)")
_NUMBERED_WORDS = {
    "": "bucket {}",
    "inner": "inner bucket {}",
    "unit": "unit {}",
    "again": "unit {} again",
    "sum": "unit {}",
}
_OF_UNITS = ("unit", "again", "sum")

_OF_AXIS = re.compile(r"(tp|cp|ep|pp|ends) (forward|backward|update|pipeline)\b.*")
"""A message of a divided model's own: its group, and the pass that sends it."""


def compresses(method: str) -> bool:
    """Tell whether a method is of a family that compresses gradients."""
    return method_class(method).family in COMPRESSING


def part_words(part: str, method: str) -> str:
    """Return a part of an iteration, or a cause, as a reader knows it.

    Examples
    --------
    >>> part_words("compression", "dgc"), part_words("compression", "fsdp")
    ('compression', "method's kernels")
    """
    if part == "compression" and not compresses(method):
        return METHOD_KERNELS
    return SHORT_PART_NAMES.get(part, part)


def kind_words(kind: str, method: str) -> str:
    """Return a kind of task as a reader knows it."""
    kernel = kind in ("compress", "decompress") and not compresses(method)
    return METHOD_KERNELS if kernel else kind.replace("_", " ")


def bucket_words(row: Exposed, *, several: bool = False) -> str:
    """Return what is sent as a reader knows it; with its iteration if there are ``several``.

    Examples
    --------
    >>> from perfsim.planning.explain import Exposed
    >>> bucket_words(Exposed(0, "0.sum 13", "reduce_scatter", 1.0, 1.0, 1.0))
    'reduce-scatter of unit 13'
    >>> bucket_words(Exposed(0, "1.7", "all_reduce", 1.0, 1.0, 1.0), several=True)
    'bucket 7, iteration 2'
    """
    words, iteration, of_units = _job_words(row.bucket)
    if of_units:
        words = f"{row.collectives.partition(' + ')[0].replace('_', '-')} of {words}"
    return words if iteration is None or not several else f"{words}, iteration {iteration + 1}"


def task_words(step: PathStep, method: str) -> str:
    """Return one task of a path as a reader knows it.

    Examples
    --------
    >>> from perfsim.planning.explain import PathStep
    >>> task_words(PathStep("all_gather 0.again 3", "communication", "communicate", 0, 1), "fsdp")
    'all-gather of unit 3 again'
    >>> task_words(PathStep("compress 0.unit 3", "copy in", "compress", 0, 1), "fsdp")
    'kernels, unit 3'
    >>> task_words(PathStep("backward 0.sum 3", "compute", "backward", 0, 1), "fsdp")
    'backward, to unit 3'
    """
    what, _, rest = step.task.partition(" ")
    words, _, of_units = _job_words(rest)
    if step.kind == "communicate":
        what = what.replace("_", "-")
        joint = " of " if of_units or words.startswith("bucket ") else ", "
        return f"{what}{joint}{words.removeprefix(f'{what} ')}" if words else what
    if step.kind in ("forward", "backward", "update"):
        _, dot, job = rest.partition(".")
        if not dot:
            return what
        if step.kind == "update":
            return f"{what}, {words}"
        if step.kind == "forward":
            return f"{what}, part {int(job) + 1}" if job.isdecimal() else f"{what}, to {words}"
        return f"{what}, to {'its end' if job == 'end' else words}"
    kernels = "kernels" if kind_words(step.kind, method) == METHOD_KERNELS else step.kind
    return f"{kernels.replace('_', ' ')}, {words}" if words else kernels


def _job_words(bucket: str) -> tuple[str, int | None, bool]:
    """Return a job's words, its iteration, and whether it is of a unit of sharded parameters.

    Messages of a divided model's own are of no job; they have no iteration.
    """
    found = _JOB.fullmatch(bucket)
    if found is None:
        of_axis = _OF_AXIS.fullmatch(bucket)
        return f"{of_axis[1]} {of_axis[2]}" if of_axis else bucket, None, False
    iteration, job = int(found[1]), found[2]
    numbered = _NUMBERED.fullmatch(job)
    if numbered is None:
        return job, iteration, False
    return _NUMBERED_WORDS[numbered[1]].format(numbered[2]), iteration, numbered[1] in _OF_UNITS
