"""Look up what is known of an object by the object itself, or by a value that is hashed once.

Stages and jobs are values: hashing one takes longer than what is looked up, and the same one is
asked about again and again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ByIdentity", "HashedOnce", "Identity"]

T = TypeVar("T")


class ByIdentity(Generic[T]):
    """Values by object. It holds the objects too, so that none is taken for another.

    Examples
    --------
    >>> known, one = ByIdentity(), ["a list"]
    >>> known.keep(one, 1), known.get(one), known.get(["a list"])
    (1, 1, None)
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, T]] = {}

    def __len__(self) -> int:
        """Return how many objects have a value."""
        return len(self._known)

    def get(self, one: object) -> T | None:
        """Return the value of an object, if it has one."""
        found = self._known.get(id(one))
        return None if found is None else found[1]

    def keep(self, one: object, value: T) -> T:
        """Keep the value of an object, and return it."""
        self._known[id(one)] = one, value
        return value


class Identity:
    """An object as part of a key: equal to itself alone.

    Examples
    --------
    >>> one = ["a list"]
    >>> Identity(one) == Identity(one), Identity(one) == Identity(["a list"])
    (True, False)
    """

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __hash__(self) -> int:
        """Return a number that no other object has as long as this one is held."""
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        """Tell whether the other is of the same object."""
        return isinstance(other, Identity) and self.of is other.of


class HashedOnce:
    """A value as part of several keys, whose hash is worked out once, when it is asked for.

    Examples
    --------
    >>> one = HashedOnce((1, "two"))
    >>> one == HashedOnce((1, "two")), hash(one) == hash(HashedOnce((1, "two"))), one == (1, "two")
    (True, True, False)
    """

    __slots__ = ("_hash", "of")

    def __init__(self, of: Hashable) -> None:
        self.of = of
        self._hash: int | None = None

    def __hash__(self) -> int:
        """Return the hash of the value."""
        if self._hash is None:
            self._hash = hash(self.of)
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Tell whether the other is of an equal value."""
        return self is other or (isinstance(other, HashedOnce) and self.of == other.of)
