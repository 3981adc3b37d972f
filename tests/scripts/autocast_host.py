"""Count and time what a host runs for a micro-batch of transformers' models, with autocast and not.

``python tests/scripts/autocast_host.py`` prints a line a model and a way to run it, for a block
and for what is left (embeddings, last normalisation, output layer and loss): calls of the
dispatcher that launch a kernel (`launches_against_pytorch.NONE` do not) in the forward and in the
backward pass; how many of both are casts; what a micro-batch that is not the first of its update
adds to gradients; and what perfsim counts of both passes. Below are the host's times. Calls are
counted on the CPU, for which the dispatcher is called as for a GPU, and autocast runs by CUDA's
lists: what it runs in fp32 there alone is cast by a mode (`cuda_lists`). In fp16 a softmax on CUDA
reads 16 bits itself, one cast less each way; here it is counted in bf16.
On an H100 PyTorch's profiler saw 229 and 324 casts in a step of Llama's 16 blocks (llama-1b in
end_to_end/one_gpu.jsonl), as many as are counted here to 2.
Models are so narrow that their kernels take next to nothing: what is left is the host's. It is
timed in fp32, as kernels in 16 bits take long on a CPU. What autocast adds is timed by single
calls: a cast, and a linear layer under an autocast that finds nothing to cast.
It needs ``pip install torch transformers``; `autocast_host.txt` has what it printed last, by one
core.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.compute.work import model_work

HIDDEN, HEADS, FFN, VOCAB, TOKENS = 64, 4, 128, 512, 16
BLOCKS = (2, 8)
"""Numbers of blocks: what they differ by is a block's, what is left of both the rest's."""
REPEATS, WARM, CHAIN, ROUNDS = 100, 30, 20, 6
IN_FP32 = ("layer_norm", "softmax", "log_softmax", "cross_entropy", "pow", "rsqrt", "sum", "cumsum")
"""Functions that these models call and that autocast runs in fp32 on CUDA alone."""
CASTS = ("_to_copy", "to")
"""Calls that change the type of values."""
WAYS = ("fp32", "16 bits", "autocast")
_SIZES = f"hidden={HIDDEN},heads={HEADS},ffn={FFN},vocab={VOCAB},seq={TOKENS},tied=yes"
_CLASSIC = f"{_SIZES},gated=no,norm=layer,positions={TOKENS}"
SPECIFICATIONS = {
    "GPT-2": f"{_CLASSIC},activation=gelu_new,bias=all,fused_qkv=yes",
    "GPT-2, eager attention": f"{_CLASSIC},activation=gelu_new,bias=all,fused_qkv=yes",
    "GPT-Neo": f"{_CLASSIC},activation=gelu_new,bias=ffn",
    "BERT": f"{_CLASSIC},bias=all",
    "Llama": f"{_SIZES},gated=yes,norm=rms,bias=none",
}
"""What perfsim calls the models, without the number of their blocks."""


class Passes(NamedTuple):
    """What runs in the forward pass, the backward pass, of casts in both, and of adding up."""

    forward: float
    backward: float
    casts: float
    adds: float


def cuda_lists() -> Any:
    """Return a mode that runs in fp32 what autocast runs so on CUDA."""
    import torch
    from torch.overrides import TorchFunctionMode

    class CudaLists(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, _: Any, args: Any = (), named: Any = None
        ) -> Any:
            if getattr(function, "__name__", "") in IN_FP32:
                args = tuple(
                    one.float()
                    if isinstance(one, torch.Tensor) and one.dtype.is_floating_point
                    else one
                    for one in args
                )
            return function(*args, **(named or {}))

    return CudaLists()


def models() -> dict[str, Callable[[int], Any]]:
    """Return what makes a model of a number of blocks, by the names of `SPECIFICATIONS`."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        GPT2Config,
        GPT2LMHeadModel,
        GPTNeoConfig,
        GPTNeoForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
    )

    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

    def gpt2(how: str) -> Any:
        def made(blocks: int) -> Any:
            sizes = {"n_embd": HIDDEN, "n_head": HEADS, "n_inner": FFN, "n_positions": TOKENS}
            config = GPT2Config(vocab_size=VOCAB, n_layer=blocks, **sizes, **drops)
            config._attn_implementation = how
            return GPT2LMHeadModel(config)

        return made

    def neo(blocks: int) -> Any:
        kinds = [[["global", "local"], blocks // 2]]
        sizes = {"hidden_size": HIDDEN, "num_heads": HEADS, "intermediate_size": FFN}
        config = GPTNeoConfig(
            vocab_size=VOCAB,
            num_layers=blocks,
            attention_types=kinds,
            max_position_embeddings=TOKENS,
            **sizes,
            resid_dropout=0.0,
            embed_dropout=0.0,
            attention_dropout=0.0,
        )
        return GPTNeoForCausalLM(config)

    def bert(blocks: int) -> Any:
        config = BertConfig(
            vocab_size=VOCAB,
            num_hidden_layers=blocks,
            hidden_size=HIDDEN,
            num_attention_heads=HEADS,
            intermediate_size=FFN,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BertForMaskedLM(config)

    def llama(blocks: int) -> Any:
        config = LlamaConfig(
            vocab_size=VOCAB,
            num_hidden_layers=blocks,
            hidden_size=HIDDEN,
            num_attention_heads=HEADS,
            intermediate_size=FFN,
            tie_word_embeddings=True,
        )
        return LlamaForCausalLM(config)

    made = gpt2("sdpa"), gpt2("eager"), neo, bert, llama
    return dict(zip(SPECIFICATIONS, made, strict=True))


def forward_of(model: Any, casts: bool = False) -> Callable[[], Any]:
    """Return what runs a model's forward pass and returns its loss."""
    import torch

    model.train()
    tokens = torch.zeros((1, TOKENS), dtype=torch.long)
    more = {} if model.config.model_type == "bert" else {"use_cache": False}

    def forward() -> Any:
        lists = cuda_lists() if casts else nullcontext()
        with torch.autocast("cpu", torch.bfloat16, enabled=casts), lists:
            return model(input_ids=tokens, labels=tokens, **more).loss

    return forward


def counted(model: Any, way: str) -> Passes:
    """Return what a micro-batch of a model runs, and what one that is not the first adds."""
    import torch

    from scripts.dispatched_calls import DispatchedCalls
    from scripts.launches_against_pytorch import NONE

    model = model.to(torch.bfloat16 if way == "16 bits" else torch.float32)
    forward = forward_of(model, way == "autocast")

    def calls_of(part: Callable[[], Any]) -> tuple[Any, Counter[str]]:
        with DispatchedCalls() as calls:
            result = part()
        found = calls.by_operation()
        return result, Counter({name: n for name, n in found.items() if name not in NONE})

    loss, forth = calls_of(forward)
    _, back = calls_of(loss.backward)
    _, later = calls_of(forward().backward)
    cast = sum((forth + back)[name] for name in CASTS)
    return Passes(forth.total(), back.total(), cast, later.total() - back.total())


def timed(forward: Callable[[], Any]) -> tuple[float, float]:
    """Return the host's time of a forward and of a backward pass [ms], the median of many."""
    import torch

    passes: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        start = time.perf_counter()
        made = forward()
        gradient = torch.ones_like(made)
        middle = time.perf_counter()
        made.backward(gradient)
        passes[0].append(middle - start)
        passes[1].append(time.perf_counter() - middle)
    ahead, back = (1e3 * statistics.median(each[WARM:]) for each in passes)
    return ahead, back


def block_ms(made: Callable[[int], Any]) -> list[float]:
    """Return the host's time of a block's passes [ms], by the fastest of rounds that alternate."""
    forwards = [forward_of(made(blocks)) for blocks in BLOCKS]
    rounds = [[timed(forward) for forward in forwards] for _ in range(ROUNDS)]
    less, more = (
        [min(each) for each in zip(*one, strict=True)] for one in zip(*rounds, strict=True)
    )
    steps = BLOCKS[1] - BLOCKS[0]
    return [(after - before) / steps for before, after in zip(less, more, strict=True)]


def single_calls() -> dict[str, tuple[float, float]]:
    """Return what the host takes for single calls in a chain of them, forward and backward [us]."""
    import torch

    given, layer = torch.randn(2, 4, requires_grad=True), torch.nn.Linear(4, 4)

    def chain(call: Callable[[Any], Any]) -> Callable[[], Any]:
        def made() -> Any:
            values = given
            for _ in range(CHAIN):
                values = call(values)
            return values

        return made

    def each(call: Callable[[Any], Any], calls: int = 1) -> tuple[float, float]:
        ahead, back = timed(chain(call))
        return 1e3 * ahead / CHAIN / calls, 1e3 * back / CHAIN / calls

    found = {
        "an addition": each(lambda values: values + 1.0),
        "a layer normalisation": each(lambda values: torch.nn.functional.layer_norm(values, (4,))),
        "a cast to 16 bits or back": each(lambda values: values.bfloat16().float(), 2),
        "a linear layer": each(layer),
    }
    torch.set_autocast_dtype("cpu", torch.float32)
    torch.set_autocast_enabled("cpu", True)
    found["the same under autocast, nothing cast"] = each(layer)
    torch.set_autocast_enabled("cpu", False)
    return found


def split(few: Passes, many: Passes) -> tuple[Passes, Passes]:
    """Return what is a block's, and what is left."""
    steps = BLOCKS[1] - BLOCKS[0]
    block = Passes(*((more - less) / steps for less, more in zip(few, many, strict=True)))
    rest = Passes(*(less - BLOCKS[0] * one for less, one in zip(few, block, strict=True)))
    return block, rest


def operations(name: str, casts: bool) -> tuple[float, float]:
    """Return the operations of both passes that perfsim's host launches, of a block and the rest.

    Examples
    --------
    >>> operations("Llama", casts=True)
    (99.0, 26.0)
    """
    few, many = (
        model_work(
            f"transformer:layers={blocks},{SPECIFICATIONS[name]}", None, "torch2", casts
        ).operations
        for blocks in BLOCKS
    )
    block = (many - few) / (BLOCKS[1] - BLOCKS[0])
    return block, few - BLOCKS[0] * block


def main() -> None:
    """Print a line a model, a way and a part."""
    import torch
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'':42}{'forward':>8}{'backward':>9}{'casts':>6}{'adds':>5}{'perfsim':>8}")
    for name, made in models().items():
        for way in WAYS:
            parts = split(*(counted(made(blocks), way) for blocks in BLOCKS))
            owns = operations(name, way == "autocast")
            for part, one, launched in zip(("block", "rest"), parts, owns, strict=True):
                print(
                    f"{f'{name}, {way}, {part}':42}{one.forward:8.0f}{one.backward:9.0f}"
                    f"{one.casts:6.0f}{one.adds:5.0f}{launched:8.0f}"
                )
    print(f"\n{'ms of the host a block, fp32':42}{'forward':>8}{'backward':>9}")
    for name, made in models().items():
        ahead, back = block_ms(made)
        print(f"{name:42}{ahead:8.2f}{back:9.2f}")
    print(f"\n{'microseconds of the host a call':42}{'forward':>8}{'backward':>9}")
    for name, (ahead, back) in single_calls().items():
        print(f"{name:42}{ahead:8.1f}{back:9.1f}")


if __name__ == "__main__":
    main()
