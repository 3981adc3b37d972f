"""Predict a peer's public cases, and write our errors beside its own.

    python profiles/build/peer_cases.py --cases FILE \
        --out profiles/measurements/peer_cases.csv --date DATE

FILE has the columns case, model, layers, tp, pp, cp, dp, ep, seq, micro_batches, real_ms and
predicted_ms. The cases are those of SimuMax 1.2: a few layers of public models on one node of eight
B200, trained by Megatron-LM, measured by the peer and predicted by it with rates that it measured
on that node. perfsim predicts them twice: from what ships, with nothing measured there ("ours"),
and with two of the rates that the peer publishes of that node ("rated"): what dense products reach
and what passes over memory do. Cases without a measured time are left out.

What the runs were (MooreThreads/SimuMax@4dcaae51): bf16 with fp32 gradients, one sample a
micro-batch, sequence parallelism, messages of tensor parallelism not overlapped, plain 1F1B,
nothing computed again, a loss of TransformerEngine, experts that drop and pad to a capacity of one
(so that all have the same tokens), Megatron-LM@23e00ed0 with its distributed optimizer, whose
gradients are reduced after the backward pass. Context parallelism exchanges heads there (a2a);
perfsim's is a ring.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from perfsim.compute.kernel_time import FITTED
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.data.tables import csv_rows, read_lines
from perfsim.prediction import predict_iteration
from perfsim.scenario import Scenario, make_scenario
from perfsim.session import Session
from perfsim.validate.accuracy import score

__all__ = [
    "PeerCase",
    "main",
    "peer_cases",
    "peer_scenario",
    "peer_text",
    "rated_session",
    "summary",
]

PEER_SCHEMA = "perfsim/peer-cases/1"
PEER_COLUMNS = (
    *("case", "measured_ms", "ours_ms", "rated_ms", "peers_ms"),
    *("our_error", "rated_error", "peers_error"),
)
RATES = {"product": 0.483, "memory": 0.666}
"""Shares of the data sheet's peaks that the peer measured on its node: the median of 250 dense bf16
products of 1 TFLOP and more in the three layouts of training, and passes over memory
(MooreThreads/SimuMax@4dcaae51 configs/system/b200_bf16_ceperm.json)."""
_COLUMNS = (
    *("case", "model", "layers", "tp", "pp", "cp", "dp", "ep", "seq", "micro_batches"),
    *("real_ms", "predicted_ms"),
)
CITATION = "MooreThreads/SimuMax@4dcaae51: docs/b200/b200_release_v1.2_summary.md"

_LATENT = "head=128,kv_rank=512,q_rank=1536,rope=64"
MODELS = {
    "llama3_70b": "hidden=8192,heads=64,kv=8,ffn=28672,vocab=128256",
    "llama3_405b": "hidden=16384,heads=128,kv=16,ffn=53248,vocab=128256",
    "deepseekv2": f"hidden=5120,heads=128,ffn=12288,vocab=102400,experts=160,topk=6,"
    f"expert_ffn=1536,shared=2,dense=1,{_LATENT}",
    "deepseekv3": f"hidden=7168,heads=128,ffn=18432,vocab=129280,experts=256,topk=8,"
    f"expert_ffn=2048,shared=1,dense=1,{_LATENT}",
}
"""What a case's model begins with -> its numbers but the layers (configs/models there). Of
DeepSeek-V3 the first of four layers is dense, where the whole model has three."""

SYSTEM: dict[str, Any] = {
    **{"gpu": "b200", "gpus": 8, "gpus_per_node": 8, "intra_net": "dgx-b200"},
    **{"precision": "amp-bf16", "software": "megatron", "batch": 1, "reduce_dtype": "fp32"},
    "method": "distributed_optimizer",  # Megatron-LM's, without overlap
}


class PeerCase(NamedTuple):
    """A case with its measured time and the predictions [ms]; ``rated_ms`` by the node's rates."""

    name: str
    measured_ms: float
    ours_ms: float
    rated_ms: float
    peers_ms: float

    @property
    def our_error(self) -> float:
        """Predicted over measured less one."""
        return self.ours_ms / self.measured_ms - 1.0

    @property
    def rated_error(self) -> float:
        """The same of the prediction by rates measured on the node."""
        return self.rated_ms / self.measured_ms - 1.0

    @property
    def peers_error(self) -> float:
        """That of the peer."""
        return self.peers_ms / self.measured_ms - 1.0


def peer_scenario(cells: Mapping[str, str]) -> Scenario:
    """Return the scenario of a case.

    Raises
    ------
    ValueError
        If its model is none of `MODELS`, or its degrees are not those of eight GPUs.
    """
    numbers = [MODELS[name] for name in MODELS if cells["model"].startswith(name)]
    if not numbers:
        raise ValueError(f"{cells['case']}: no model {cells['model']!r}")
    degrees = {kind: int(cells[kind]) for kind in ("tp", "pp", "cp", "ep")}
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if ranks * int(cells["dp"]) != SYSTEM["gpus"]:
        raise ValueError(f"{cells['case']}: {ranks} x {cells['dp']} is not {SYSTEM['gpus']} GPUs")
    fields = {
        **SYSTEM,
        **{kind: degree for kind, degree in degrees.items() if degree > 1},
        "model": f"transformer:layers={cells['layers']},{numbers[0]}",
        "seq": int(cells["seq"].split()[0]),
        "accumulate": int(cells["micro_batches"]),
    }
    return make_scenario(fields, cells["case"])


def peer_cases(path: Path, catalog: Catalog, rated: Catalog | None = None) -> list[PeerCase]:
    """Predict the cases of a table that have a measured time."""
    lines = read_lines(path)
    start = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    found = []
    for _, cells in csv_rows(lines, start, _COLUMNS, path):
        if not cells["real_ms"]:
            continue
        asked = peer_scenario(cells)
        ours_s, rated_s = (
            predict_iteration(asked, one).iteration_s for one in (catalog, rated or catalog)
        )
        times = (float(cells["real_ms"]), ours_s * 1e3, rated_s * 1e3, float(cells["predicted_ms"]))
        found.append(PeerCase(cells["case"], *times))
    return found


def rated_session(folder: Path) -> Session:
    """Return a session whose B200 reaches what the peer measured on its node.

    ``folder`` takes the changed file of the GPU. The constants that all GPUs share stay, so that
    rates are divided by them.
    """
    text = Catalog().files("devices")["b200"].read_text(encoding="utf-8")
    product = RATES["product"] / FITTED.product
    block = re.search(r"\[rates\.amp-bf16\][^\[]*", text)
    memory = re.search(r"\[memory_bandwidth\]\nvalue = .*\n", text)
    if block is None or memory is None:
        raise ValueError("b200.toml has no such rates")
    changed = re.sub(r"(?m)^achieved = .*$", f"achieved = {product:.4f}", block[0])
    changed = re.sub(r"(?m)^sustained = .*$", "sustained = 1.0", changed)
    gbytes = 8000 * RATES["memory"] / FITTED.memory
    devices = folder / "devices"
    devices.mkdir(parents=True)
    made = text.replace(block[0], changed)
    made = made.replace(memory[0], f'[memory_bandwidth]\nvalue = "{gbytes:.0f} GB/s"\n')
    (devices / "b200.toml").write_text(made, encoding="utf-8")
    return Session(folder)


def summary(cases: Sequence[PeerCase]) -> str:
    """Say in a line how wrong both are, and how often ours is nearer."""
    words = []
    for name, errors in (
        ("ours", [case.our_error for case in cases]),
        ("rated", [case.rated_error for case in cases]),
        ("the peer's", [case.peers_error for case in cases]),
    ):
        size = score(abs(error) for error in errors)
        off = mean(abs(error) for error in errors)
        words.append(
            f"{name} median {size.median:.1%}, p90 {size.p90:.1%}, mean {off:.1%}, bias"
            f" {mean(errors):+.1%}"
        )
    nearer = sum(abs(case.rated_error) < abs(case.peers_error) for case in cases)
    return f"{len(cases)} cases: {'; '.join(words)}; rated is nearer than the peer in {nearer}"


def peer_text(cases: Sequence[PeerCase], date: str) -> str:
    """Return the text of ``profiles/measurements/peer_cases.csv``."""
    out = io.StringIO()
    out.write(
        f"# schema: {PEER_SCHEMA}\n"
        "# title: Iterations of a peer's public cases: measured, by perfsim, by the peer\n"
        f"# source: {CITATION}\n"
        "# licence: Apache-2.0\n"
        f"# date: {date}\n"
        f"# summary: {summary(cases)}\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PEER_COLUMNS)
    for case in cases:
        each = (case.measured_ms, case.ours_ms, case.rated_ms, case.peers_ms)
        times = (f"{ms:.2f}" for ms in each)
        off = (case.our_error, case.rated_error, case.peers_error)
        errors = (f"{error:+.4f}" for error in off)
        writer.writerow((case.name, *times, *errors))
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict a peer's public cases and write both errors."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=Path, required=True, help="table of the peer's cases")
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-24")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        cases = peer_cases(given.cases, Session(), rated_session(Path(folder) / "rated"))
    if given.out:
        write_text(given.out, peer_text(cases, given.date))
    sys.stdout.write(f"{summary(cases)}\n")


if __name__ == "__main__":
    main()
