"""Time what the host takes longer for a block where FSDP or DeepSpeed's ZeRO-3 shard its tensors.

``python tests/scripts/sharding_host.py`` prints a line a way to shard: how much longer the host
takes for a forward and for a backward pass of one unit (FSDP) or module (ZeRO-3) than where nothing
is sharded, and in FSDP for each parameter in it. Ranks are PyTorch's fake ones, whose collectives
return at once, and products are so narrow that they take next to nothing: what is left is the
host's, in the hooks that gather, free, copy and reduce. Modules of ZeRO-3 are a dense layer that is
sharded, a normalisation that stays whole for its size (``stage3_param_persistence_threshold``) and
one without tensors. Updates are left out, and what a GPU's streams, events and launches take.
It needs ``pip install torch deepspeed`` and no GPU; `sharding_host.txt` has what it printed last,
by one core.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
import warnings
from typing import Any

RANKS, HIDDEN, TOKENS, KEPT = 8, 128, 32, 1_000
UNITS, PARAMETERS, MODULES = (4, 12), (2, 10), (8, 32)
REPEATS, WARM = 150, 30


def dense(count: int) -> list[Any]:
    """Return so many dense layers."""
    from torch import nn

    return [nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(count)]


def timed(network: Any, step: Any, update: Any = None) -> list[float]:
    """Return the processor's time of a forward and of a backward pass [us]."""
    import torch

    found: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        start = time.process_time()
        loss = network(x).sum()
        middle = time.process_time()
        step(loss)
        found.append((middle - start, time.process_time() - middle))
        for parameter in network.parameters():
            parameter.grad = None
        if update is not None:
            update()
    # What other programs on the machine disturb is left out: the quickest tenth.
    return [1e6 * statistics.quantiles(times, n=10)[0] for times in zip(*found[WARM:], strict=True)]


def by_fsdp(version: int, units: int, parameters: int) -> list[float]:
    """Return the times of so many units of so many dense layers; of version 0, not sharded."""
    import torch
    from torch import nn
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    network: Any = nn.Sequential(*[nn.Sequential(*dense(parameters)) for _ in range(units)])
    if version == 1:
        types = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        network = fsdp.FullyShardedDataParallel(
            nn.Sequential(network),
            auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
            device_id=torch.device("cpu"),
            use_orig_params=True,
            mixed_precision=types,
        )
    elif version == 2:
        mesh = init_device_mesh("cpu", (RANKS,))
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for unit in [*network, network]:
            fsdp.fully_shard(unit, mesh=mesh, mp_policy=policy)
    else:
        network = network.to(torch.bfloat16)
    return timed(network, torch.Tensor.backward)


def by_zero(kind: str, count: int, *, sharded: bool) -> list[float]:
    """Return the times of so many modules of a kind between two dense layers."""
    import deepspeed
    import torch
    from torch import nn

    made = {
        "sharded": lambda: dense(1)[0],
        "whole": lambda: nn.LayerNorm(HIDDEN),
        "without tensors": nn.SiLU,
    }[kind]
    first, last = dense(2)
    network: Any = nn.Sequential(first, *[made() for _ in range(count)], last).to(torch.bfloat16)
    if not sharded:
        return timed(network, torch.Tensor.backward)
    zero = {"stage": 3, "stage3_param_persistence_threshold": KEPT}
    asked = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    asked |= {"zero_optimization": zero, "zero_allow_untested_optimizer": True}
    update = torch.optim.SGD(network.parameters(), lr=0.0)
    engine, *_ = deepspeed.initialize(model=network, optimizer=update, config=asked)
    return timed(engine, engine.backward, engine.step)


def each(few: list[float], many: list[float], more: int) -> list[float]:
    """Return what each of those takes that one measurement has more than the other."""
    return [(after - before) / more for before, after in zip(few, many, strict=True)]


def main() -> None:
    """Print a line a way."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE=str(RANKS), LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29511")
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
    print(f"PyTorch {torch.__version__}, DeepSpeed {deepspeed.__version__}, host's us longer")
    print(f"{'':26} forward backward")

    def say(words: str, longer: list[float]) -> None:
        print(f"{words:26} {longer[0]:7.0f} {longer[1]:8.0f}")

    times = {
        (version, count): each(
            by_fsdp(version, UNITS[0], count),
            by_fsdp(version, UNITS[1], count),
            UNITS[1] - UNITS[0],
        )
        for version in (0, 1, 2)
        for count in PARAMETERS
    }
    for version in (1, 2):
        few, many = (each(times[0, count], times[version, count], 1) for count in PARAMETERS)
        one = each(few, many, PARAMETERS[1] - PARAMETERS[0])
        say(
            f"FSDP{version}, a unit", [x - PARAMETERS[0] * y for x, y in zip(few, one, strict=True)]
        )
        say(f"FSDP{version}, a parameter", one)
    for kind in ("sharded", "whole", "without tensors"):
        alone, sharded = (
            each(
                by_zero(kind, MODULES[0], sharded=sharded),
                by_zero(kind, MODULES[1], sharded=sharded),
                MODULES[1] - MODULES[0],
            )
            for sharded in (False, True)
        )
        say(f"ZeRO-3, a module {kind}", each(alone, sharded, 1))


if __name__ == "__main__":
    main()
