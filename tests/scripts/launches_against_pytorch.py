"""Count what PyTorch's dispatcher runs in a step of small networks, beside perfsim's count.

``python tests/scripts/launches_against_pytorch.py`` prints a line a network: the calls of the
forward pass, the loss, the backward pass and the update (views, allocations and readings of a
number count as none, an update runs over all tensors at once), and how many operations of the
first three perfsim's host launches (`perfsim.compute.work`); then how many more there are under
autocast, by PyTorch and by perfsim. Tensors are on the CPU, for which the
dispatcher is called as for a GPU; there a call may be several kernels (both products of a
convolution's backward pass). Dropout is left out, as it is in perfsim's convolution networks.
It needs ``pip install torch``; `launches_against_pytorch.txt` has what it printed last.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.compute.work import model_work

NONE = {
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze"),
    *("slice", "select", "detach", "alias", "as_strided", "split", "empty", "empty_like"),
    *("new_empty_strided", "_local_scalar_dense", "lift_fresh", "_reshape_alias", "unbind"),
    *("_record_function_enter_new", "_record_function_exit"),
}
"""Calls that launch nothing."""
GPT = (
    "transformer:layers=4,hidden=64,heads=4,vocab=256,positions=32,gated=no,norm=layer,tied=no,"
    "bias=all,seq=32"
)
MODELS = ("generic:params=16640,layers=4,flops=0.032MFLOP", "alexnet", "vgg16", "resnet18", GPT)
"""What perfsim calls the networks of `networks`, in their order."""


def networks() -> list[tuple[str, Any, tuple[int, ...], int]]:
    """Return names, modules, shapes of their inputs (of a GPT tokens) and numbers of classes."""
    import torch
    from torch import nn

    def convolutions(*widths: Any) -> list[nn.Module]:
        made: list[nn.Module] = []
        before = 3
        for width in widths:
            if width == "pool":
                made.append(nn.MaxPool2d(2))
                continue
            made += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(inplace=True)]
            before = width
        return made

    def dense(*widths: int) -> list[nn.Module]:
        made: list[nn.Module] = []
        for before, after in pairwise(widths):
            made += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        return made[:-1]

    class Residual(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.way = nn.Sequential(
                nn.Conv2d(before, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
            )
            short = [nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)]
            self.short = nn.Sequential(*(short if stride > 1 else []))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.way(x) + self.short(x))

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
            self.products = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.heads = heads

        def forward(self, x: Any) -> Any:
            normed = self.norms[0](x)
            parts = [one(normed).unflatten(-1, (self.heads, -1)) for one in self.products[:3]]
            q, k, v = (part.transpose(1, 2) for part in parts)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.products[3](mixed.transpose(1, 2).flatten(2))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norms[1](x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(256, 64), nn.Embedding(32, 64)
            self.blocks = nn.Sequential(*(Block(64, 4) for _ in range(4)))
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 256, bias=False)

        def forward(self, tokens: Any) -> Any:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            found = self.norm(self.blocks(self.words(tokens) + self.places(places)))
            return self.head(found).flatten(0, 1)

    alexnet = convolutions(64, "pool", 192, "pool", 384, 256, 256, "pool")
    vgg = convolutions(
        *(64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool"),
        *(512, 512, 512, "pool", 512, 512, 512, "pool"),
    )
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    residual = [
        Residual(before, width, stride)
        for first, width in ((64, 64), (64, 128), (128, 256), (256, 512))
        for before, stride in ((first, 1 + (first != width)), (width, 1))
    ]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    image = (2, 3, 64, 64)
    return [
        ("four dense layers", nn.Sequential(*dense(64, 64, 64, 64, 64)), (32, 64), 64),
        (
            "AlexNet",
            nn.Sequential(*alexnet, nn.Flatten(), *dense(256 * 64, 4096, 4096, 1000)),
            image,
            1000,
        ),
        (
            "VGG-16",
            nn.Sequential(*vgg, nn.Flatten(), *dense(512 * 4, 4096, 4096, 1000)),
            image,
            1000,
        ),
        ("ResNet-18", nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *residual, *last), image, 1000),
        ("GPT of four blocks", Gpt(), (4, 32), 256),
    ]


def counted(module: Any, shape: tuple[int, ...], classes: int, *, casts: bool) -> list[int]:
    """Return the calls of the forward pass, the loss, the backward pass and the update.

    ``casts`` says whether forward pass and loss run under autocast.
    """
    import torch

    from scripts.dispatched_calls import DispatchedCalls

    numbers: list[int] = []

    def run(part: Callable[[], Any]) -> Any:
        with DispatchedCalls() as calls:
            result = part()
        numbers.append(
            sum(count for name, count in calls.by_operation().items() if name not in NONE)
        )
        return result

    tokens = classes == 256
    kind = torch.long if tokens else torch.float32
    given = torch.zeros(shape, dtype=kind)
    rows = shape[0] * (shape[1] if tokens else 1)
    truth = torch.zeros(rows, dtype=torch.long)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, foreach=True)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=casts):
            written = run(lambda: module(given))
            loss = run(lambda: torch.nn.functional.cross_entropy(written, truth))
        run(loss.backward)
        run(optimizer.step)
        optimizer.zero_grad()

    step()  # the first update makes the momentum
    numbers.clear()
    step()
    return numbers


def main() -> None:
    """Print a line a network."""
    import torch

    warnings.simplefilter("ignore")
    print(f"PyTorch {torch.__version__}")
    print(
        f"{'':20}{'forward':>8}{'loss':>6}{'backward':>9}{'update':>8}{'all but it':>11}"
        f"{'perfsim':>9}{'autocast':>10}{'perfsim':>9}"
    )
    for model, (name, module, shape, classes) in zip(MODELS, networks(), strict=True):
        forward, loss, backward, update = counted(module, shape, classes, casts=False)
        own, cast = (model_work(model, None, "torch2", casts).operations for casts in (False, True))
        more = sum(counted(module, shape, classes, casts=True)[:3]) - forward - loss - backward
        print(
            f"{name:20}{forward:8}{loss:6}{backward:9}{update:8}{forward + loss + backward:11}"
            f"{own:9.0f}{more:+10}{cast - own:+9.0f}"
        )


if __name__ == "__main__":
    main()
