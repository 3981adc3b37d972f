"""Count the operations of a loop over experts, as transformers had it before 5.0.

``python tests/scripts/expert_loops.py`` prints the kernels that PyTorch's dispatcher sees in both
passes of the experts of Qwen3 (transformers 4.57.1, modeling_qwen3_moe.py; the loops of Mixtral and
OLMoE launch the same) and of gpt-oss (4.57.1 and 5.24.0, modeling_gpt_oss.py): those of an expert,
and the rest. Views count as none. It also prints how often the host waits in the forward pass, and
how many gradients are as large as those of all tokens or of all experts. It needs ``pip install
torch``. `expert_loops.txt` has what it printed last.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

EXPERTS = (8, 16)
"""Experts of a layer; what two numbers differ in is an expert's."""
WIDTH, INNER, TOKENS, CHOSEN = 64, 32, 512, 4
VIEWS = {
    *("view", "_unsafe_view", "_reshape_alias", "reshape", "detach", "alias", "lift_fresh"),
    *("t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "as_strided"),
    *("slice", "select", "split", "chunk", "unbind"),
}
WAITS = {"nonzero", "_local_scalar_dense"}


def _tokens_by_expert(chosen: Any, classes: int) -> tuple[Any, Any]:
    """Return which tokens each expert has, and the experts that have any."""
    import torch

    mask = torch.nn.functional.one_hot(chosen, num_classes=classes).permute(2, 1, 0)
    return mask, torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()


def modules(experts: int) -> tuple[list[Any], Callable[..., Any]]:
    """Return the parameters and the forward pass of experts that are modules of their own."""
    import torch
    from torch import nn

    def one() -> Any:
        sides = ((WIDTH, INNER), (WIDTH, INNER), (INNER, WIDTH))
        return nn.ModuleList([nn.Linear(*side, bias=False) for side in sides])

    all_of_them = nn.ModuleList([one() for _ in range(experts)]).to(torch.bfloat16)

    def forward(hidden: Any, weights: Any, chosen: Any) -> Any:
        result = torch.zeros_like(hidden)
        mask, hit = _tokens_by_expert(chosen, experts)
        for expert in hit:
            gate, up, down = all_of_them[expert]
            place, token = torch.where(mask[expert].squeeze(0))
            given = hidden[None, token].reshape(-1, WIDTH)
            made = down(nn.functional.silu(gate(given)) * up(given))
            made = made * weights[token, place, None]
            result.index_add_(0, token, made.to(hidden.dtype))
        return result

    return list(all_of_them.parameters()), forward


def one_tensor(experts: int) -> tuple[list[Any], Callable[..., Any]]:
    """Return the same of experts with biases that are parts of one tensor."""
    import torch
    from torch import nn

    shapes = ((WIDTH, 2 * INNER), (2 * INNER,), (INNER, WIDTH), (WIDTH,))
    first, first_bias, last, last_bias = parameters = [
        nn.Parameter(torch.randn(experts, *shape, dtype=torch.bfloat16)) for shape in shapes
    ]

    def forward(hidden: Any, weights: Any, chosen: Any) -> Any:
        result = torch.zeros_like(hidden)
        with torch.no_grad():
            mask, hit = _tokens_by_expert(chosen, experts + 1)
        for row in hit:
            expert = row[0]
            if expert == experts:
                continue
            with torch.no_grad():
                place, token = torch.where(mask[expert])
            both = hidden[token] @ first[expert] + first_bias[expert]
            gate = both[..., ::2].clamp(min=None, max=7.0)
            up = both[..., 1::2].clamp(min=-7.0, max=7.0)
            made = (up + 1) * (gate * torch.sigmoid(gate * 1.702))
            made = (made @ last[expert] + last_bias[expert]) * weights[token, place, None]
            result.index_add_(0, token, made.to(hidden.dtype))
        return result

    return parameters, forward


def counted(build: Callable[[int], Any], experts: int) -> list[Counter[str]]:
    """Return the operations of the forward and the backward pass by name."""
    import torch

    from scripts.dispatched_calls import DispatchedCalls

    torch.manual_seed(0)
    parameters, forward = build(experts)
    leaf = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    found: list[Counter[str]] = []
    for _ in range(2):  # the first pass makes gradients that the second adds to
        shares, chosen = torch.topk(torch.softmax(torch.randn(TOKENS, experts), -1), CHOSEN)
        weights = shares.to(torch.bfloat16).requires_grad_()
        for parameter in parameters:
            parameter.grad = None
        with DispatchedCalls() as ahead:
            result = forward(leaf * 1.0, weights * 1.0, chosen)
        with DispatchedCalls() as back:
            result.backward(torch.ones_like(result))
        found = [ahead.by_operation(), back.by_operation()]
    found[0]["mul"] -= 2  # those above
    return found


def main() -> None:
    """Print a table for each loop."""
    import torch

    print(f"PyTorch {torch.__version__}; {TOKENS} tokens, {CHOSEN} experts each")
    for title, build in (("modules (Qwen3)", modules), ("one tensor (gpt-oss)", one_tensor)):
        few, many = (counted(build, experts) for experts in EXPERTS)
        print(f"{title:24}{'an expert':>10}{'the rest':>10}")
        for name, less, more in zip(("forward", "backward"), few, many, strict=True):
            kernels = [
                sum(count for one, count in seen.items() if one not in VIEWS)
                for seen in (less, more)
            ]
            each = (kernels[1] - kernels[0]) / (EXPERTS[1] - EXPERTS[0])
            print(f"  {name:22}{each:10.0f}{kernels[1] - EXPERTS[1] * each:10.0f}")
        waits = sum(many[0][one] - few[0][one] for one in WAITS) / (EXPERTS[1] - EXPERTS[0])
        print(f"  {'waits of the host':22}{waits:10.0f}")
        for name in ("index_put", "select_backward"):
            each = (many[1][name] - few[1][name]) / (EXPERTS[1] - EXPERTS[0])
            print(f"  {name:22}{each:10.0f}")


if __name__ == "__main__":
    main()
