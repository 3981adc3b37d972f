"""Records of runs with several kinds of parallelism, and of a peer's cases: by hand and by law."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_record
import peer_cases
from parallel_record import GROUPS, configurations_ranked, parallel_text
from peer_cases import PeerCase, peer_scenario, peer_text, summary
from perfsim.models import build_model
from perfsim.scenario import make_scenario
from perfsim.validate.cases import Case
from perfsim.validate.groups import PredictedCase
from support.collected import COLLECTED
from support.training_tables import table_of_runs

RUN = {
    "source": "InternEvo",
    "cite": "InternLM/InternEvo@c628a8c8:doc/en/train_performance.md",
    "model": "InternLM-7B",
    "seq": "2048",
    "gpu": "A100-SXM4-80GB",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "network": "4 x 100 Gb/s RoCE per node",
    "precision": "bf16",
    "strategy": "ZeRO-1 over all DP ranks",
    "tp": "1",
    "micro_batch": "2",
    "grad_accum": "4",
    "step_time_s": "4.2644",
}
SMALL = {
    "source": "vTrain",
    "cite": "VIA-Research/vTrain@f8dda847",
    "model": "GPT (Megatron-LM)",
    "layers": "16",
    "hidden": "1024",
    "heads": "16",
    "seq": "1024",
    "gpu": "A100-40GB",
    "n_gpus": "4",
    "gpus_per_node": "4",
    "precision": "fp16",
    "strategy": "3D, tp1, pp1",
    "micro_batch": "8",
    "step_time_s": "0.5",
}


def lines_of(text: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the lines of a record by what they are of, name and way."""
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(row["by"], row["name"], row["way"]): row for row in rows}


def test_a_group_is_counted_with_what_is_left(tmp_path: Path) -> None:
    odd = RUN | {"strategy": "ZeRO-1 x PP"}
    path = table_of_runs(tmp_path, RUN, RUN | {"step_time_s": "5.5", "tp": "2"}, odd, SMALL)
    rows = io.StringIO()
    lines = lines_of(parallel_text(path, "2026-11-24", rows=rows))
    line = lines["group", "InternEvo", "blind"]
    assert (line["rows"], line["left"]) == ("2", "1")
    assert lines["source", "internevo", "blind"]["rows"] == "2"
    assert lines["source", "internevo", "blind"]["left"] == "1"
    assert lines["kind", "tensor parallelism", "blind"]["rows"] == "1"
    errors = [row for row in csv.DictReader(io.StringIO(rows.getvalue())) if row["way"] == "blind"]
    by_hand = [float(row["error"]) for row in errors if row["group"] == "InternEvo"]
    assert float(line["bias"]) == pytest.approx(sum(by_hand) / 2, abs=1e-4)
    # Excluded by a criterion, and predicted all the same: it stands alone.
    assert lines["group", "vTrain", "blind"]["rows"] == "1"
    assert not [name for by, name, _ in lines if by == "source" and name == "vtrain"]
    said = rows.getvalue()
    assert "internevo-3,left,,missing: degree of pipeline parallelism not stated" in said


def test_only_what_is_asked_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = table_of_runs(tmp_path, RUN, SMALL), tmp_path / "rows.csv"
    asked = ["--measurements", str(path), "--date", "2026-11-24", "--group", "vTrain"]
    parallel_record.main([*asked, "--rows", str(out)])
    assert {name for _, name, _ in lines_of(capsys.readouterr().out)} == {"vTrain"}
    assert out.read_text().startswith("group,id,way")


def row(rate: float, error: float, **fields: object) -> PredictedCase:
    """Return a case of a rate, with the error of its predicted time."""
    asked = {"model": "llama3-8b", "gpu": "h100", "gpus": 64, "net": "dgx-h100", "batch": 1}
    case = Case(
        *("nvidia-1", "NeMo", "Llama", "H100", "64", "8", "IB", "1", "", "", "throughput"),
        *(rate, ""),
    )
    return PredictedCase(
        case, make_scenario(asked | fields, "x"), rate / (1 + error), (0, 0), error
    )


def test_configurations_of_one_model_are_ranked_by_rate() -> None:
    fast, slow = row(120.0, 0.1, tp=2), row(100.0, -0.2, tp=4)
    # Predicted 109.1 and 125: the wrong order.
    assert configurations_ranked([fast, slow]) == (1, 0)
    assert configurations_ranked([fast, row(100.0, 0.1, tp=4)]) == (1, 1)
    # Too close, another model, GPUs or length, or the same configuration twice: no pair.
    assert configurations_ranked([fast, row(110.0, 0.0, tp=4)]) == (0, 0)
    for other in ({"model": "llama3-70b"}, {"gpus": 128}, {"seq": 4096}):
        assert configurations_ranked([fast, row(50.0, 0.0, tp=4, **other)]) == (0, 0)
    assert configurations_ranked([fast, row(50.0, 0.0, tp=2)]) == (0, 0)


def test_a_time_is_ranked_by_the_samples_that_it_takes() -> None:
    """One micro-batch of 2 on 32 replicas in 1 s is faster than of 1 on 16 in 0.4 s."""
    first = row(1.0, 0.0, tp=2, batch=2)
    first = replace(first, case=replace(first.case, metric="iteration_s", value=1.0))
    second = row(1.0, 0.0, tp=4)
    second = replace(second, case=replace(second.case, metric="iteration_s", value=0.4))
    assert configurations_ranked([first, second]) == (1, 1)
    assert configurations_ranked([first, replace(second, error=-0.5)]) == (1, 0)


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=6), st.floats(-0.9, 9.0))
def test_one_error_for_all_ranks_all_right(rates: list[float], error: float) -> None:
    found = [row(rate, error, accumulate=index) for index, rate in enumerate(rates, 1)]
    pairs, right = configurations_ranked(found)
    assert pairs == right <= len(rates) * (len(rates) - 1) / 2


def test_groups_have_their_sources() -> None:
    def has(group: str, publisher: str, model: str = "Llama") -> bool:
        return GROUPS[group].has(replace(row(1.0, 0.0).case, publisher=publisher, model=model))

    assert has("NVIDIA's summaries", "nvidia-bridge") and not has("NVIDIA's summaries", "dle")
    assert has("MLPerf's language models", "mlperf-v5.0", "Llama, llama31_405b, 8192 tokens")
    assert not has("MLPerf's language models", "mlperf-v5.0", "BERT-Large, bert")
    assert (
        sum(
            group.has(replace(row(1.0, 0.0).case, publisher="ibm-fms")) for group in GROUPS.values()
        )
        == 1
    )


CELLS = {
    "case": "deepseekv3_l4_tp1_ep4_pp2_dp4_mbc8_cef",
    "model": "deepseekv3_l4",
    "layers": "4",
    **{"tp": "1", "pp": "2", "cp": "1", "dp": "4", "ep": "4"},
    "seq": "4096 (default, not in name)",
    "micro_batches": "8",
    "real_ms": "771.60",
    "predicted_ms": "761.96",
}


def test_a_peer_s_case_is_asked_as_it_was_run() -> None:
    asked = peer_scenario(CELLS)
    assert (asked.gpu, asked.gpus, asked.tp, asked.pp, asked.ep) == ("b200", 8, 1, 2, 4)
    assert (asked.batch, asked.accumulate, asked.seq) == (1, 8, 4096)
    # Four layers of DeepSeek-V3, one of them dense: 3 x 11.5 billion, attention, two embeddings.
    billions = sum(layer.elements for layer in build_model(asked.model, asked.seq)) / 1e9
    experts = 3 * 257 * 3 * 7168 * 2048 / 1e9
    words = 2 * 129280 * 7168 / 1e9
    assert billions == pytest.approx(experts + words + 3 * 7168 * 18432 / 1e9 + 4 * 0.187, rel=0.01)


@pytest.mark.parametrize("cells", [{"model": "gpt"}, {"dp": "3"}])
def test_a_peer_s_case_that_is_none_is_refused(cells: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="deepseekv3_l4_tp1"):
        peer_scenario(CELLS | cells)


def test_a_peer_s_table_has_both_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [PeerCase("a", 100.0, 80.0, 90.0, 95.0), PeerCase("b", 200.0, 190.0, 202.0, 220.0)]
    said = summary(cases)
    assert said == (
        "2 cases: ours median 12.5%, p90 18.5%, mean 12.5%, bias -12.5%;"
        " rated median 5.5%, p90 9.1%, mean 5.5%, bias -4.5%;"
        " the peer's median 7.5%, p90 9.5%, mean 7.5%, bias +2.5%;"
        " rated is nearer than the peer in 1"
    )
    text = peer_text(cases, "2026-11-24")
    assert (
        "a,100.00,80.00,90.00,95.00,-0.2000,-0.1000,-0.0500" in text
        and f"# summary: {said}" in text
    )
    path, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CELLS)
        writer.writeheader()
        writer.writerows([CELLS, CELLS | {"case": "none", "real_ms": ""}])
    peer_cases.main(["--cases", str(path), "--out", str(out), "--date", "2026-11-24"])
    assert capsys.readouterr().out.startswith("1 cases: ours median")
    assert CELLS["case"] in out.read_text() and "none," not in out.read_text()


PEERS = COLLECTED / "modern" / "peer_simumax_cases.csv"


@pytest.mark.skipif(not PEERS.is_file(), reason="the collected figures are not in this checkout")
def test_every_case_of_the_peer_with_a_time_can_be_asked() -> None:
    with PEERS.open(encoding="utf-8") as file:
        cases = [cells for cells in csv.DictReader(file) if cells["real_ms"]]
    assert len(cases) == 43
    for cells in cases:
        asked = peer_scenario(cells)
        assert asked.tp * asked.pp * asked.cp * int(cells["dp"]) == 8
