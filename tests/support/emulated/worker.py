"""One rank of an emulated training job: sleeping layers, real buckets, real messages.

python worker.py BLOCKS CASE...: each case is a JSON object with method, bucket_mb and options;
rank 0 prints one with the seconds an iteration of every block.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from support.emulated.schemes import SCHEMES
from support.emulated.sleeping import Sleeping, asked_profile

WARM_UP_BLOCKS = 2


def main() -> None:
    """Train by each case."""
    blocks, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in map(json.loads, cases):
        seconds = _measure(case, int(blocks))
        if dist.get_rank() == 0:
            print(json.dumps({**case, "seconds": seconds}), flush=True)
        dist.barrier()
    dist.destroy_process_group()


def _measure(case: dict[str, Any], blocks: int) -> list[float]:
    profile, slower = asked_profile()
    net = Sleeping(profile, slower)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    x = torch.zeros(4, requires_grad=True)
    scheme = SCHEMES[case["method"]](case, profile, net, optimizer)
    times = []
    number = 0
    dist.barrier()
    for block in range(WARM_UP_BLOCKS + blocks):
        begun = time.perf_counter()
        for _ in range(scheme.period):
            scheme.step(x, number)
            number += 1
        if block >= WARM_UP_BLOCKS:
            times.append((time.perf_counter() - begun) / scheme.period)
    scheme.stop()
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(block_s) for block_s in slowest]


if __name__ == "__main__":
    main()
