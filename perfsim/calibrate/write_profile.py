"""From the moments of a training step to the file of a profile, written whole or not at all."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from perfsim.compute.profile import PROFILE_COLUMNS, read_profile
from perfsim.data.files import write_text
from perfsim.errors import RequestError

__all__ = [
    "LayerTimes",
    "check_profile",
    "check_profile_name",
    "is_profile_name",
    "milliseconds",
    "profile_csv",
    "profile_stem",
    "refuse_existing",
    "split_passes",
    "write_files",
]

_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer: its kind, its gradients with shape and ready time, its two passes [s]."""

    name: str
    kind: str
    gradients: tuple[tuple[str, tuple[int, ...], float], ...]
    forward_s: float
    backward_s: float


def split_passes(
    begun_s: Mapping[str, float],
    gradients: Mapping[str, Sequence[tuple[str, tuple[int, ...], float]]],
    kinds: Mapping[str, str],
    forward_s: float,
    backward_s: float,
    scale: float = 1.0,
) -> list[LayerTimes]:
    """Split both passes among the layers, in forward order, so that the layers add up to them.

    A layer's forward time runs from its beginning to that of the next layer with parameters:
    activations, pooling and the loss count with the layer before them. Its backward time runs from
    the moment that the gradients before it were ready to its own. The first layer to begin also
    gets what came before it, the last gradient what came after it.

    Parameters
    ----------
    begun_s : when each layer begins, from the start of the forward pass [s]
    gradients : layer -> its gradients: name, shape, ready from the start of the backward pass [s];
        layers in the order that they begin
    kinds : layer -> conv, linear, ...
    forward_s, backward_s : whole passes [s]
    scale : factor on every time

    Examples
    --------
    >>> gradients = {"a": [("a.w", (2,), 3.0)], "b": [("b.w", (2,), 1.0)]}
    >>> layers = split_passes({"a": 0.5, "b": 1.5}, gradients, {}, 4.0, 3.5)
    >>> [(layer.name, layer.forward_s, layer.backward_s) for layer in layers]
    [('a', 1.5, 2.5), ('b', 2.5, 1.0)]
    """
    begun = [0.0, *(begun_s[name] for name in list(gradients)[1:]), forward_s]
    spans = (after - before for before, after in pairwise(begun))
    forward = dict(zip(gradients, spans, strict=True))
    ready = {name: max(moment for _, _, moment in own) for name, own in gradients.items()}
    backward, before = {}, 0.0
    for name in sorted(ready, key=ready.__getitem__):
        backward[name], before = ready[name] - before, ready[name]
    last = max(ready, key=ready.__getitem__)
    backward[last] += backward_s - before
    return [
        LayerTimes(
            name,
            kinds.get(name, "parameter"),
            tuple((tensor, shape, moment * scale) for tensor, shape, moment in own),
            forward[name] * scale,
            backward[name] * scale,
        )
        for name, own in gradients.items()
    ]


def profile_csv(header: Mapping[str, str], layers: Iterable[LayerTimes]) -> str:
    """Return a profile's text: ``# key: value`` lines, then one row a gradient in forward order."""
    text = io.StringIO()
    for key, value in header.items():
        text.write(f"# {key}: {' '.join(value.split())}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(PROFILE_COLUMNS)
    for layer in layers:
        times = (milliseconds(layer.forward_s), milliseconds(layer.backward_s))
        for tensor, shape, ready_s in layer.gradients:
            elements = 1
            for axis in shape:
                elements *= axis
            axes = "x".join(map(str, shape)) or "1"
            ready = milliseconds(ready_s)
            table.writerow((layer.name, layer.kind, tensor, axes, elements, *times, ready))
            times = ("", "")  # a layer's times stand on its first tensor alone
    return text.getvalue()


def milliseconds(seconds: float) -> str:
    """Return a time [s] as profiles write it, in milliseconds.

    Examples
    --------
    >>> milliseconds(0.00125)
    '1.250000'
    """
    return f"{seconds * 1e3:.6f}"


def is_profile_name(name: str) -> bool:
    """Say whether a name of a model or GPU may be part of a profile's file name."""
    return bool(_PROFILE_NAME.fullmatch(name))


def check_profile_name(field: str, name: str) -> None:
    """Refuse a name of a model or GPU that could not be part of a profile's file name.

    Raises
    ------
    RequestError
        For ``field``, if the name holds more than letters, digits, '_' and '-'.
    """
    if not is_profile_name(name):
        why = f"{name!r} is no name; letters, digits, '_' and '-'."
        raise RequestError(field, why, value=name)


def profile_stem(model: str, gpu: str, precision: str, batch: int, sequence: int | None) -> str:
    """Return the name of a profile's file, without its ending.

    Examples
    --------
    >>> profile_stem("gpt2", "a100", "tf32", 8, 1024)
    'gpt2.a100.tf32.b8.s1024'
    """
    parts = [model, gpu, precision, f"b{batch}", *([f"s{sequence}"] if sequence else [])]
    return ".".join(parts)


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse to replace a file unless ``force`` allows it.

    Raises
    ------
    RequestError
        If the file is there.
    """
    if path.exists() and not force:
        raise RequestError("out", f"{str(path)!r} is there already; `force` replaces it.")


def check_profile(name: str, text: str) -> None:
    """Read a profile's text as predictions will; ``name`` is that of its file.

    Raises
    ------
    DataError
        If it breaks the format.
    """
    with TemporaryDirectory() as work:
        trial = Path(work) / name
        trial.write_text(text, encoding="utf-8")
        read_profile(trial)


def write_files(files: Mapping[Path, str]) -> None:
    """Write files whole, each in a folder that is made if it is not there.

    Raises
    ------
    RequestError
        If a folder or file cannot be written.
    """
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError("out", f"{str(path.parent)!r}: {error.strerror}.") from None
        write_text(path, text)
