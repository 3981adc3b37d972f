"""Profiles: layer times and gradients of one model on one GPU, and the files that hold them.

A profile file is CSV: ``# key: value`` lines, then one row a gradient in forward order
(``profiles/README.md`` describes its fields). Times are milliseconds in the file and seconds here.
Beside the profiles of a model may stand its positions file (``<model>.positions.csv``), from which
K-FAC's kernels are sized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from perfsim.data.catalog import Catalog, is_own
from perfsim.data.files import is_there, missing_file, note
from perfsim.data.tables import cell_number, csv_rows, read_lines, read_table
from perfsim.errors import DataError, RequestError, newer, own_name, shown, unknown
from perfsim.models import is_defined, model_elements, takes_tokens
from perfsim.quantity import COUNT_LIMIT, ELEMENTS_LIMIT, TIME_LIMIT, Kind
from perfsim.sums import sum_in_order

__all__ = [
    "AUTOCAST_PRECISIONS",
    "HALF_PRECISIONS",
    "OPERAND_BYTES",
    "POSITIONS_COLUMNS",
    "POSITIONS_SCHEMA",
    "POSITIONS_SUFFIX",
    "PRECISIONS",
    "PROFILE_COLUMNS",
    "PROFILE_SCHEMA",
    "FrozenParameter",
    "Gradient",
    "Layer",
    "Profile",
    "defined_tokens",
    "is_profile_file",
    "matches_definition",
    "model_named",
    "own_profile",
    "precision_bytes",
    "precision_named",
    "preconditioned_layers",
    "read_positions",
    "read_profile",
    "with_positions",
]

PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16", "fp8", "nvfp4")
OPERAND_BYTES = {"fp8": 1.0, "nvfp4": 0.5 + 1 / 16}
"""Precision -> bytes of an operand of a dense product, where it is narrower than all other values.
NVFP4 has a scale of one byte for 16 values (arXiv 2509.25149)."""
AUTOCAST_PRECISIONS = ("amp-fp16", "amp-bf16")
"""Those in which a framework may cast the values of an fp32 model at each operation."""
HALF_PRECISIONS = (*AUTOCAST_PRECISIONS, *OPERAND_BYTES)
"""Those whose values take 2 bytes; in fp8 and nvfp4 operands of dense products are narrower."""
_TODAYS_WORDS = {"fp16": "amp-fp16", "bf16": "amp-bf16"}


def precision_bytes(precision: str) -> float:
    """Return the bytes of a value in a precision; of operands see ``OPERAND_BYTES``."""
    return 2.0 if precision in HALF_PRECISIONS else 4.0


def precision_named(word: str, field: str = "precision") -> str:
    """Return a precision by its name or by today's word for it, in any case.

    Raises
    ------
    RequestError
        If there is no such precision.

    Examples
    --------
    >>> precision_named("bf16"), precision_named("AMP-BF16"), precision_named("FP8")
    ('amp-bf16', 'amp-bf16', 'fp8')
    """
    words = (*PRECISIONS, *_TODAYS_WORDS)
    own = own_name(word, words)
    precision = _TODAYS_WORDS.get(own, own)
    if precision not in PRECISIONS:
        raise unknown(field, word, words)
    return precision


_ROUNDED_SHARE = 1e-5
"""Share of the iteration that rounding milliseconds may leave over."""


@dataclass(frozen=True)
class Gradient:
    """One parameter's gradient: ready ``ready_s`` after the backward pass began.

    ``value_bytes`` is the width in which it is sent: 4 bytes for fp32.
    """

    name: str
    shape: tuple[int, ...]
    ready_s: float
    layer: int
    value_bytes: float = 4.0

    @cached_property
    def elements(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @cached_property
    def size_bytes(self) -> float:
        """Bytes as it is sent."""
        return self.value_bytes * self.elements

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the gradient as low-rank methods view it (first axis x the rest)."""
        if len(self.shape) < 2:
            return self.elements, 1
        return self.shape[0], math.prod(self.shape[1:])

    def at(self, ready_s: float, layer: int | None = None) -> Gradient:
        """Return the same gradient, ready at another moment [s], of another layer if given.

        Examples
        --------
        >>> Gradient("fc.weight", (10, 4), 1.0, 0).at(2.0)
        Gradient(name='fc.weight', shape=(10, 4), ready_s=2.0, layer=0, value_bytes=4.0)
        """
        made, fields = self._copied()
        fields["ready_s"] = ready_s
        if layer is not None:
            fields["layer"] = layer
        return made

    def sent_in(self, value_bytes: float) -> Gradient:
        """Return the same gradient in values of another width [bytes]."""
        made, fields = self._copied()
        fields["value_bytes"] = value_bytes
        fields.pop("size_bytes", None)  # known of the other width
        return made

    def _copied(self) -> tuple[Gradient, dict[str, Any]]:
        """Return a copy that knows its number of values if this one does, and its fields to change.

        Each prediction copies the gradients of its model, some hundreds, several times.
        """
        made = object.__new__(Gradient)
        fields = made.__dict__
        fields.update(self.__dict__)
        return made, fields


class Layer(NamedTuple):
    """A layer with parameters; layers without any are merged into the one before them."""

    name: str
    kind: str
    forward_s: float
    backward_s: float


class FrozenParameter(NamedTuple):
    """A parameter that is not trained, and the number of its layer.

    One that is kept in 4 bits has the shape of the wider values that it takes.
    """

    name: str
    shape: tuple[int, ...]
    layer: int


_MAX_LATEST = 4
"""Profiles with other times that one keeps, each some 100 KB."""


@dataclass(frozen=True)
class Profile:
    """Per-layer times and gradients of one model at one batch size and precision on one GPU.

    ``gradients`` are in forward order. ``iteration_s`` is the whole single-GPU iteration; what
    forward, backward and optimizer leave of it is ``other_s`` (input, launches, host).
    ``positions`` are the rows that a sample gives of a layer's input matrix, where known.
    ``frozen`` are parameters without gradients, which adapters are trained beside.
    ``host_share`` and ``device_share`` are what the host's launches and the GPU's work would take
    alone, as shares of both passes; the later of both is 1. ``host_sharing`` is how many times as
    long an update by the host's CPUs takes a rank beside the others of its host; 0: the GPU
    updates. ``kept_bytes`` is the width in which the optimizer keeps a parameter that is trained.
    """

    model: str
    gpu: str
    precision: str
    batch: int
    iteration_s: float
    optimizer_s: float
    layers: tuple[Layer, ...]
    gradients: tuple[Gradient, ...]
    kinds: dict[str, Kind]
    header: dict[str, str]
    path: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    host_share: float = 0.0
    device_share: float = 1.0
    frozen: tuple[FrozenParameter, ...] = ()
    host_sharing: float = 0.0
    kept_bytes: float = 4.0

    @cached_property
    def forward_s(self) -> float:
        """Forward pass [s]."""
        return sum_in_order(layer.forward_s for layer in self.layers)

    @cached_property
    def forward_of_layers_s(self) -> tuple[float, ...]:
        """Forward pass of each layer [s]."""
        return tuple([layer.forward_s for layer in self.layers])

    @cached_property
    def backward_s(self) -> float:
        """Backward pass [s]."""
        return sum_in_order(layer.backward_s for layer in self.layers)

    @cached_property
    def other_s(self) -> float:
        """Time of the iteration outside forward, backward and optimizer [s]."""
        rest_s = self.iteration_s - self.forward_s - self.backward_s - self.optimizer_s
        return rest_s if rest_s > _ROUNDED_SHARE * self.iteration_s else 0.0

    @property
    def optimizer(self) -> str:
        """The optimizer of the update; "sgd" (with momentum and weight decay) if none is stated."""
        return self.header.get("optimizer", "sgd")

    @property
    def alone_s(self) -> float:
        """An iteration as it is scheduled on one GPU, the base of scaling efficiency [s]."""
        return self.forward_s + self.backward_s + self.optimizer_s + self.other_s

    @cached_property
    def elements(self) -> int:
        """Parameters that are trained."""
        return sum(gradient.elements for gradient in self.gradients)

    @cached_property
    def layers_start_s(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """When each layer starts in the forward pass, and when in the backward pass [s]."""
        forward = accumulate([layer.forward_s for layer in self.layers], initial=0.0)
        backward = accumulate([layer.backward_s for layer in reversed(self.layers)], initial=0.0)
        return tuple(forward)[:-1], tuple(backward)[-2::-1]

    @cached_property
    def registered(self) -> dict[str, int]:
        """The place of each gradient in the order in which the model registers parameters."""
        return {gradient.name: place for place, gradient in enumerate(self.gradients)}

    @cached_property
    def frozen_elements(self) -> int:
        """Parameters that are not; those in 4 bits as the 16-bit values that they take."""
        return sum(math.prod(one.shape) for one in self.frozen)

    @cached_property
    def size_bytes(self) -> float:
        """Bytes of all gradients in fp32."""
        return 4.0 * self.elements

    @property
    def sequence(self) -> int | None:
        """Tokens a sample, for models over text."""
        return int(float(self.header["sequence"])) if "sequence" in self.header else None

    @cached_property
    def _ready_order(self) -> tuple[Gradient, ...]:
        return tuple([self.gradients[place] for place in self._ready_places])

    @cached_property
    def _ready_places(self) -> list[int]:
        """The places of the gradients, those that are ready first before others."""
        places = range(len(self.gradients))
        return sorted(places, key=lambda place: (self.gradients[place].ready_s, -place))

    @cached_property
    def places_by_moment(self) -> list[int]:
        """The places of the gradients by when they are ready; of one moment as registered."""
        return sorted(range(len(self.gradients)), key=lambda place: self.gradients[place].ready_s)

    def in_ready_order(self) -> list[Gradient]:
        """Return the gradients in the order in which the backward pass makes them.

        Gradients ready at the same moment come last-registered first, as autograd gives them.
        """
        return list(self._ready_order)

    def all_parameters(self) -> list[Gradient]:
        """Return all parameters as if they had gradients, in the order of the backward pass.

        Those of frozen ones would be ready as their layer's backward pass ends.
        """
        if not self.frozen:
            return self.in_ready_order()
        ends_s = [*accumulate(layer.backward_s for layer in reversed(self.layers))][::-1]
        frozen = [Gradient(*one[:2], ends_s[one.layer], one.layer) for one in self.frozen]
        return sorted([*frozen, *self._ready_order], key=lambda one: -one.layer)

    def sent_in(self, value_bytes: float) -> Profile:
        """Return the profile with gradients of another width [bytes]."""
        gradients = tuple([gradient.sent_in(value_bytes) for gradient in self.gradients])
        return replace(self, gradients=gradients)

    def scaled(self, factor: float) -> Profile:
        """Return the profile with every time multiplied by ``factor``."""
        return self._paced(factor, self.iteration_s * factor, self.optimizer_s * factor)

    def _paced(self, factor: float, iteration_s: float, optimizer_s: float) -> Profile:
        """Return the profile with passes ``factor`` times as long, at these times [s]."""
        made = replace(
            self,
            iteration_s=iteration_s,
            optimizer_s=optimizer_s,
            layers=tuple(
                [
                    Layer(name, kind, forward_s * factor, backward_s * factor)
                    for name, kind, forward_s, backward_s in self.layers
                ]
            ),
            gradients=tuple([one.at(one.ready_s * factor) for one in self.gradients]),
        )
        if factor > 0.0:  # then gradients are ready in the same order, and sorting takes a while
            vars(made)["_ready_places"] = self._ready_places
        return made

    def slowed(self, factor: float) -> Profile:
        """Return the profile with both passes ``factor`` times as long; the update stays."""
        if factor == 1.0:
            return self
        more_s = (factor - 1.0) * (self.forward_s + self.backward_s)
        return self._with_passes(factor, self.iteration_s + more_s, self.optimizer_s)

    def with_shares(self, host: float, device: float) -> Profile:
        """Return the profile where host and GPU take such shares of its passes: the later's time.

        Parameters
        ----------
        host, device : what each takes alone, over what both passes take now
        """
        pace = max(host, device)
        slowed, shares = self.slowed(pace), (host / pace, device / pace)
        if shares == (slowed.host_share, slowed.device_share):
            return slowed
        return replace(slowed, host_share=shares[0], device_share=shares[1])

    def stretched(self, iteration_s: float, optimizer_s: float) -> Profile:
        """Return the profile at another total: its optimizer as given, all else in proportion."""
        rest_s = self.iteration_s - self.optimizer_s
        if rest_s <= 0:
            return self.scaled(iteration_s / self.iteration_s)
        return self._with_passes((iteration_s - optimizer_s) / rest_s, iteration_s, optimizer_s)

    def _with_passes(self, factor: float, iteration_s: float, optimizer_s: float) -> Profile:
        """Return what `_paced` returns, kept where it was asked for lately."""
        asked = factor, iteration_s, optimizer_s
        return self.lately(asked, lambda: self._paced(*asked))

    def lately(self, asked: tuple[float, ...], make: Callable[[], Profile]) -> Profile:
        """Return the profile that ``make`` makes of this one, kept where it was asked for lately.

        Predictions that follow each other often ask for the same. None is kept for times that stand
        for many at once: one of them may equal a time that is asked for.
        """
        plain = all(isinstance(number, float | int) for number in asked)
        if plain and asked in self._latest:
            return self._latest[asked]
        made = make()
        if plain:
            if len(self._latest) == _MAX_LATEST:
                del self._latest[next(iter(self._latest))]
            self._latest[asked] = made
        return made

    @cached_property
    def _latest(self) -> dict[tuple[float, ...], Profile]:
        return {}


def defined_tokens(profile: Profile) -> int | None:
    """Return the tokens a sample that choose the layers of a profile's model; None without any."""
    return profile.sequence if takes_tokens(profile.model) else None


def matches_definition(profile: Profile) -> bool:
    """Tell whether perfsim has layers of a profile's model, with the parameters of the profile."""
    if not is_defined(profile.model):
        return False
    try:
        return model_elements(profile.model, defined_tokens(profile)) == profile.elements
    except RequestError:  # more tokens than the model learns positions
        return False


PROFILE_SCHEMA = "perfsim/profile/1"
PROFILE_COLUMNS = (
    "layer",
    "kind",
    "tensor",
    "shape",
    "elements",
    "forward_ms",
    "backward_ms",
    "ready_ms",
)
_SUFFIX = ".csv"
_MAX_AXIS_DIGITS = 15
"""Digits that an axis of a shape may have."""

_NEEDED_KEYS = (
    "schema",
    "model",
    "gpu",
    "precision",
    "batch",
    "iteration_ms",
    "optimizer_ms",
    "source",
)
_KIND_COLUMNS = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms", "optimizer_ms")


OPTIMIZER_LAUNCHES = {"plain-sgd": 2, "sgd": 5, "adam": 9, "adamw-by-operation": 8}
"""Kernels a tensor that an optimizer launches, tensor by tensor, with the clearing of the gradient.

PyTorch before 2.0 goes so by default. SGD with momentum and weight decay adds the decay,
scales the momentum, adds the gradient to it and the momentum to the weights (v1.8.0
torch/optim/_functional.py, sgd); plain SGD does the last alone. Adam scales two moments and adds to
them (4), takes the root, divides it, adds epsilon (3) and updates (1; adam there, no decay). AdamW
of huggingface/transformers of 2020 (src/transformers/optimization.py) has one operation fewer."""


def read_profile(path: Path, *, any_name: bool = False) -> Profile:
    """Read and check one profile file.

    Parameters
    ----------
    any_name : whether the file may have another name than its model; one in a folder of profiles
        is found by it

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format; names file, line, column and finding.
    """
    lines = read_lines(path)
    header, key_rows = _read_header(lines, path)
    if not any_name:
        _check_file_name(header, key_rows, path)
    layers, gradients, tensor_rows = _read_rows(
        csv_rows(lines, len(key_rows), PROFILE_COLUMNS, path), path
    )

    def count(key: str) -> int:
        text, row = header[key], key_rows[key]
        return int(cell_number(text, key, path, row, positive=True, whole=True, within=COUNT_LIMIT))

    if "sequence" in header:
        count("sequence")
    if header.get("optimizer", "sgd") not in OPTIMIZER_LAUNCHES:
        raise DataError(
            f"found {shown(header['optimizer'])}; allowed: {', '.join(OPTIMIZER_LAUNCHES)}",
            path=path,
            row=key_rows["optimizer"],
            column="optimizer",
        )
    profile = Profile(
        model=header["model"],
        gpu=header["gpu"],
        precision=header["precision"],
        batch=count("batch"),
        iteration_s=_seconds(
            header["iteration_ms"], "iteration_ms", path, key_rows["iteration_ms"], positive=True
        ),
        optimizer_s=_seconds(
            header["optimizer_ms"], "optimizer_ms", path, key_rows["optimizer_ms"]
        ),
        layers=tuple(layers),
        gradients=tuple(gradients),
        kinds=_read_kinds(header["kind"], path, key_rows["kind"]),
        header=header,
        path=str(path),
    )
    _check_sums(profile, path, key_rows["iteration_ms"], tensor_rows)
    return profile


def _seconds(text: str, column: str, path: Path, row: int, *, positive: bool = False) -> float:
    return (
        cell_number(text, column, path, row, positive=positive, within=TIME_LIMIT, unit=1e-3) / 1e3
    )


def _read_header(lines: list[str], path: Path) -> tuple[dict[str, str], dict[str, int]]:
    header: dict[str, str] = {}
    rows: dict[str, int] = {}
    for row, line in enumerate(lines, 1):
        if not line.startswith("#"):
            break
        key, colon, value = (part.strip() for part in line[1:].partition(":"))
        if not colon:
            raise DataError(f"header line {shown(line)} is not '# key: value'", path=path, row=row)
        if key in header:
            raise DataError(
                f"header key {shown(key)} stands on line {rows[key]} already", path=path, row=row
            )
        header[key], rows[key] = value, row
    _check_header(header, rows, path)
    return header, rows


def _check_header(header: dict[str, str], rows: dict[str, int], path: Path) -> None:
    if "schema" not in header:
        why = f"is no profile: it has no line '# schema: {PROFILE_SCHEMA}'"
        raise DataError(
            f"{why}; `perfsim calibrate compute` or `calibrate import` writes one", path=path
        )
    if header["schema"] != PROFILE_SCHEMA:
        raise DataError(
            f"schema is {shown(header['schema'])}, this perfsim reads {PROFILE_SCHEMA!r}"
            + newer(header["schema"], PROFILE_SCHEMA),
            path=path,
            row=rows["schema"],
        )
    for key in (*_NEEDED_KEYS, "kind"):
        if not header.get(key):
            raise DataError(f"the header has no {key!r} line ('# {key}: ...')", path=path)
    if header["precision"] not in PRECISIONS:
        raise DataError(
            f"precision is {shown(header['precision'])}; allowed: {', '.join(PRECISIONS)}",
            path=path,
            row=rows["precision"],
        )


def _check_file_name(header: dict[str, str], rows: dict[str, int], path: Path) -> None:
    """Refuse a file whose name is not that of its model."""
    model = path.name.removesuffix(_SUFFIX).split(".")[0]
    if header["model"] != model:
        raise DataError(
            f"model is {shown(header['model'])}, the file's name up to its first dot says"
            f" {model!r}",
            path=path,
            row=rows["model"],
        )


def _read_rows(
    table: Iterable[tuple[int, dict[str, str]]], path: Path
) -> tuple[list[Layer], list[Gradient], dict[str, int]]:
    """Return the layers, the gradients and the line of each tensor."""
    layers: list[Layer] = []
    gradients: list[Gradient] = []
    seen: dict[str, int] = {}
    index: dict[str, int] = {}
    for row, cells in table:
        name, tensor = cells["layer"], cells["tensor"]
        _check_names(name, tensor, seen, path, row)
        seen[tensor] = row
        if name not in index:
            index[name] = len(layers)
            layers.append(_read_layer(cells, path, row))
        elif cells["forward_ms"] or cells["backward_ms"]:
            raise DataError(
                f"layer {shown(name)} has its times on its first tensor already; leave these empty",
                path=path,
                row=row,
                column="forward_ms" if cells["forward_ms"] else "backward_ms",
            )
        axes = _read_axes(cells["shape"], cells["elements"], path, row)
        ready_s = _seconds(cells["ready_ms"], "ready_ms", path, row)
        gradients.append(Gradient(tensor, axes, ready_s, index[name]))
    if not gradients:
        raise DataError("holds no gradient", path=path)
    return layers, gradients, seen


def _check_names(name: str, tensor: str, seen: dict[str, int], path: Path, row: int) -> None:
    for column, value in (("layer", name), ("tensor", tensor)):
        if not value:
            raise DataError("is empty", path=path, row=row, column=column)
    if tensor in seen:
        raise DataError(
            f"tensor {shown(tensor)} stands on line {seen[tensor]} already",
            path=path,
            row=row,
            column="tensor",
        )


def _read_layer(cells: dict[str, str], path: Path, row: int) -> Layer:
    forward_s, backward_s = (
        _seconds(cells[column], column, path, row) for column in ("forward_ms", "backward_ms")
    )
    return Layer(cells["layer"], cells["kind"], forward_s, backward_s)


def _read_axes(shape: str, elements: str, path: Path, row: int) -> tuple[int, ...]:
    """Return the axes of a shape such as 64x3x7x7, whose product are the elements."""
    parts = shape.split("x")
    if not all(part.isdecimal() and len(part) <= _MAX_AXIS_DIGITS and int(part) for part in parts):
        raise DataError(
            f"{shown(shape)} is not a shape such as 64x3x7x7", path=path, row=row, column="shape"
        )
    axes = tuple(int(part) for part in parts)
    count = cell_number(
        elements, "elements", path, row, positive=True, whole=True, within=ELEMENTS_LIMIT
    )
    if math.prod(axes) != count:
        raise DataError(
            f"{elements} is not the product of shape {shown(shape)[1:-1]}",
            path=path,
            row=row,
            column="elements",
        )
    return axes


def _read_kinds(text: str, path: Path, row: int) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for part in text.split(";"):
        column, _, kind = (piece.strip() for piece in part.partition("="))
        if column not in _KIND_COLUMNS or kind not in get_args(Kind):
            raise DataError(
                f"header line 'kind' has {shown(part.strip())}; it names {', '.join(_KIND_COLUMNS)}"
                f" as 'column=kind', kind one of {', '.join(get_args(Kind))}, separated by ';'",
                path=path,
                row=row,
            )
        kinds[column] = cast(Kind, kind)
    missing = [column for column in _KIND_COLUMNS if column not in kinds]
    if missing:
        raise DataError(f"header line 'kind' lacks {', '.join(missing)}", path=path, row=row)
    return kinds


def _check_sums(profile: Profile, path: Path, row: int, tensor_rows: dict[str, int]) -> None:
    total = profile.forward_s + profile.backward_s + profile.optimizer_s
    numbers = 2 * len(profile.layers) + 2  # each of them was rounded by itself
    if total > profile.iteration_s * (1 + 1e-6) + numbers * _ROUNDING_S:
        raise DataError(
            f"forward, backward and optimizer sum to {total * 1e3:.6g} ms, more than"
            f" iteration_ms {profile.iteration_s * 1e3:.6g}",
            path=path,
            row=row,
        )
    last = max(profile.gradients, key=lambda gradient: gradient.ready_s)
    if last.ready_s > profile.backward_s * (1 + 1e-6) + 1e-9:
        raise DataError(
            f"{shown(last.name)} is ready at {last.ready_s * 1e3:.6g} ms, after the end of the"
            f" backward pass at {profile.backward_s * 1e3:.6g} ms",
            path=path,
            row=tensor_rows[last.name],
            column="ready_ms",
        )


_ROUNDING_S = 0.5e-9
"""How far a time is from one that is written with six digits behind a millisecond's point [s]."""


# The positions file beside the profiles of a model, for K-FAC.

POSITIONS_SCHEMA = "perfsim/positions/1"
POSITIONS_COLUMNS = ("layer", "positions")
POSITIONS_SUFFIX = ".positions.csv"
"""What follows a model's name in the file of its positions."""

_KFAC_KINDS = ("conv", "linear")
"""Kinds of layers that K-FAC preconditions."""
_MAX_NAMED = 3
"""Missing layers that a message names."""


def preconditioned_layers(profile: Profile) -> list[str]:
    """Return the layers that K-FAC preconditions: convolutions and dense layers."""
    matrices = {gradient.layer for gradient in profile.gradients if len(gradient.shape) > 1}
    return [
        layer.name
        for index, layer in enumerate(profile.layers)
        if index in matrices and layer.kind in _KFAC_KINDS
    ]


def read_positions(path: Path, layers: Iterable[str], needed: Iterable[str] = ()) -> dict[str, int]:
    """Return layer -> positions: how many rows of its input matrix one sample gives.

    Parameters
    ----------
    layers : all layers of the model
    needed : layers that the file must hold

    Raises
    ------
    DataError
        If the file cannot be read, breaks the format, is of another model, names a layer twice
        or one that the model lacks, or lacks a needed one.
    """
    known = set(layers)
    table = read_table(path, POSITIONS_SCHEMA, POSITIONS_COLUMNS)
    model = path.name.removesuffix(POSITIONS_SUFFIX)
    header = [line[1:].partition(":") for line in read_lines(path) if line.startswith("#")]
    models = [value.strip() for key, _, value in header if key.strip() == "model"]
    if models != [model]:
        raise DataError(
            f"model is {shown(models[0]) if models else 'missing'}, the file's name says {model!r}",
            path=path,
        )
    positions: dict[str, int] = {}
    for row, cells in table:
        name = cells["layer"]
        if name not in known or name in positions:
            wrong = "stands twice" if name in positions else "is no layer of the model"
            raise DataError(f"layer {shown(name)} {wrong}", path=path, row=row, column="layer")
        positions[name] = int(
            cell_number(
                cells["positions"],
                "positions",
                path,
                row,
                positive=True,
                whole=True,
                within=COUNT_LIMIT,
            )
        )
    missing = [name for name in needed if name not in positions]
    if missing:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise DataError(
            f"lacks {', '.join(missing[:_MAX_NAMED])}{more}: every convolution and dense layer of"
            " the model needs its positions",
            path=path,
        )
    return positions


# A profile that is given as the model itself.


def is_profile_file(model: str) -> bool:
    """Tell whether a model is stated by the file of its profile.

    Examples
    --------
    >>> is_profile_file("runs/mine.csv"), is_profile_file("resnet50")
    (True, False)
    """
    return model.endswith(_SUFFIX)


def own_profile(model: str, catalog: Catalog) -> Profile | None:
    """Return the profile in the file that is given as the model; None where it is no such file.

    K-FAC's positions are those of a file beside it, else the shipped ones of its model if they
    have its layers.

    Raises
    ------
    DataError
        If the file is missing, damaged or no profile.
    """
    if not is_profile_file(model):
        return None
    return catalog.once(("profile file", model), lambda: _read_own(model, catalog))


def model_named(model: str, catalog: Catalog) -> str:
    """Return the name of a model: that in the profile's file, if one is given as the model.

    Raises
    ------
    DataError
        If the file is missing, damaged or no profile.
    """
    profile = own_profile(model, catalog)
    return profile.model if profile else model


def _read_own(model: str, catalog: Catalog) -> Profile:
    path = Path(model)
    if not is_there(model):
        raise missing_file(path, (_SUFFIX,))
    profile = read_profile(path, any_name=True)
    beside = path.parent / f"{profile.model}{POSITIONS_SUFFIX}"
    note(beside)  # one that is added later counts
    ships = catalog.beside("models", profile.model, POSITIONS_SUFFIX)
    return with_positions(profile, beside if beside.is_file() else ships)


def with_positions(profile: Profile, path: Path | None) -> Profile:
    """Return a profile with the positions that a file states for its model.

    One that ships may be of another network than a profile of the user's with the same name: then
    it counts for nothing.

    Raises
    ------
    DataError
        If the file is damaged, or is of another network and not such a one.
    """
    if path is None:
        return profile
    layers = [layer.name for layer in profile.layers]
    try:
        positions = read_positions(path, layers, preconditioned_layers(profile))
    except DataError:
        if is_own(path) or not is_own(profile.path):
            raise
        return profile
    return replace(profile, positions=positions)
