"""The tables ``[[curve]]`` and ``[tuner]`` of a network file: what was fitted to its sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, PlainValidator, model_validator

from perfsim.collectives import COLLECTIVES
from perfsim.data.toml import (
    BytesPerSecond,
    KindOfNumber,
    MessageBytes,
    RelativeSpread,
    Seconds,
    Tables,
    Text,
    TomlModel,
    WholeNumber,
    WrongValue,
    YesOrNo,
    check_toml,
    one_of,
    plain_number,
)
from perfsim.errors import DataError, RequestError
from perfsim.libraries import DEFAULT_LIBRARY
from perfsim.libraries.nccl_versions import ARCHITECTURES, parse_version
from perfsim.libraries.rccl import AMD_GENERATIONS
from perfsim.network.measured import CURVE_KINDS, CURVE_LIBRARIES, CollectiveCurve
from perfsim.network.tuner_fit import Communicator, TunedChoice
from perfsim.quantity import Kind, NumberLimit

__all__ = ["read_fitted_curves"]

_TUNER_RATIO = NumberLimit(0.1, 10.0, "0.1 to 10")
"""No source: chosen; the two values that the fit tries are 1 and 2."""


class CurveKnot(TomlModel):
    """The time of a collective for one size of message."""

    size: MessageBytes
    time: Seconds


class CurveTable(TomlModel):
    """A curve fitted to what was measured on the network."""

    collective: Annotated[Text, one_of(COLLECTIVES)]
    ranks: WholeNumber
    nodes: WholeNumber
    gpus_per_node: WholeNumber
    algorithm: Text = ""
    protocol: Text = ""
    version: Text = ""
    gpu: Text = ""
    fabric: Text = ""
    library: Annotated[Text, one_of(CURVE_LIBRARIES)] = DEFAULT_LIBRARY
    kind: Annotated[Kind, PlainValidator(lambda value: value), one_of(CURVE_KINDS)]
    source: Text
    residual: RelativeSpread | None = None
    knots: Tables[CurveKnot]

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        ranks, nodes, gpus = self.ranks, self.nodes, self.gpus_per_node
        if not nodes <= ranks <= nodes * gpus:
            why = f"{ranks} ranks on {nodes} nodes of {gpus} GPUs cannot be; every node holds 1 to"
            raise WrongValue(f"{why} gpus_per_node ranks", "ranks")
        try:
            self.curve("")
        except DataError as error:
            raise WrongValue(str(error), "knots") from None
        return self

    def curve(self, network: str) -> CollectiveCurve:
        """Return the curve of a network of this name."""
        return CollectiveCurve(
            collective=self.collective,
            ranks=self.ranks,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            size_bytes=tuple(knot.size for knot in self.knots),
            seconds=tuple(knot.time for knot in self.knots),
            kind=self.kind,
            source=self.source,
            spread=self.residual,
            series=network,
            algorithm=self.algorithm,
            protocol=self.protocol,
            library=self.library,
            version=self.version,
            gpu=self.gpu,
            fabric=self.fabric,
        )


def _nccl_version(value: str) -> str:
    try:
        parse_version(value)
    except RequestError as error:
        raise WrongValue(error.why) from None
    return value


class TunerTable(TomlModel):
    """NCCL's tuner as measured curves show it (see `TunedChoice`)."""

    version: Annotated[Text, AfterValidator(_nccl_version)]
    architecture: Annotated[Text, one_of((*ARCHITECTURES, *AMD_GENERATIONS))]
    intra: Annotated[Text, one_of(("nvlink", "pci"))]
    bus_bandwidth: BytesPerSecond
    two_nodes: Annotated[float, plain_number(_TUNER_RATIO)]
    plain_tree: YesOrNo
    near_nic: YesOrNo
    kind: KindOfNumber
    source: Text

    def choice(self) -> TunedChoice:
        """Return the tuner."""
        return TunedChoice(
            Communicator(self.version, self.architecture, self.intra),
            self.bus_bandwidth / 1e9,
            self.two_nodes,
            self.plain_tree,
            self.near_nic,
        )


class _FittedTables(TomlModel):
    """The two keys of a network file that are read here."""

    curve: Tables[CurveTable] | None = None
    tuner: TunerTable | None = None


def read_fitted_curves(
    table: Mapping[str, Any], path: Path, text: str
) -> tuple[list[CollectiveCurve], TunedChoice | None]:
    """Return the fitted curves and the tuner of a network file, and None without a tuner.

    ``table`` has the values of the file by key, ``text`` is the file's, for messages.

    Raises
    ------
    DataError
        If a table breaks the format.
    """
    values = {key: table[key] for key in ("curve", "tuner") if key in table}
    tables = check_toml(_FittedTables, values, path, text=text)
    curves = [curve.curve(table["name"]) for curve in tables.curve or []]
    return curves, None if tables.tuner is None else tables.tuner.choice()
