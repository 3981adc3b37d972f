"""Time what the host takes for a layer under tensor parallelism, by plain tensors and by DTensor.

``python tests/scripts/dtensor_host.py`` prints a line a way to split a layer over 8 ranks:
the host's time of a forward and of a backward pass, what two forward and one backward pass (the
layer computed again) take longer than by plain tensors, and the collectives of a forward and a
backward pass. Ranks are PyTorch's fake ones, whose collectives return at once, and the layer is so
narrow that its products take next to nothing: what is left is the host's. The plans are those of
torchtitan (the input of attention and of the MLP gathered once), of a library that names
``ColwiseParallel`` alone (gathered by each product), and one without sequence parallelism.
Llama's layer, and Qwen3's, whose heads are normed.
It needs ``pip install torch``; `dtensor_host.txt` has what it printed last, by one core.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any

RANKS, HIDDEN, HEADS, KV, WIDTH, FFN, TOKENS = 8, 128, 16, 8, 8, 256, 32
REPEATS, WARM = 100, 30


def layers() -> tuple[Any, Any]:
    """Return the class of a layer, and of one of plain tensors that sums over ranks itself."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention, silu

    class Norm(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            wide = x.float()
            return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotated(x: Any) -> Any:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)

    class Attention(nn.Module):
        def __init__(self, ranks: int, normed: bool) -> None:
            super().__init__()
            self.q = nn.Linear(HIDDEN, HEADS * WIDTH // ranks, bias=False)
            self.k = nn.Linear(HIDDEN, KV * WIDTH // ranks, bias=False)
            self.v = nn.Linear(HIDDEN, KV * WIDTH // ranks, bias=False)
            self.o = nn.Linear(HEADS * WIDTH // ranks, HIDDEN, bias=False)
            self.q_norm, self.k_norm = (
                (Norm(WIDTH), Norm(WIDTH)) if normed else (nn.Identity(), nn.Identity())
            )

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            q, k, v = (one(x).unflatten(-1, (-1, WIDTH)) for one in (self.q, self.k, self.v))
            q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
            q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
            heads = scaled_dot_product_attention(
                q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True
            )
            return self.o(heads.transpose(1, 2).flatten(2))

    class Mlp(nn.Module):
        def __init__(self, ranks: int) -> None:
            super().__init__()
            self.gate = nn.Linear(HIDDEN, FFN // ranks, bias=False)
            self.up = nn.Linear(HIDDEN, FFN // ranks, bias=False)
            self.down = nn.Linear(FFN // ranks, HIDDEN, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(silu(self.gate(x)) * self.up(x))

    class Layer(nn.Module):
        def __init__(self, ranks: int = 1, normed: bool = False) -> None:
            super().__init__()
            self.norm, self.attention = Norm(HIDDEN), Attention(ranks, normed)
            self.mlp_norm, self.mlp = Norm(HIDDEN), Mlp(ranks)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            x = x + self.attention(self.norm(x), cos, sin)
            return x + self.mlp(self.mlp_norm(x))

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            dist.all_reduce(gradient)
            return gradient

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    class Plain(Layer):
        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            x = x + Sum.apply(self.attention(Copy.apply(self.norm(x)), cos, sin))
            return x + Sum.apply(self.mlp(Copy.apply(self.mlp_norm(x))))

    return Layer, Plain


def plan(how: str, normed: bool) -> dict[str, Any]:
    """Return how the parts of a layer are split."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as by

    names = ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
    if how == "no sequence parallelism":
        rows = by.RowwiseParallel()
        return dict.fromkeys(names, by.ColwiseParallel()) | {"attention.o": rows, "mlp.down": rows}
    once = how == "gathered once"
    columns = by.ColwiseParallel(input_layouts=Replicate() if once else Shard(1))
    rows = by.RowwiseParallel(output_layouts=Shard(1))
    found = dict.fromkeys(names, columns) | {"attention.o": rows, "mlp.down": rows}
    found |= dict.fromkeys(("norm", "mlp_norm"), by.SequenceParallel())
    if once:
        found["attention"] = by.PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        )
        found["mlp"] = by.PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
    if normed:
        within = by.SequenceParallel(sequence_dim=2, use_local_output=True)
        found |= {"attention.q_norm": within, "attention.k_norm": within}
    return found


def timed(layer: Any, tokens: int) -> tuple[float, float]:
    """Return the host's time of a forward and of a backward pass [ms]."""
    import torch

    cos, sin = torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)
    forward, backward = [], []
    for _ in range(REPEATS):
        x = torch.randn(1, tokens, HIDDEN, requires_grad=True)
        start = time.perf_counter()
        y = layer(x, cos, sin)
        middle = time.perf_counter()
        y.backward(torch.ones_like(y))
        forward.append(middle - start)
        backward.append(time.perf_counter() - middle)
    return 1e3 * statistics.median(forward[WARM:]), 1e3 * statistics.median(backward[WARM:])


def collectives(layer: Any, tokens: int) -> str:
    """Return what a forward and a backward pass send: how many of each collective."""
    import torch
    from torch.distributed.tensor.debug import CommDebugMode

    cos, sin = torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)
    with CommDebugMode() as sent:
        y = layer(torch.randn(1, tokens, HIDDEN, requires_grad=True), cos, sin)
        y.backward(torch.ones_like(y))
    counts = {str(name).split(".")[-1]: count for name, count in sent.get_comm_counts().items()}
    words = (f"{count} {name.rstrip('_')}" for name, count in sorted(counts.items()))
    return ", ".join(words).replace("_into_tensor", "").replace("_tensor", "").replace("_", "-")


def main() -> None:
    """Print a line a way."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.testing._internal.distributed.fake_pg import FakeStore

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    made, plain = layers()
    print(f"PyTorch {torch.__version__}, host's ms a layer")
    print(f"{'':50} forward backward  longer  collectives")
    for normed in (False, True):
        layer = plain(RANKS, normed)
        base = timed(layer, TOKENS)
        words = "norms of heads: " if normed else ""
        print(
            f"{words + 'plain tensors':50} {base[0]:7.2f} {base[1]:8.2f}", " " * 8, "4 all-reduce"
        )
        for how in ("no sequence parallelism", "gathered once", "gathered by each product"):
            layer = made(1, normed)
            parallelize_module(layer, mesh, plan(how, normed))
            tokens = TOKENS if how == "no sequence parallelism" else TOKENS // RANKS
            found = timed(layer, tokens)
            longer = 2 * (found[0] - base[0]) + found[1] - base[1]
            sent = collectives(layer, tokens)
            what = f"{words}DTensor, {how}"
            print(f"{what:50} {found[0]:7.2f} {found[1]:8.2f} {longer:7.2f}  {sent}")


if __name__ == "__main__":
    main()
