"""What training holds in a GPU's memory: state, activations, and what no tensor shows.

`state_bytes` counts parameters, gradients and the optimizer's state, `activation_bytes` what a
network keeps for its backward pass, by its layers' shapes, and `overhead_bytes` what CUDA and NCCL
take. `peak_parts` says what is there at the worst moment; `largest_batch` finds the largest batch
that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from perfsim.compute.by_operations import (
    ACTIVATIONS,
    activated_values,
    all_keys,
    is_bare_layernorm,
    mask_values,
)
from perfsim.compute.execution import Execution
from perfsim.compute.kernel import FLOAT
from perfsim.compute.recompute import blocks_again, is_again, modules_again
from perfsim.compute.software import software_era
from perfsim.errors import RequestError, unknown
from perfsim.models.blocks import NORMS, attended_values, block_spans, block_start
from perfsim.models.layers import ModelLayer, Scores, is_expert
from perfsim.sums import sum_in_order

__all__ = [
    "OPTIMIZER_STATES",
    "REPLICATED",
    "STASHED",
    "Activations",
    "Overhead",
    "State",
    "StateShares",
    "activation_bytes",
    "block_bytes",
    "checkpoint_bytes",
    "fsdp_sharding",
    "largest_batch",
    "narrow_elements",
    "overhead_bytes",
    "peak_parts",
    "state_bytes",
]

STASHED = 5
"""Blocks whose inputs stay on the GPU, where those of others are in the memory of the host: until
the copies of earlier ones are over (``max_fwd_stash_size`` of OffloadActivations, in huggingface/
trl trl/models/activation_offloading.py and pytorch/torchtune). The last that were computed are
there when the backward pass begins."""

MIB = 2.0**20
GIB = 2.0**30

_MASK = 1
"""Bytes of a dropout mask's value: PyTorch's fused dropout on CUDA writes booleans."""
_STATISTIC = 4
"""Bytes of the log-sum-exp that a fused attention keeps for each row and head (fp32)."""
_LSTM_PARTS = 6
"""Vectors of the hidden width that an LSTM keeps a step: four gates, the cell, the output."""
_INDEX = 8
"""Bytes of the index that PyTorch's max pooling keeps for each of its outputs (int64)."""
_EAGER_RMS = 4
"""Bytes a value that an RMS normalisation of single operations keeps beside its input: fp32 copies,
8 bytes a block of two, counted by PyTorch's saved-tensor hooks on a Llama block in 16 bits."""
_NORMS_IN_FP32 = {"rmsnorm": 8, "layernorm": 12}
"""Bytes a value that a normalisation in fp32 keeps in any precision: an fp32 copy and what its
weight multiplies; Cohere's layer normalisation subtracts the mean twice and keeps both (counted by
PyTorch's saved-tensor hooks: tests/scripts/memory_against_pytorch.txt)."""


# Activations


class Activations(NamedTuple):
    """Bytes of activations on one GPU, by part.

    ``kept`` waits for the backward pass. ``working`` is what the largest step of the backward pass
    makes beside it. ``logits`` are the outputs of the last layer, in all copies that the loss
    makes; they are gone when the backward pass reaches the blocks.
    """

    kept: float
    working: float
    logits: float

    @property
    def peak(self) -> float:
        """Bytes at the worst moment: either the loss or the largest step of the backward pass."""
        return self.kept + max(self.working, self.logits)


class _Bytes(NamedTuple):
    """Bytes of a value: ``value`` in products, ``wide`` where the residual stream runs.

    ``operand`` are those of what dense layers keep of what they read, where that is a narrower copy
    of each layer's own; 0: they keep the values that they read.
    """

    value: int
    wide: int
    fused: bool
    operand: float = 0.0

    @property
    def cast(self) -> bool:
        """Whether each product keeps its own narrow copy of a wide input."""
        return self.wide > self.value


def _value_bytes(precision: str, execution: Execution, layers: Sequence[ModelLayer]) -> _Bytes:
    """Return the bytes of a value, by precision and by how the software runs it.

    Autocast (``amp-``) normalises and adds in fp32, as the list of its fp32 operations says
    (PyTorch, Automatic Mixed Precision package). Code that is compiled or that vendors tuned, and
    16-bit parameters (``fp16``, ``bf16``, FSDP's mixed precision), keep 16 bits throughout. fp8
    keeps 16 bits in PyTorch: torchtitan's memory is the same with it
    (benchmarks/llama3_h100_202412). Transformer Engine, which software that vendors tuned computes
    with, keeps the fp8 copy that each dense layer made of what it read in place of that (NVIDIA/
    TransformerEngine@d0067d0d pytorch/module/linear.py, save_for_backward; issue 1764). What it
    saves in nvfp4 is not counted. Without autocast, values in fp32 between layers are so in them
    too: a product of packed values keeps nothing of what it reads.
    """
    fused = execution.fused or execution.tuned or execution.liger
    eager_autocast = precision.startswith("amp-") and not fused
    operand = _NARROW if precision == "fp8" and execution.keeps_fp8 else 0.0
    if precision in ("fp32", "tf32") or (layers[0].wide and not eager_autocast):
        return _Bytes(4, 4, fused)
    return _Bytes(2, 4 if eager_autocast else 2, fused, operand)


_NARROW = 1.0
"""Bytes of a value in fp8. Scales of blocks, 3 % more in MXFP8, are left out."""


def narrow_elements(layers: Sequence[ModelLayer]) -> float:
    """Return the parameters of dense layers that Transformer Engine computes in fp8."""
    return sum_in_order(
        layers[index].elements for index in range(len(layers)) if _in_fp8(layers, index)
    )


def _in_fp8(layers: Sequence[ModelLayer], index: int) -> bool:
    """Tell whether a layer is a dense one that Transformer Engine computes in fp8.

    Output layers and what chooses experts stay in 16 bits (NVIDIA/Megatron-LM@d98e8a64
    megatron/core/tensor_parallel/layers.py, transformer/moe/router.py).
    """
    layer = layers[index]
    routes = index + 1 < len(layers) and is_expert(layers[index + 1]) and not is_expert(layer)
    dense = layer.kind == "linear" and layer.split in ("column", "row", "")
    return dense and not routes and bool(layer.tensors) and layer.rows > 1


def activation_bytes(
    layers: Sequence[ModelLayer],
    batch: int,
    precision: str,
    execution: Execution,
    recompute: str = "none",
    *,
    fused_loss: bool | None = None,
    chunked_loss: bool = False,
    gathered: int = 1,
    loss: bool = True,
    whole: Sequence[ModelLayer] | None = None,
    offloaded: bool = False,
    blocks_on_host: int = 0,
) -> Activations:
    """Return what a network's activations take on one GPU.

    Parameters
    ----------
    layers : the network in forward order, for one sample
    batch : samples of one pass through the network on one GPU (a micro-batch)
    precision : fp32, tf32, amp-fp16, amp-bf16 (autocast), fp16, bf16 (16-bit parameters), fp8 or
        nvfp4
    execution : how the software runs the network
    recompute : ``full`` keeps the input of each block only, ``full:5`` of the first five.
        ``selective`` computes attention
        without its projections again in Megatron-LM and where scores are stored (Korthikanti et
        al., arXiv 2205.05198); else it keeps the outputs of attention and of every second product
        of a block, but for grouped experts' (torchtitan's selective checkpointing of operations).
        Parts of blocks keep what they read (mlp, moe, shared_experts), all but the statistics of
        scores (core_attn), or nothing of what they write (layernorm, mla_up_proj, moe_act:
        Megatron-LM's output-discarding checkpoints)
    fused_loss : whether one kernel computes the loss; None for what the software does
    chunked_loss : whether output layer and loss run for a part of the tokens at a time
    gathered : ranks that keep a part each of what a product reads, and gather it again for the
        backward pass (sequence parallelism)
    loss : whether the output layer and the loss are among the layers
    whole : the same layers undivided, where ``layers`` are what one of several ranks has of them
    offloaded : whether the inputs of blocks that are computed again (``full``) are in the memory of
        the host but for the last `STASHED`
    blocks_on_host : of how many blocks all that they keep is in the memory of the host, but of one,
        which is copied

    Raises
    ------
    RequestError
        If a network without attention is asked to recompute: its blocks are not known.

    Examples
    --------
    >>> from perfsim.compute.execution import execution_of
    >>> from perfsim.models.language import architecture_layers
    >>> from perfsim.models.named import NAMED
    >>> layers = architecture_layers(NAMED["llama3-8b"], 8192)
    >>> found = activation_bytes(layers, 1, "bf16", execution_of("mlperf"))
    >>> round(found.kept / 32 / (8192 * 4096))  # bytes a layer and value of the hidden width
    34
    """
    size = _value_bytes(precision, execution, layers)
    whole = layers if whole is None else whole
    asked = _Asked(layers, whole, size, execution, gathered)
    kept = [_layer_bytes(asked, index) for index in range(len(layers))]
    head = _head(layers) if loss else None
    if fused_loss is None:
        fused_loss = execution.loss_in_one_kernel
    how = size, execution, fused_loss, chunked_loss
    logits = _logits(layers[head], *how) if head is not None else 0.0
    grown = [_grown(layer) for index, layer in enumerate(layers) if index != head]
    widest = max([size.value, *(FLOAT for layer in layers if layer.wide)])
    working = 2.0 * widest * max(grown, default=0.0)
    total = sum_in_order(kept)
    if recompute != "none":
        blocks = list(block_spans(whole))
        if not blocks:
            raise RequestError(
                "recompute", "only networks with attention have blocks to recompute."
            )
        within = [sum_in_order(kept[first:end]) for first, end in blocks]
        if modules := modules_again(recompute, execution):

            def made_again(index: int) -> float:
                return _made_again(asked, index, kept[index], modules)

            saved = [sum_in_order(map(made_again, range(*span))) for span in blocks]
            total -= sum_in_order(saved)
            working += max(saved)
        else:
            some = recompute == "selective"
            grouped = not execution.looped
            checkpoints = [_checkpoint(layers, span, size, some, grouped) for span in blocks]
            if count := blocks_again(recompute):
                checkpoints, within = checkpoints[:count], within[:count]
            if offloaded:
                checkpoints = checkpoints[-STASHED:]
            total += sum_in_order(checkpoints) - sum_in_order(within)
            working += max(within)
    elif blocks_on_host:
        sent = [sum_in_order(kept[first:end]) for first, end in block_spans(whole)]
        total -= sum_in_order(sent[: blocks_on_host - 1])
    return Activations(batch * total, batch * working, batch * logits)


def _grown(layer: ModelLayer) -> float:
    """Return the values that one step of a layer writes for one sample.

    Packed experts are modules of their own, which run one after another on the tokens of each
    (transformers 4, modeling_mixtral.py, MixtralSparseMoeBlock.forward).
    """
    one_by_one = layer.packed and is_expert(layer)
    return layer.outputs / layer.tensors[0][1][0] if one_by_one else layer.outputs


def _inputs(layer: ModelLayer) -> float:
    """Return the values that a product reads for one sample, beside its weight."""
    return layer.flops / (2.0 * layer.outputs) * layer.rows


def _shares_input(layers: Sequence[ModelLayer], index: int) -> bool:
    """Return whether a dense layer reads what the one before it reads: q, k, v; gate, up."""
    layer, before = layers[index], layers[index - 1] if index else layers[index]
    if index == 0 or before.kind != "linear" or layer.kind != "linear":
        return False
    if is_expert(layer) or is_expert(before) or layer.split == "row":
        return False  # experts read copies of tokens, rows what columns wrote
    # What is activated feeds the next layer, but for a gate, which multiplies what that writes.
    chained = before.activated and not layer.copies
    return _inputs(before) == _inputs(layer) and layer.rows == before.rows and not chained


def _keeps_input(layers: Sequence[ModelLayer], first: int) -> bool:
    """Return whether the gradient of a weight needs what dense layers from ``first`` on read.

    Frozen ones have none; their adapters have.
    """
    last = first
    while last + 1 < len(layers) and _shares_input(layers, last + 1):
        last += 1
    return any(map(_trains_weight, layers[first : last + 1]))


def _trains_weight(layer: ModelLayer | None) -> bool:
    """Return whether the gradient of a layer's weight, or of its adapter's, needs what it reads."""
    if layer is None or not layer.frozen:
        return True
    return layer.adapter > 0 and not _reads_a_copy(layer)


def _reads_a_copy(layer: ModelLayer) -> bool:
    """Return whether a layer's adapter reads a tensor of its own: a cast, or what dropout wrote."""
    return layer.adapter_fp32 or layer.adapter_drops


def _beside_experts(layers: Sequence[ModelLayer], first: int) -> bool:
    """Return whether a layer is the first of experts that work for all tokens, or their gate."""
    before = layers[first - 1]
    return first >= _ROUTED and is_expert(before) and before.split == "row"


_ROUTED = 3
"""Layers that choose experts and are them: the router, and two products of all experts."""


class _Asked(NamedTuple):
    """The layers that are asked about, and how the software keeps what they compute.

    The fields are those of `activation_bytes`, ``size`` the width of what is kept.
    """

    layers: Sequence[ModelLayer]
    whole: Sequence[ModelLayer]
    size: _Bytes
    execution: Execution
    gathered: int


def _layer_bytes(asked: _Asked, index: int) -> float:
    """Return what one layer keeps for its backward pass, for one sample."""
    layers, whole, size, execution, _ = asked
    layer = layers[index]
    following = layers[index + 1] if index + 1 < len(layers) else None
    kept = 0.0
    if layer.kind == "linear":
        kept = _linear_bytes(asked, index)
    elif layer.kind == "attention":
        if layer.scores and not (size.fused or execution.in_one_kernel(layer.scores)):
            values = 3.0 * layer.outputs  # keys and values are repeated for each head
        else:
            values = attended_values(layers, index, whole)
            values += _latent_keys(layers, index, whole, execution.flash and not size.fused)
            if execution.masked:
                values = max(values, 3.0 * layer.outputs)  # here too, but for latents'
        values += _kept_outputs(asked, index)
        kept = values * size.value + _statistics(layer, size, execution)
    elif layer.kind in NORMS:
        kept = layer.outputs * _norm_bytes(layer, size) + _MASK * layer.dropped
    elif layer.kind == "embedding":
        kept = _MASK * layer.dropped
    elif layer.kind == "batchnorm":
        kept = layer.outputs * size.value * (1 + _is_activated(layer, following))
        kept += _pooled(layer, following) * (size.value + _INDEX)
    elif layer.kind == "conv":
        # A ReLU that works in place keeps one tensor, which is the next convolution's input; what
        # a normalisation follows is kept as the normalisation's input.
        normalised = following is not None and following.kind == "batchnorm"
        kept = 0.0 if normalised else layer.outputs * size.value
    elif layer.kind == "lstm":
        kept = (_LSTM_PARTS + 1) * layer.outputs * size.value
    kept += layer.scaled * size.value
    if not size.fused:
        kept += layer.modulated * size.wide
        kept += layer.kept * size.value
        kept += _MASK * layer.dropped * (layer.kind == "linear")
    return kept * (layer.gathered if execution.gathers else 1.0)


def _kept_outputs(asked: _Asked, index: int) -> float:
    """Return the values that one kernel of attention keeps of what it writes, for one sample.

    The next product's weight else keeps them, but where it has a copy in fp8 of its own.
    """
    layers, whole, size, execution, _ = asked
    following = layers[index + 1] if index + 1 < len(layers) else None
    copied = size.operand > 0.0 and following is not None and _in_fp8(whole, index + 1)
    if execution.in_one_kernel(layers[index].scores) and (copied or not _trains_weight(following)):
        return layers[index].outputs
    return 0.0


def _norm_bytes(layer: ModelLayer, size: _Bytes) -> float:
    """Return what a normalisation keeps of a value; what its weight reads if that is trained."""
    bare = layer.frozen or not layer.tensors
    each = size.wide * (not layer.reads_again)
    if size.fused:
        return each
    if is_bare_layernorm(layer):
        return FLOAT  # the copy that one kernel reads
    if layer.fp32:
        return _NORMS_IN_FP32[layer.kind] - FLOAT * bare
    if layer.kind == "rmsnorm":
        return each + _EAGER_RMS - size.value * bare
    return each


def _is_activated(layer: ModelLayer, following: ModelLayer | None) -> bool:
    """Return whether a batch normalisation's output is kept: not where a shortcut adds to it.

    The last normalisation of a shortcut's block and the one on the shortcut are added in place, so
    one of both is kept. They have the same shape; the next convolution reads the second.
    """
    if following is None or following.kind != "conv" or not layer.copies:
        return True
    return following.tensors[0][1][1] == layer.tensors[0][1][0]


def _pooled(layer: ModelLayer, following: ModelLayer | None) -> float:
    """Return the values that a pooling after a batch normalisation writes for one sample."""
    if following is None or following.kind != "conv" or not layer.copies:
        return 0.0
    inputs, features = following.tensors[0][1][1], layer.tensors[0][1][0]
    written = float(inputs * following.rows)
    return written if inputs == features and written < layer.outputs else 0.0


def _linear_bytes(asked: _Asked, index: int) -> float:
    """Return what a dense layer and the activation function after it keep, for one sample."""
    layers, whole, size, *_ = asked
    layer = layers[index]
    following = layers[index + 1] if index + 1 < len(layers) else None
    read = _read_bytes(asked, index) + layer.adapter * max(layer.rows, 1) * size.value
    read += _adapter_bytes(layer, size)
    values, each = 0.0, FLOAT if layer.wide else size.value
    if layer.split == "row" and is_expert(layer) and not size.fused:
        values += layer.outputs  # what the router's weights multiply
    if not layer.activated or following is None:
        return read + values * each
    gate = following.kind == "linear" and _shares_input(whole, index + 1)
    if layer.activation != "relu" or (gate and size.fused):
        values += layer.outputs  # a ReLU keeps what it writes, which the next product reads
    if following.kind == "linear":
        if gate:
            # A gate: the product keeps the other half, and the activation's output where it is
            # an operation of its own.
            values += following.outputs + (0.0 if size.fused else layer.outputs)
        elif 2 * _inputs(whole[index + 1]) == whole[index].outputs and not size.fused:
            values += layer.outputs / 2
    return read + values * each + _kept_by_operations(layer, size)


def _adapter_bytes(layer: ModelLayer, size: _Bytes) -> float:
    """Return what an adapter keeps besides, for one sample: what it reads is a tensor of its own.

    Dropout keeps a byte of each value, and writes another tensor, as a cast to fp32 does.
    """
    if not _reads_a_copy(layer):
        return 0.0
    width = FLOAT if layer.adapter_fp32 else size.value
    narrow = layer.adapter * max(layer.rows, 1) * (width - size.value)
    return _inputs(layer) * (width + layer.adapter_drops) + narrow


def _read_bytes(asked: _Asked, index: int) -> float:
    """Return the bytes of what a dense layer keeps of what it reads."""
    narrow = asked.size.operand > 0.0 and _in_fp8(asked.whole, index)
    return _read_values(asked, index) * (asked.size.operand if narrow else asked.size.value)


def _read_values(asked: _Asked, index: int) -> float:
    """Return how many values a dense layer keeps of what it reads: none that another keeps.

    Projections of one module share a copy in fp8, those of others have their own.
    """
    layers, whole, size, _, gathered = asked
    layer, first = layers[index], index
    while _shares_input(whole, first):
        first -= 1
    if not (size.operand and _in_fp8(whole, first)):
        if _narrows(whole, first):
            first = block_start(whole, first + _LATENT) + 1  # beside the queries' own projection
        elif _beside_experts(whole, first) and not _in_fp32(whole[first - _ROUTED], size):
            first -= _ROUTED  # what chooses experts reads the same
    normalised = first > 0 and layers[first - 1].kind in (*NORMS, "embedding")
    if (first != index or layer.reads_again) and not (size.cast and normalised):
        return 0.0
    # Of what is gathered a rank keeps its part. Copies of tokens for experts it keeps whole.
    divides = layer.split in ("column", "vocabulary") and not is_expert(layer)
    copied = FLOAT / size.value if _in_fp32(layer, size) else 1.0
    kept = _inputs(layer) if _keeps_input(whole, first) else 0.0
    return copied * kept / (gathered if divides else 1)


def _made_again(asked: _Asked, index: int, kept: float, modules: frozenset[str]) -> float:
    """Return what a layer need not keep of one sample where parts of its block are made again."""
    layers, _, size, execution, _ = asked
    layer = layers[index]

    def read_bytes(at: int) -> float:
        return _read_bytes(asked, at)

    if layer.kind == "attention":
        scores = _statistics(layer, size, execution)
        # What the wide projections of latent attention write.
        reads = kept - scores - _kept_outputs(asked, index) * size.value
        return ("core_attn" in modules) * scores + ("mla_up_proj" in modules) * reads
    if layer.module == "layernorm":
        return read_bytes(index + 1) if "layernorm" in modules else 0.0
    if layer.module != "mla_up_proj" and is_again(layer.module, modules):
        before = layers[index - 1].module
        # What the first layer of a part reads is kept, but no copy of it.
        first = not is_again(before, modules) or before not in (layer.module, "moe")
        copied = FLOAT / size.value if _in_fp32(layer, size) else 1.0
        return kept - first * read_bytes(index) / copied
    if not (is_expert(layer) and "moe_act" in modules):
        return 0.0
    if not layer.activated:
        return read_bytes(index)  # what the activation writes
    halves = 0.0 if size.fused else layer.outputs / 2 * size.value
    return halves + _kept_by_operations(layer, size)


def _in_fp32(layer: ModelLayer, size: _Bytes) -> bool:
    """Return whether a dense layer reads an fp32 copy of 16-bit values: autocast casts it back."""
    return layer.fp32 and not (size.fused or size.cast) and size.value < FLOAT


def _kept_by_operations(layer: ModelLayer, size: _Bytes) -> float:
    """Return what an activation of several operations keeps besides, for one sample."""
    code = None if size.fused else ACTIVATIONS.get(layer.activation)
    if code is None:
        return 0.0
    each = code.kept * (size.wide if code.fp32 else size.value) + code.masks * _MASK
    return each * activated_values(layer)


def _latent_keys(
    layers: Sequence[ModelLayer], index: int, whole: Sequence[ModelLayer], viewed: bool
) -> float:
    """Return what latent attention keeps for one sample beside the outputs of its projections.

    Its keys are a tensor of their own: the position that the narrow projection carries is copied
    to each head (Megatron-LM and transformers alike). ``viewed`` says that values are a view of
    what the wide projection wrote, which keeps the keys in there too (transformers,
    DeepseekV3Attention).
    """
    at = index - _LATENT
    if at < 0 or not _narrows(whole, at):
        return 0.0
    layer = layers[index]
    tokens = layer.rows / whole[index].rows
    keys = layer.heads * tokens * (whole[at].outputs - whole[at + 1].outputs)
    return keys + viewed * (layers[index - 1].outputs - layer.outputs)


_LATENT = 3
"""Layers that make latent attention's keys and values: a product, a normalisation, a product."""


def _narrows(layers: Sequence[ModelLayer], at: int) -> bool:
    """Return whether a product is latent attention's, whose normalised outputs another reads."""
    kinds = [layer.kind for layer in layers[at : at + _LATENT + 1]]
    if kinds[1:] not in (["rmsnorm", "linear", "attention"], ["layernorm", "linear", "attention"]):
        return False
    return kinds[0] == "linear" and layers[at].outputs > layers[at + 1].outputs


def _checkpoint(
    layers: Sequence[ModelLayer],
    span: tuple[int, int],
    size: _Bytes,
    some: bool,
    grouped: bool = True,
) -> float:
    """Return what a recomputed block keeps of one sample: its input, and some outputs if asked.

    Outputs of experts are kept where a loop runs them, product by product. Grouped products are
    computed again (`perfsim.compute.kernel_time`, ``_PRODUCTS_AGAIN``).
    """
    within = layers[span[0] : span[1]]
    at = next(index for index, layer in enumerate(within) if layer.kind == "attention")
    stream = within[at + 1] if at + 1 < len(within) else within[at]
    whole = within[0] if within[0].kind in NORMS else stream
    kept = whole.outputs * size.wide
    if some:
        products = [
            layer
            for layer in within
            if layer.kind == "linear" and not (grouped and is_expert(layer))
        ]
        outputs = sum_in_order(layer.outputs for layer in products[::2]) + within[at].outputs
        kept += outputs * size.value + _flash_bytes(within[at])
    return kept


def checkpoint_bytes(
    layers: Sequence[ModelLayer],
    spans: Sequence[tuple[int, int]],
    precision: str,
    execution: Execution,
) -> list[float]:
    """Return the input of each block that is computed again, for one sample [B].

    Parameters
    ----------
    spans : first layer of each block and the one after its last
    precision, execution : as for `activation_bytes`
    """
    size = _value_bytes(precision, execution, layers)
    return [_checkpoint(layers, span, size, some=False) for span in spans]


def block_bytes(
    layers: Sequence[ModelLayer],
    spans: Sequence[tuple[int, int]],
    precision: str,
    execution: Execution,
    gathered: int = 1,
) -> list[float]:
    """Return what each block keeps for its backward pass, for one sample [B].

    Parameters
    ----------
    spans : first layer of each block and the one after its last
    precision, execution, gathered : as for `activation_bytes`
    """
    asked = _Asked(layers, layers, _value_bytes(precision, execution, layers), execution, gathered)
    kept = [_layer_bytes(asked, index) for index in range(len(layers))]
    return [sum_in_order(kept[first:end]) for first, end in spans]


def _statistics(layer: ModelLayer, size: _Bytes, execution: Execution) -> float:
    """Return what attention keeps of its scores for one sample, as the software runs it."""
    if execution.in_one_kernel(layer.scores):
        # Each layer makes a mask of values of its own (`by_operations.MASKS`).
        mask = mask_values(layer) * size.value if execution.masked else 0.0
        return _flash_bytes(layer) + mask
    return _score_bytes(layer, size)


def _flash_bytes(layer: ModelLayer) -> float:
    """Return what attention in one kernel keeps for one sample beside what it reads and writes."""
    return float(_STATISTIC * layer.heads * layer.rows)


def _score_bytes(layer: ModelLayer, size: _Bytes) -> float:
    """Return what attention of single operations keeps of its scores for one sample.

    The softmax keeps its output, in fp32 under autocast; dropout keeps its mask and the product
    after it the dropped scores. In 16 bits that is 5 bytes a score (Korthikanti et al., section 4).
    A softcap keeps its hyperbolic tangent, and its softmax is fp32, as behind a bias
    (`by_operations.SCORES`).
    """
    keys = all_keys(layer)
    softmax = size.wide
    copied = bool(layer.dropped) or size.cast
    if layer.scores and not size.fused:
        narrow = size.value < FLOAT
        softcap = size.value + FLOAT + size.value * narrow
        biased = FLOAT + size.value * (narrow or bool(layer.dropped)) + bool(layer.dropped) * _MASK
        kept: dict[Scores, float] = {"softcap": softcap, "sinks": size.value}
        each = kept.get(layer.scores, biased)
        return float(layer.heads * layer.rows * keys * each)
    each = softmax + copied * size.value + bool(layer.dropped) * _MASK
    return layer.heads * layer.rows * keys * each


def _head(layers: Sequence[ModelLayer]) -> int | None:
    """Return the index of the layer whose outputs the loss reads, None without one."""
    closing = (*NORMS, "batchnorm", "attention", "conv", "lstm")
    last = max((i for i, layer in enumerate(layers) if layer.kind in closing), default=-1)
    after = [
        index
        for index in range(last + 1, len(layers))
        if layers[index].kind == "linear" and not layers[index].activated
    ]
    return max(after, key=lambda index: layers[index].outputs, default=None)


def _logits(
    head: ModelLayer, size: _Bytes, execution: Execution, fused: bool, chunked: bool
) -> float:
    """Return the bytes of the last layer's outputs in all copies, for one sample.

    The loss of single operations keeps the outputs, the logarithm of their softmax in fp32, and
    the gradients of both. A fused one keeps the outputs and their gradient.
    """
    share = head.gathered if execution.gathers else 1.0
    each = 2 * size.value if fused else size.value + 3 * 4
    held = head.outputs * each
    return share * (min(held, _CHUNKED * size.value * _inputs(head)) if chunked else held)


_CHUNKED = 2
"""Values that a chunked loss keeps for one that the output layer reads: the gradient of it, and of
a chunk the outputs, which are as many as all that is read (linkedin/Liger-Kernel@00eba634
src/liger_kernel/ops/fused_linear_cross_entropy.py: tokens by hidden width over vocabulary)."""


# State


class _Optimizer(NamedTuple):
    """Bytes that an optimizer keeps a parameter, and that its step needs for itself.

    ``quantised`` says that the state has its width whatever that of the parameters is; else both
    are of parameters in fp32.
    """

    state: float
    temporary: float
    quantised: bool = False


OPTIMIZER_STATES: dict[str, _Optimizer] = {
    "sgd": _Optimizer(0.0, 0.0),
    "momentum": _Optimizer(4.0, 0.0),
    "adam": _Optimizer(8.0, 4.0),
    "adamw": _Optimizer(8.0, 4.0),
    "adam-fused": _Optimizer(8.0, 0.0),
    "adamw-fused": _Optimizer(8.0, 0.0),
    "lamb": _Optimizer(8.0, 4.0),
    "adafactor": _Optimizer(0.0, 4.0),
    "muon": _Optimizer(4.0, 4.0),
    "adam-8bit": _Optimizer(2.0 + 2 * 4 / 2048, 0.0, quantised=True),
}
"""Bytes of fp32 state a parameter, by optimizer.

Two moments for Adam, AdamW and LAMB, one for momentum and Muon; Adafactor keeps a row and a column
of each matrix, which count as none (Shazeer and Stern, arXiv 1804.04235). Eight-bit Adam keeps a
byte a moment and a scale for each 2048 values (Dettmers et al., arXiv 2110.02861, section 2.1); its
embeddings, which it leaves in fp32, count as the rest. The temporary is that of PyTorch's default,
which updates all tensors at once and "uses ~ sizeof(params) more peak memory" (torch.optim.Adam,
``foreach``); one kernel needs none."""


class StateShares(NamedTuple):
    """How a method divides the state among GPUs.

    The first three are the shares of parameters, gradients and optimizer state that a GPU keeps.
    ``buckets`` says whether gradients are copied into buckets. ``unit`` are the parameters of the
    largest unit that is gathered whole, ``root`` those that stay gathered through both passes.
    """

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    buckets: bool = False
    unit: float = 0.0
    root: float = 0.0


REPLICATED = StateShares()
"""All GPUs keep all."""


def fsdp_sharding(
    layers: Sequence[ModelLayer],
    gpus: int,
    *,
    regather: bool = True,
    whole: Sequence[ModelLayer] | None = None,
) -> StateShares:
    """Return the sharding of FSDP that wraps each block: a GPU keeps 1 / ``gpus`` of the state.

    Parameters
    ----------
    regather : whether backward gathers the blocks again (FULL_SHARD); without, parameters stay
        whole between the passes (SHARD_GRAD_OP)
    whole : the same layers undivided, where ``layers`` are what one of several ranks has of them

    Examples
    --------
    >>> from perfsim.models.language import architecture_layers
    >>> from perfsim.models.named import NAMED
    >>> shared = fsdp_sharding(architecture_layers(NAMED["llama3-8b"]), 8)
    >>> shared.optimizer, round(shared.unit / 1e6)
    (0.125, 525)
    """
    spans = list(block_spans(layers if whole is None else whole))
    inside = [sum(layer.stored_elements for layer in layers[first:end]) for first, end in spans]
    total = sum(layer.stored_elements for layer in layers)
    root = float(total - sum(inside))
    outside = [
        layer.stored_elements
        for index, layer in enumerate(layers)
        if not any(first <= index < end for first, end in spans)
    ]
    unit = float(max([*inside, *outside], default=0))
    share = 1.0 / gpus
    return StateShares(share, share, share, unit=unit, root=root if regather else float(total))


class State(NamedTuple):
    """Bytes of state on one GPU, by part.

    ``copies`` are 16-bit copies of fp32 parameters: those that autocast caches, or units that are
    gathered whole. ``messages`` are buffers that gradients are sent from. ``step`` is what the
    optimizer's step needs for itself, when the activations are gone.
    """

    parameters: float
    gradients: float
    optimizer: float
    copies: float
    messages: float
    step: float

    @property
    def held(self) -> float:
        """Bytes held throughout an iteration."""
        return self.parameters + self.gradients + self.optimizer + self.messages


def state_bytes(
    parameters: float,
    precision: str,
    optimizer: str,
    sharding: StateShares = REPLICATED,
    *,
    gradient_bytes: float = 4.0,
    foreach: bool = True,
    master_weights: bool = True,
    frozen: float = 0.0,
) -> State:
    """Return what parameters, gradients and the optimizer take on one GPU.

    Parameters are fp32, as are gradients and the optimizer's state: so train fp32, autocast and
    FSDP's mixed precision. ``fp16`` and ``bf16`` without a sharded unit keep 16-bit parameters
    with fp32 gradients and an fp32 master copy (Megatron-LM's mixed precision). Without master
    weights all of them have 16 bits in half precision.

    Parameters
    ----------
    parameters : of the model, as many as are trained
    precision : as for `activation_bytes`
    optimizer : a name of `OPTIMIZER_STATES`
    sharding : how the method divides them
    gradient_bytes : of a parameter's gradient; 2 where DeepSpeed trains in 16 bits
    foreach : whether the optimizer updates all tensors at once, as PyTorch 2 does by default
    master_weights : whether the optimizer updates parameters in fp32
    frozen : parameters that are not trained; they are as wide as values, and have nothing else.
        Those in 4 bits count as the 16-bit values that they take

    Raises
    ------
    RequestError
        If there is no such optimizer; the message gives the nearest name.

    Examples
    --------
    >>> state_bytes(1e9, "fp32", "adamw").held / 1e9
    16.0
    """
    if optimizer not in OPTIMIZER_STATES:
        raise unknown("optimizer", optimizer, OPTIMIZER_STATES)
    rule = OPTIMIZER_STATES[optimizer]
    narrow = precision not in ("fp32", "tf32")
    width = 2.0 if narrow else 4.0
    units = sharding.unit > 0
    bare = narrow and not master_weights
    master = 4.0 if precision in ("fp16", "bf16") and not units and not bare else 0.0
    kept = 2.0 if master or bare else 4.0
    narrowed = 0.5 if bare and not rule.quantised else 1.0
    gradient_bytes = min(gradient_bytes, 2.0) if bare else gradient_bytes
    copies, messages = 0.0, gradient_bytes * parameters * sharding.buckets
    if units:
        # This unit and the next are gathered, beside what stays gathered: no more than all there
        # is. A unit's gradient is there in 16 bits, and once more in fp32 to be sent.
        whole = parameters + frozen
        copies = width * min(2 * sharding.unit + sharding.root, whole)
        messages += (width + (2.0 if bare else 4.0)) * sharding.unit * parameters / whole
    elif narrow and not master and not bare:
        copies = width * parameters
    state = (narrowed * rule.state + master) * parameters * sharding.optimizer
    temporary = narrowed * rule.temporary * parameters * sharding.optimizer if foreach else 0.0
    return State(
        parameters=(kept * parameters + width * frozen) * sharding.parameters,
        gradients=gradient_bytes * parameters * sharding.gradients,
        optimizer=state,
        copies=copies,
        messages=messages,
        step=temporary,
    )


# What is not in any tensor


class Overhead(NamedTuple):
    """What no tensor shows: bytes of ``context`` and ``communicator``, and the reserved share.

    ``reserve`` is what the allocator reserves for a byte that tensors take, 1 or more.
    """

    context: float
    communicator: float
    reserve: float

    def beside(self, tensors: float, communicators: int = 1) -> float:
        """Return the bytes that are taken beside those of tensors, with so many communicators."""
        return tensors * (self.reserve - 1.0) + self.context + communicators * self.communicator


_CONTEXT = {2022: 1343 * MIB, 2024: 0.47 * GIB}
"""Bytes of the CUDA context and kernels, by the last year of the software: PyTorch 1.10 on a V100
1343 MiB (huggingface/transformers@0016acf7 docs/source/en/perf_train_gpu_one.mdx); PyTorch 2.1.1,
which loads kernels when they are used, 0.47 GiB (stas00/ml-engineering, training/performance)."""

_COMMUNICATOR = 1.45 * GIB
"""Bytes of NCCL's buffers: memory grows from 0.55 to 2.00 GiB with the first barrier of two ranks
(stas00/ml-engineering, training/performance)."""

_RESERVE = 1.05
"""Bytes that PyTorch reserves for one that tensors take at the peak: the mean of 1.0099, 1.0102,
1.0118, 1.0152, 1.0896 and 1.159 (nanotron, Llama of 1.3 billion, six configurations: peak_reserved
by peak_allocated in log_metrics.csv, huggingface.co/nanotron/old_bench and bench_cluster)."""


def overhead_bytes(era: str, gpus: int) -> Overhead:
    """Return what CUDA, NCCL and the allocator take beside the tensors.

    Examples
    --------
    >>> overhead_bytes("torch2", 1).communicator
    0.0
    """
    year = software_era(era).year
    context = next((size for last, size in _CONTEXT.items() if year <= last), _CONTEXT[2024])
    return Overhead(context, _COMMUNICATOR if gpus > 1 else 0.0, _RESERVE)


# Sums


def peak_parts(
    state: State, activations: Activations, *, keeps_gradients: bool = True
) -> dict[str, float]:
    """Return the bytes of tensors at the worst moment of an iteration: in passes or in the step.

    Together they are what ``torch.cuda.max_memory_allocated`` counts. ``keeps_gradients`` says
    whether gradients stay between iterations: before PyTorch 2, whose ``zero_grad`` sets them to
    none, and where micro-batches add up. Otherwise gradients appear as activations go, and both are
    not there at once.
    """
    gradients, copies, step = state.gradients, state.copies, 0.0
    held, logits = 0.0, 0.0
    stays = state.gradients if keeps_gradients else 0.0
    during = activations.peak + state.copies + stays
    after = state.gradients + max(activations.working + state.copies, state.step)
    if during >= after:
        logits = min(activations.logits, activations.peak - activations.kept)
        held, gradients = activations.peak - logits, stays
    elif state.step > activations.working + state.copies:
        step, copies = state.step, 0.0
    else:
        held = activations.working
    return {
        "parameters": state.parameters,
        "gradients": gradients,
        "optimizer": state.optimizer,
        "activations": held,
        "logits": logits,
        "copies": copies,
        "messages": state.messages,
        "step": step,
    }


_MOST = 2**40
"""The largest batch that is looked for."""


def largest_batch(fits: Callable[[int], bool]) -> int:
    """Return the largest batch that fits, 0 if not even one sample does.

    ``fits`` must be true up to some batch and false beyond it. It is asked about twice as often as
    the batch has binary digits.

    Examples
    --------
    >>> largest_batch(lambda batch: 3 + 2 * batch <= 20)
    8
    """
    if not fits(1):
        return 0
    below, above = 1, 2
    while above < _MOST and fits(above):
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below
