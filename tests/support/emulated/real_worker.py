"""One rank that really trains: PyTorch's DDP and its hooks, FSDP, local SGD, DiLoCo.

python real_worker.py DEVICE MODEL BATCH BLOCKS SECONDS CASE...: cpu talks by gloo, cuda by NCCL.
Each case is a JSON object with name, scheme and options. A block is one period of the scheme; there
are BLOCKS of them, more where these are short (SECONDS), fewer where they are very long. Rank 0
prints for each case the mean seconds an iteration over all blocks (``mean_s``: of the rank that
took longest), and those of every block (``seconds``: of the slowest rank of it).
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from support.emulated import real_models

WARM_UP_ITERATIONS = 3
FEWEST_BLOCKS, MOST_BLOCKS, MOST_S = 3, 40, 30.0
"""A case has no more blocks than take ``MOST_S``, but the fewest in any case."""
Step = Callable[[int], None]


class Training:
    """A model, its optimizer and its loss; schemes wrap them."""

    def __init__(self, model: str, batch: int, optimizer: str) -> None:
        torch.manual_seed(1)
        self.net, self.loss = getattr(real_models, model)(batch, _DEVICE)
        self._optimizer_name = optimizer
        self.optimizer: Any = None
        self.make_optimizer()

    def make_optimizer(self) -> None:
        """Make the optimizer of the network's parameters as they are now."""
        parameters = self.net.parameters()
        if self._optimizer_name == "adamw":
            self.optimizer = torch.optim.AdamW(parameters, lr=1e-5)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)

    def train(self, through: Any = None) -> None:
        """Run one iteration; DDP's module stands in for the network where it is given."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss() if through is None else self.loss(through)
        loss.backward()
        self.optimizer.step()


def alone(training: Training, options: dict[str, Any]) -> Step:
    """Train without exchanging anything."""
    return lambda number: training.train()


def ddp(training: Training, options: dict[str, Any]) -> Step:
    """Train by DDP, with one of PyTorch's hooks or none."""
    net = DistributedDataParallel(training.net, bucket_cap_mb=options.get("bucket_mb"))
    hook = options.get("hook")
    if hook in ("fp16", "bf16"):
        net.register_comm_hook(None, _half_hook(hook))
    elif hook == "powersgd":
        # Hooks compress from iteration 2 on, their earliest, instead of from 1000 on.
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=options["rank"], start_powerSGD_iter=2
        )
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return lambda number: training.train(net)


def _half_hook(name: str) -> Callable[[Any, Any], Any]:
    """Return PyTorch's hook under another name: DDP refuses bf16's by its name on gloo."""
    hook = getattr(default_hooks, f"{name}_compress_hook")

    def run(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return hook(state, bucket)

    run.__annotations__ = hook.__annotations__
    return run


def fsdp(training: Training, options: dict[str, Any]) -> Step:
    """Train by fully_shard (FSDP2), with a unit a block; the last unit stays gathered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(_DEVICE, (dist.get_world_size(),))
    *units, last = real_models.sharded_units(training.net)
    for unit in units:
        fully_shard(unit, mesh=mesh)
    fully_shard(last, mesh=mesh, reshard_after_forward=False)
    fully_shard(training.net, mesh=mesh)
    training.make_optimizer()
    return lambda number: training.train(training.net)


def post_local(training: Training, options: dict[str, Any]) -> Step:
    """Train by PyTorch's post-local SGD in its second phase: hook, averager, optimizer."""
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hooks
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    inside = options["inside"]
    net = DistributedDataParallel(training.net)
    state = hooks.PostLocalSGDState(
        process_group=None,
        subgroup=_groups(inside)[0],
        start_localSGD_iter=1,
        post_local_gradient_allreduce=inside > 1,
    )
    net.register_comm_hook(state, hooks.post_localSGD_hook)
    averager = PeriodicModelAverager(period=options["interval"], warmup_steps=0)
    training.optimizer = PostLocalSGDOptimizer(training.optimizer, averager)
    return lambda number: training.train(net)


def local_sgd(training: Training, options: dict[str, Any]) -> Step:
    """Train alone and average tensor by tensor, as Hugging Face Accelerate's LocalSGD does."""
    interval = options["interval"]

    def step(number: int) -> None:
        training.train()
        if number % interval == interval - 1:
            with torch.no_grad():
                for parameter in training.net.parameters():
                    sent = parameter.data.clone()
                    dist.all_reduce(sent)
                    parameter.data = sent / dist.get_world_size()

    return step


def diloco(training: Training, options: dict[str, Any]) -> Step:
    """Train by DDP in each site; every H iterations exchange pseudo-gradients across sites.

    The first rank of a site all-reduces the differences, tensor by tensor; the outer optimizer is
    SGD with Nesterov momentum (Douillard et al. 2023); new parameters are broadcast in the site.
    """
    inside, interval = options["inside"], options["interval"]
    site, leaders = _groups(inside)
    rank = dist.get_rank()
    first = rank - rank % inside
    net = DistributedDataParallel(training.net, process_group=site)
    outer = [torch.nn.Parameter(one.detach().clone()) for one in training.net.parameters()]
    optimizer = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)
    sites = dist.get_world_size() // inside

    def step(number: int) -> None:
        training.train(net)
        if number % interval != interval - 1:
            return
        with torch.no_grad():
            if rank == first:
                for old, new in zip(outer, training.net.parameters(), strict=True):
                    old.grad = old.data - new.data
                    dist.all_reduce(old.grad, group=leaders)
                    old.grad /= sites
                optimizer.step()
                for old, new in zip(outer, training.net.parameters(), strict=True):
                    new.copy_(old)
            for new in training.net.parameters():
                dist.broadcast(new.data, first, group=site)

    return step


def _groups(inside: int) -> tuple[Any, Any]:
    """Return the group of this rank's site, and the group of the sites' first ranks."""
    key = f"{inside}"
    if key not in _MADE:
        ranks, rank = dist.get_world_size(), dist.get_rank()
        own = None
        for begin in range(0, ranks, inside):
            group = dist.new_group(list(range(begin, begin + inside)))
            own = group if begin <= rank < begin + inside else own
        _MADE[key] = own, dist.new_group(list(range(0, ranks, inside)))
    return _MADE[key]


_MADE: dict[str, tuple[Any, Any]] = {}
_DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
SCHEMES = {
    "alone": alone,
    "ddp": ddp,
    "fsdp": fsdp,
    "post_local": post_local,
    "local_sgd": local_sgd,
    "diloco": diloco,
}


def main() -> None:
    """Train by each case."""
    model, batch, blocks, least_s, *cases = sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,cuda:nccl" if _DEVICE == "cuda" else "gloo")
    for case in map(json.loads, cases):
        measured = _measure(model, int(batch), case, int(blocks), float(least_s))
        if dist.get_rank() == 0:
            print(json.dumps({"name": case["name"], **measured}), flush=True)
    dist.barrier()
    # A reducer's threads may outlive the group: leave without its destructors.
    sys.stdout.flush()
    os._exit(0)


def _measure(
    model: str, batch: int, case: dict[str, Any], blocks: int, least_s: float
) -> dict[str, Any]:
    options = case["options"]
    training = Training(model, batch, options.get("optimizer", "sgd"))
    step = SCHEMES[case["scheme"]](training, options)
    period = options.get("interval", 1)
    number = 0

    def block_s() -> float:
        """Train one period; return its seconds an iteration."""
        nonlocal number
        begun = time.perf_counter()
        for _ in range(period):
            step(number)
            number += 1
        if _DEVICE == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begun) / period

    dist.barrier()
    for _ in range(-(-WARM_UP_ITERATIONS // period)):
        (last_s,) = _greatest([block_s()])
    count = block_count(last_s * period, blocks, least_s)
    dist.barrier()
    times = [block_s() for _ in range(count)]
    (mean_s,) = _greatest([fmean(times)])
    return {"mean_s": mean_s, "seconds": _greatest(times)}


def block_count(block_s: float, blocks: int, least_s: float) -> int:
    """Return how many blocks of ``block_s`` to train.

    Examples
    --------
    >>> block_count(0.1, 8, 3.0), block_count(2.0, 8, 3.0), block_count(7.0, 8, 3.0)
    (30, 8, 4)
    """
    wanted = max(blocks, min(MOST_BLOCKS, math.ceil(least_s / block_s)))
    return min(wanted, max(FEWEST_BLOCKS, int(MOST_S / block_s)))


def _greatest(values: Sequence[float]) -> list[float]:
    """Return the greatest of all ranks, value by value."""
    found = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [float(value) for value in found]


if __name__ == "__main__":
    main()
