"""Every method at three scales on three networks: ``python tests/scripts/ranking.py [MODEL]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.methods import method_names
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

NETWORKS = ("1gbe", "10gbe", "ib100")
SCALES = (8, 64, 1024)


def main(given: Sequence[str] | None = None) -> None:
    """Print the ranking of the model that is named (default: resnet50)."""
    parser = argparse.ArgumentParser(description=rank.__doc__)
    parser.add_argument("model", nargs="?", default="resnet50", metavar="MODEL")
    rank(parser.parse_args(given).model)


def rank(model: str) -> None:
    """Print, fastest first, each method's iteration and its speed-up over S-SGD."""
    catalog = SHIPPED
    print(f"{model}: iteration in ms (times as fast as S-SGD), fastest first")
    for net in NETWORKS:
        for gpus in SCALES:
            found = []
            for method in method_names():
                scenario = {"model": model, "gpus": gpus, "net": net, "method": method}
                one = predict(make_scenario(scenario), catalog)
                found.append(
                    (one.iteration_s, f"{method} {one.iteration_s * 1e3:.0f} ({one.speedup:.2f}x)")
                )
            print(f"{net:6}{gpus:5}  " + ", ".join(text for _, text in sorted(found)))


if __name__ == "__main__":
    main()
