"""Words of traces for collectives and types of elements."""

from __future__ import annotations

from perfsim.calibrate.cells import collective_name

__all__ = ["bytes_of", "called"]

BYTES = {
    8: ("double", "long", "longint", "float64", "int64"),
    4: ("float", "int", "float32", "int32"),
    2: ("half", "bfloat16", "short", "float16", "int16", "uint16", "c10half", "c10bfloat16"),
    1: ("byte", "char", "bool", "unsignedchar", "signedchar", "int8", "uint8"),
}
"""Bytes -> names of c10::ScalarType, C++ and Horovod's types, letters and digits only."""
OTHER_NAMES = {
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgathercoalesced": "all_gather",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "send": "send_recv",
    "recv": "send_recv",
    "sendrecv": "send_recv",
}


def called(word: str) -> str:
    """Return perfsim's name of a collective in a trace's words, '' where it knows none.

    Examples
    --------
    >>> called("_allgather_base"), called("allreduce"), called("barrier")
    ('all_gather', 'all_reduce', '')
    """
    plain = "".join(letter for letter in word.lower() if letter.isalpha())
    return OTHER_NAMES.get(plain) or collective_name(plain)


def bytes_of(word: object) -> int | None:
    """Return the bytes of one element of a type, None where it is not known.

    Examples
    --------
    >>> bytes_of("Float"), bytes_of("c10::Half"), bytes_of("long int"), bytes_of(None)
    (4, 2, 8, None)
    """
    plain = "".join(letter for letter in str(word).lower() if letter.isalnum())
    return next((size for size, names in BYTES.items() if plain in names), None)
