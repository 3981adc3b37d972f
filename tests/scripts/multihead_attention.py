"""Count what ``nn.MultiheadAttention`` moves and launches beside code that calls the kernel itself.

``python tests/scripts/multihead_attention.py`` prints, of attention over 197 tokens of 768 values
in 12 heads, how many values of one that attention writes each kind of operation reads and writes,
forward and backward, and how many ran; once as timm's ViT has it, once as torchvision's. It runs on
a CPU in bf16 and needs ``pip install torch``. `multihead_attention.txt` has what it printed last.

Each operation reads its inputs once and writes its outputs once; views are none. The gradient of a
selection is counted as the two kernels that it is: zeros everywhere, and a copy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

SAMPLES, TOKENS, WIDTH, HEADS = 4, 197, 768, 12
ALIKE = ("mm", "addmm", "sum", "ones_like", "empty_like", "detach")
"""Products, the gradient of a bias and what the script itself asks for: both ways have them."""


def counted() -> Any:
    """Return what counts what operations read and write, by name, while it is entered."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Counted(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.moved: Counter[str] = Counter()
            self.ran: Counter[str] = Counter()

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run an operation and count it."""
            found = function(*args, **(kwargs or {}))
            read, written = (
                [one for one in tree_leaves(of) if isinstance(one, torch.Tensor)]
                for of in ((args, kwargs), found)
            )
            name = function._schema.name.removeprefix("aten::")
            here = {one.untyped_storage().data_ptr() for one in read}
            if name in ALIKE or "attention" in name or _only_views(here, written):
                return found
            values = sum(one.numel() for one in [*read, *written])
            if name == "select_backward":
                values += read[0].numel()
            self.moved[name] += values
            self.ran[name] += 2 if name == "select_backward" else 1
            return found

    return Counted()


def _only_views(here: set[int], written: list[Any]) -> bool:
    return all(one.untyped_storage().data_ptr() in here for one in written)


def own() -> Any:
    """Return attention as timm's ViT has it."""
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, values: Any) -> Any:
            """Return what attention writes."""
            heads = self.qkv(values).reshape(*values.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            return self.proj(
                scaled_dot_product_attention(*heads.unbind(0)).transpose(1, 2).reshape(values.shape)
            )

    return Own()


def multihead() -> Any:
    """Return attention as torchvision's ViT has it."""
    from torch import nn

    class Multihead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

        def forward(self, values: Any) -> Any:
            """Return what attention writes."""
            return self.attention(values, values, values, need_weights=False)[0]

    return Multihead()


def main() -> None:
    """Print both."""
    import torch

    print(f"PyTorch {torch.__version__}")
    for name, module in (("timm", own()), ("nn.MultiheadAttention", multihead())):
        module.to(torch.bfloat16)
        values = torch.randn(SAMPLES, TOKENS, WIDTH, dtype=torch.bfloat16).requires_grad_(True)
        behind = values * 1.0  # not a leaf, as in a network
        with counted() as forward:
            found = module(behind)
        with counted() as backward:
            torch.autograd.grad(found, [behind, *module.parameters()], torch.ones_like(found))
        for way, one in (("forward", forward), ("backward", backward)):
            each = {key: round(moved / values.numel(), 1) for key, moved in one.moved.items()}
            total, ran = sum(each.values()), sum(one.ran.values())
            words = ", ".join(f"{key} {each[key]:g} ({one.ran[key]})" for key in each)
            print(f"{name:24}{way:10}{total:5.1f} values, {ran:2} operations: {words or 'none'}")


if __name__ == "__main__":
    main()
