"""A ranking of methods as a person reads it in a terminal."""

from __future__ import annotations

from perfsim.methods import method_class
from perfsim.prediction import Prediction
from perfsim.ranking import CAVEAT, Ranking
from perfsim.report.terminal import print_lines, print_rows
from perfsim.units import format_bytes, format_seconds

__all__ = ["print_ranking"]


def print_ranking(ranking: Ranking) -> None:
    """Print the caveat, who wins, all methods fastest first, and which are left out and why."""
    print_lines([CAVEAT, ranking.verdict(), *ranking.kept_words(), ""])
    print_rows(
        [
            {
                "method": name,
                "iteration": format_seconds(one.iteration_s),
                "90 % interval": " to ".join(map(format_seconds, one.iteration_s_interval)),
                "times as fast as ssgd": f"{one.speedup:.2f}",
                "fusion": _fusion(one),
                "sent by each GPU": format_bytes(one.communication["bytes_per_gpu"]),
                "learns as ssgd": "no" if method_class(name).lossy else "yes",
                "needs": method_class(name).needs or "-",
            }
            for name, one in ranking.predictions.items()
        ]
    )
    if ranking.refused:
        every = len(ranking.refused) + len(ranking.predictions)
        print(f"\nleft out, {len(ranking.refused)} of {every}:")
        grouped = ranking.left_out().items()
        print_lines([f"{', '.join(names)}: {why}" for why, names in grouped], "  ", "    ")
    print(f"\nThe prediction of {ranking.winner}:\n")


def _fusion(prediction: Prediction) -> str:
    bucket = prediction.scenario["bucket_bytes"]
    return f"{prediction.scenario['fusion']}" + (f" {bucket / 2**20:g} MiB" if bucket else "")
