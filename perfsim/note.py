"""A note: one sentence on a prediction, and how much it matters to who reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

__all__ = ["Note", "NoteGrade", "assumption", "briefs", "of_grade", "warning"]

NoteGrade = Literal["warning", "assumption", "remark"]
"""``warning``: may change a decision. ``assumption``: a value that was not asked for. ``remark``:
where a number comes from."""


class Note(str):
    """A sentence with a grade; wherever texts are listed it is one of them.

    A text that is put together from a note (by an f-string, say) is no note any more.

    Parameters
    ----------
    grade : how much it matters
    brief : the same in a few words, for a screen that has a line for it; the sentence if empty
    """

    grade: NoteGrade
    brief: str

    __slots__ = ("brief", "grade")

    def __new__(cls, text: str, grade: NoteGrade = "remark", brief: str = "") -> Note:
        """Make a note of a text."""
        note = super().__new__(cls, text)
        note.grade = grade
        note.brief = brief or text
        return note

    def __reduce__(self) -> tuple[type[Note], tuple[str, NoteGrade, str]]:
        """Return what a copy in another process is made of."""
        return Note, (str(self), self.grade, self.brief)


def warning(text: str, brief: str = "") -> Note:
    """Return a note that may change what its reader decides.

    Examples
    --------
    >>> warning("It does not fit.").grade
    'warning'
    """
    return Note(text, "warning", brief)


def assumption(text: str, brief: str) -> Note:
    """Return a note on a value that was not asked for; ``brief`` is the value as it is asked for.

    Examples
    --------
    >>> assumption("4 GPUs a node (the default).", "`gpus_per_node` 4").brief
    '`gpus_per_node` 4'
    """
    return Note(text, "assumption", brief)


def of_grade(notes: Iterable[str], grade: NoteGrade) -> list[str]:
    """Return the notes of one grade as they are; a text that is no note is a remark.

    Examples
    --------
    >>> of_grade(["a remark", warning("It does not fit.")], "warning")
    ['It does not fit.']
    """
    return [note for note in notes if getattr(note, "grade", "remark") == grade]


def briefs(notes: Iterable[str], grade: NoteGrade) -> list[str]:
    """Return the notes of one grade in a few words each.

    Examples
    --------
    >>> briefs([assumption("4 GPUs a node (the default).", "`gpus_per_node` 4")], "assumption")
    ['`gpus_per_node` 4']
    """
    return [getattr(note, "brief", note) for note in of_grade(notes, grade)]
