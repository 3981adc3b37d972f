"""Answers of the gallery in one or two plain sentences, made of what each command found.

One function a question, named after it; a module a section of the gallery. What a sentence says
without a number (faster, seldom, no) is asserted on the numbers, so that it cannot outlive them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.gallery_answers import cluster, compression, language, running, sharding, trouble

SECTIONS = (compression, cluster, running, language, sharding, trouble)


def __getattr__(question: str) -> Callable[[Any], str]:
    """Return the function that answers a question, whichever section it stands in."""
    for section in SECTIONS:
        if question in vars(section):
            answer: Callable[[Any], str] = vars(section)[question]
            return answer
    raise AttributeError(f"no answer to {question!r}")
