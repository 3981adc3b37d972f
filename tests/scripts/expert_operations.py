"""Count the operations that Megatron-LM launches around its experts.

``python tests/scripts/expert_operations.py CHECKOUT`` prints, for two ranks of a CPU (gloo) that
share the experts of one layer, the kernels that PyTorch's dispatcher sees in its forward and its
backward pass, those of each expert, and the rest: what chooses experts, sends tokens to them and
puts them in order. Views count as none. Experts run one after the other (SequentialMLP) and the
dispatcher is "alltoall". CHECKOUT is a clone of NVIDIA/Megatron-LM at core_v0.16.1; it needs
``pip install torch``. `expert_operations.txt` has what it printed last.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

EXPERTS = (4, 8)
"""Experts of a rank; what two numbers differ in is an expert's."""
WIDTH, TOKENS = 64, 128
VIEWS = (
    *("view", "detach", "t.default", "transpose", "slice", "select", "expand", "split", "alias"),
    *("squeeze", "permute", "as_strided", "reshape", "unbind", "chunk"),
)


class _Nothing:
    """Stands for streams and events, which a CPU has none of."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: _Nothing()

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def without_gpu() -> None:
    """Let Megatron-LM's calls of CUDA do nothing, and gloo take sizes as tensors."""
    import torch
    import torch.distributed as dist

    for name in ("Stream", "current_stream", "default_stream", "stream", "Event", "synchronize"):
        setattr(torch.cuda, name, lambda *_, **__: _Nothing())
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda self, *_, **__: self
    plain = dist.all_to_all_single

    def all_to_all(output: Any, given: Any, *sizes: Any, group: Any = None, **named: Any) -> Any:
        listed = {
            name: size.tolist() if hasattr(size, "tolist") else size for name, size in named.items()
        }
        return plain(output, given, *sizes, group=group, **listed)

    dist.all_to_all_single = all_to_all


def counted(experts: int) -> tuple[int, int]:
    """Return the kernels of both passes of a layer with so many experts a rank."""
    import torch
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.moe_layer import MoELayer
    from megatron.core.transformer.transformer_config import TransformerConfig

    from scripts.dispatched_calls import DispatchedCalls

    def kernels(calls: DispatchedCalls) -> int:
        return sum(
            count for name, count in calls.seen.items() if not any(view in name for view in VIEWS)
        )

    moe_utils.te_general_gemm = None
    whole = 2 * experts
    config = TransformerConfig(
        num_layers=1,
        hidden_size=WIDTH,
        num_attention_heads=4,
        num_moe_experts=whole,
        expert_model_parallel_size=2,
        moe_router_topk=2,
        moe_ffn_hidden_size=WIDTH,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall",
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
    )
    spec = get_gpt_layer_local_spec(num_experts=whole, moe_grouped_gemm=False)
    layer = MoELayer(config, spec.submodules.mlp.submodules)
    tokens = torch.randn(TOKENS, 1, WIDTH, requires_grad=True)
    with DispatchedCalls() as forward:
        output, *_ = layer(tokens)
    with DispatchedCalls() as backward:
        output.sum().backward()
    return kernels(forward), kernels(backward)


def run(rank: int) -> None:
    """Count on one of both ranks; the first prints."""
    without_gpu()
    import torch.distributed as dist
    from megatron.core import parallel_state

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    parallel_state.initialize_model_parallel(1, 1, expert_model_parallel_size=2)
    few, many = (counted(experts) for experts in EXPERTS)
    if rank:
        return
    more = EXPERTS[1] - EXPERTS[0]
    print(f"{'kernels':10}" + "".join(f"{f'{one} experts':>12}" for one in EXPERTS), end="")
    print(f"{'an expert':>12}{'the rest':>12}")
    rest = 0
    for name, first, second in zip(("forward", "backward"), few, many, strict=True):
        each = (second - first) // more
        own = first - EXPERTS[0] * each - (name == "backward") * 2  # the sum and its gradient
        rest += own
        print(f"{name:10}{first:12}{second:12}{each:12}{own:12}")
    print(f"{'both':46}{rest:12}")


def main() -> None:
    """Start the second rank beside this one."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.path.insert(0, sys.argv[1])
    warnings.simplefilter("ignore")
    second = os.fork() == 0
    with contextlib.redirect_stderr(open(os.devnull, "w")):
        run(int(second))
    if second:
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    main()
