"""What a model's layers ask of a GPU: products, convolutions, attention and streams.

``layer_work`` turns a network definition into the kernels of a forward and a backward pass for
one sample, as a software era runs them. ``compute/kernel_time.py`` prices them on a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache
from math import gcd, prod, sqrt
from typing import Literal, NamedTuple

from perfsim.compute.attention import BACKWARD_WORK
from perfsim.compute.by_operations import (
    ACTIVATIONS,
    BARE_LAYERNORM,
    MASKS,
    MODULATED,
    NORMS_IN_FP32,
    SCALED,
    SCORES,
    SUMMED,
    ByOperations,
    activated_values,
    all_keys,
    is_bare_layernorm,
    mask_values,
)
from perfsim.compute.execution import Execution, execution_of
from perfsim.compute.kernel import FLOAT
from perfsim.models import packed_model
from perfsim.models.blocks import attended_values, block_spans
from perfsim.models.layers import (
    PACKED_BITS,
    LayerShape,
    ModelLayer,
    Module,
    is_expert,
    layer_figures,
)
from perfsim.sums import sum_in_order

__all__ = [
    "LOAD_BYTES",
    "LayerWork",
    "ModelWork",
    "Work",
    "WorkKind",
    "layer_operations",
    "model_work",
    "work_of",
]

WorkKind = Literal["product", "conv", "winograd", "batched", "attention", "recurrent", "stream"]


class Work(NamedTuple):
    """One kernel's work: floating-point operations and values moved, a sample and fixed.

    ``flops`` and ``values`` grow with the batch; ``weights`` (values of parameters that it reads or
    writes) do not. ``inner`` is the inner dimension of a product, ``tokens`` the length of the
    sequence for attention, or of a document that it stays within, ``causal`` whether it is masked,
    ``window`` that of `ModelLayer`, ``head`` the values of one of its heads.
    ``aligned`` is the largest power of two up to 8 that divides both sides of a product's weight,
    ``channels`` those of a batch normalisation. ``wide`` says that the values are fp32 whatever the
    precision. ``widened`` says that another kernel prices these values at the narrow width: this
    one adds the bytes that are missing. ``counted`` says that ``values`` have every pass over them,
    so that no factor of eager code applies. ``fixed`` are operations that do not grow with the
    batch. ``experts`` are those that a product is done for, ``casts`` those whose tokens are cast
    before it in fp8 and nvfp4, ``padded`` the values that are copied then, as an expert's rows must
    be a multiple of 16 or 32 (NVIDIA/TransformerEngine@d0067d0d pytorch/module/fp8_padding.py).
    """

    kind: WorkKind
    flops: float
    values: float
    weights: float = 0.0
    inner: float = 0.0
    tokens: int = 0
    wide: bool = False
    causal: bool = False
    fixed: float = 0.0
    experts: int = 0
    casts: int = 0
    padded: float = 0.0
    aligned: int = 8
    channels: int = 0
    counted: bool = False
    widened: bool = False
    window: float = 1.0
    head: int = 0


class LayerWork(NamedTuple):
    """A layer's kernels, forward and backward, and how many operations its host launches.

    ``module`` is that of `ModelLayer`, ``activation`` has the forward kernels of the activation
    behind experts' first product. ``experts_s`` is what the host needs, forward and backward, to
    launch experts one by one and what leads to them [s]; 0 for other layers, and where one kernel
    does for all experts.
    """

    name: str
    forward: tuple[Work, ...]
    backward: tuple[Work, ...]
    operations: float
    module: Module = ""
    activation: tuple[Work, ...] = ()
    experts_s: tuple[float, float] = (0.0, 0.0)


class ModelWork(NamedTuple):
    """The kernels of a network: by layer with and without parameters, and counted by their work.

    ``places`` numbers the layers, those alike with the same number, 0 and up as they first occur.
    ``counted`` has those of both passes, ``forward`` those of the forward pass but for the output
    layer, which is not computed again. ``matrices`` are the weights of two axes and how many there
    are of each, for optimizers that multiply them. ``padded`` says whether samples are padded to
    their length: sentences of an encoder. Decoders train on text that fills every sample.
    ``blocks`` are the first layer of each block and the one after its last.
    """

    layers: tuple[LayerWork, ...]
    places: tuple[int, ...]
    counted: tuple[tuple[Work, int], ...]
    forward: tuple[tuple[Work, int], ...]
    matrices: tuple[tuple[LayerShape, int], ...]
    operations: float
    tensors: int
    parameters: int
    tokens: int | None
    transformer: bool
    padded: bool = False
    blocks: tuple[tuple[int, int], ...] = ()


_MATRIX_AXES = 2
"""Axes of a dense layer's weight; that of experts has one more."""
LOAD_BYTES = 16
"""Bytes that tensor cores' operands are loaded by at once (NVIDIA, Matrix Multiplication Background
User's Guide, section 2.1)."""
_HALF_BYTES = 2
"""Bytes of a value in half precision, of which a load has most."""
_STRIDE_LIMIT = 4.5
"""Largest ratio of a convolution's input to its output points: a stride of 2, and its border."""
_WINOGRAD_SIDES = (3, 5)
"""Sides of the kernels that libraries compute by Winograd's method (Lavin & Gray, arXiv
1509.09308), at stride 1."""

_OPERATIONS = {
    "conv": 3.0,
    "batchnorm": 4.0,
    "linear": 3.0,
    "layernorm": 7.0,
    "rmsnorm": 18.0,
    "embedding": 3.0,
    "attention": 18.0,
    "lstm": 5.0,
    "parameter": 2.0,
}
"""Operations that an eager framework launches for a layer and the element-wise work behind it, both
passes (derived: a GPT block of four products, two normalisations and attention has 39, forward and
backward with dropout, counted on PyTorch's meta tensors; a residual block's as its code reads; an
RMSNorm in eager Python takes 6 operations forward)."""
_ACTIVATION_OPERATIONS = 2.0
"""Operations of an activation and its gradient, in networks without attention, that no batch
normalisation has with its own."""
_BIAS_OPERATIONS_OF_DENSE = 1.0
"""Operations of a dense layer's bias in networks without attention: the sum that is its
gradient."""
_LOSS_OPERATIONS = 5.0
"""Operations of the loss of networks without attention: logarithms of shares, the mean of some,
what the backward pass begins with, and both gradients.

These three are PyTorch's calls, counted by tests/scripts/launches_against_pytorch.py. The counts of
transformers have the first two, and the third is few of theirs."""


@cache
def model_work(
    model: str,
    tokens: int | None,
    era: str,
    autocast: bool = False,
    document_tokens: int | None = None,
) -> ModelWork:
    """Return the kernels of a network for one sample as a software era runs them.

    Parameters
    ----------
    tokens : tokens a sample, None for the network's own
    autocast : whether in mixed precision the values of an fp32 model are cast at each operation
    document_tokens : that of `perfsim.models.packed_model`

    Raises
    ------
    RequestError
        If there is no such network or era, or the network takes no tokens.
    """
    return work_of(packed_model(model, tokens, document_tokens), era, autocast=autocast)


def work_of(layers: Sequence[ModelLayer], era: str, *, autocast: bool = False) -> ModelWork:
    """Return the kernels of a network given by its layers, for one sample, in a software era.

    ``autocast`` is that of `model_work`.

    Raises
    ------
    RequestError
        If there is no such era.
    """
    execution = execution_of(era)
    blocks = [layer for layer in layers if layer.kind == "attention"]
    casts = autocast and execution.autocasts
    if not (casts and blocks):
        execution = execution._replace(autocasts=False)
    kinds, places = _kinds_of_work(layers, execution, casts=casts and not blocks)
    times = Counter(places)
    forward, counted = Counter[Work](), Counter[Work]()
    for place, kind in enumerate(kinds):
        again = times[place] - (place == places[-1])  # the last layer is not computed again
        for work in kind.forward if again else ():
            forward[work] += again
        for work in (*kind.forward, *kind.backward):
            counted[work] += times[place]
    works = [
        LayerWork(layer.name, *kinds[place][1:])
        for layer, place in zip(layers, places, strict=True)
    ]
    matrices = Counter(
        shape
        for layer in layers[:-1]
        if layer.kind == "linear"
        for _, shape in layer.trained
        if len(shape) >= _MATRIX_AXES
    )
    return ModelWork(
        tuple(works),
        tuple(places),
        tuple(counted.items()),
        tuple(forward.items()),
        tuple(matrices.items()),
        sum_in_order(layer.operations for layer in works),
        sum(len(layer.trained) for layer in layers),
        sum(layer.trained_elements for layer in layers),
        blocks[0].rows if blocks else None,
        bool(blocks),
        any(not layer.causal for layer in blocks),
        tuple(block_spans(layers)),
    )


def layer_operations(layers: Sequence[ModelLayer], era: str) -> tuple[float, ...]:
    """Return how many operations the host launches for each layer in a software era."""
    kinds, places = _kinds_of_work(layers, execution_of(era)._replace(autocasts=False))
    return tuple([kinds[place].operations for place in places])


def _kinds_of_work(
    layers: Sequence[ModelLayer], era: Execution, *, casts: bool = False
) -> tuple[list[LayerWork], list[int]]:
    """Return the work of one of the layers that are alike, and which of these each layer has.

    Those that occur first come first. ``casts`` says whether autocast casts the weights of a
    network without attention.
    """
    points = 0
    normed = any(layer.kind == "batchnorm" for layer in layers)
    attends = any(layer.kind == "attention" for layer in layers)
    wide, attended, last = False, False, layers[-1]
    kinds: list[LayerWork] = []
    places: list[int] = []
    alike: dict[Hashable, tuple[int, bool]] = {}
    for at, layer in enumerate(layers):
        first = layer is layers[0]
        shapes = tuple([shape for _, shape in layer.tensors])
        # What an activation in one kernel writes, a layer that is divided by rows reads.
        narrow = attended or (layer.split == "row" and not (wide or layer.wide))
        if _all_in_fp32(layer, era):
            reads = _reads(layer) if layer.packed else 0.0
        elif layer.wide and layer.kind == "attention":
            reads = attended_values(layers, at, layers)
        else:
            reads = _reads(layer) if era.autocasts and not narrow else 0.0
        key = (*layer_figures(layer), shapes, points, first, layer is last, reads)
        known = alike.get(key)
        if known is None:
            known = alike[key] = len(kinds), _exact(layer, era)
            work = _layer_work(layer, era, points, first, normed, reads)
            if layer is last:
                widens = era.loss_by_operation and not _all_in_fp32(layer, era)
                work = _with_loss(work, layer, era.loss_by_operation, widens)
            if not attends:
                more = _launched_without_attention(layer, normed)
                more += _LOSS_OPERATIONS * (layer is last)
                if casts:
                    more += _launched_to_cast(layer, first, layer is last)
                work = work._replace(operations=work.operations + more * era.op_share)
            kinds.append(work)
        place, exact = known
        places.append(place)
        attended = layer.kind == "attention"
        # The other half of what a gate multiplies stands between the two.
        wide = exact or (wide and layer.split == "column")
        if layer.kind == "conv":
            points = layer.rows
    return kinds, places


_LOSS_PASSES = (4.0, 3.0)
"""fp32 passes over the outputs that a loss makes: its softmax reads them three times and writes;
the backward pass reads the softmax and the gradient and writes."""
_LOSS_PASSES_BY_OPERATION = (4.0, 5.0)
"""The same in eager PyTorch, whose backward pass fills a gradient with zeros and reads it twice
(ATen/native/cuda/SoftMax.cu, cunn_SoftMaxForward and cunn_SoftMaxBackward; LossNLL.cu). On an H100
both kernels of 1.05e9 outputs take 5.6 and 5.7 ms, the time of 16 bytes an output each
(tests/scripts/end_to_end/one_gpu.jsonl)."""


def _with_loss(work: LayerWork, layer: ModelLayer, by_operation: bool, casts: bool) -> LayerWork:
    """Return the work of the last layer with the passes over its outputs that the loss makes.

    Eager PyTorch makes outputs of 16 bits fp32 before it, by autocast or by the model's code, and
    their gradient 16 bits wide behind it (``casts``).
    """
    passes = _LOSS_PASSES_BY_OPERATION if by_operation else _LOSS_PASSES
    forward, backward = ([Work("stream", 0.0, one * layer.outputs, wide=True)] for one in passes)
    if casts:
        cast = Work("stream", 0.0, _CAST_PASSES * layer.outputs, widened=True)
        forward, backward = [cast, *forward], [*backward, cast]
    return work._replace(forward=(*work.forward, *forward), backward=(*work.backward, *backward))


def _layer_work(
    layer: ModelLayer, era: Execution, points: int, first: bool, normed: bool, reads: float
) -> LayerWork:
    """Return a layer's kernels and launches; ``reads`` are the values that it casts, if any.

    The others are those of `_layer`.
    """
    forward, backward = _cast(reads, *_layer(layer, era, points, first, normed))
    operations = _LIGER_NORM_OPERATIONS if _liger_norm(layer, era) else _OPERATIONS[layer.kind]
    if layer.wide and reads:
        more = _cast_back(layer, era)
        forward, backward = _with((forward, backward), more)
        operations += len(more[0]) + len(more[1]) + 2.0 * _all_in_fp32(layer, era)
    if not era.fused:
        operations += _launched_besides(layer)
    if layer.frozen:
        operations += _launched_with_adapter(layer)
    operations += _MULTIHEAD_OPERATIONS * (era.multihead and layer.kind == "attention")
    if layer.kind == "attention" and era.masked and era.in_one_kernel(layer.scores):
        operations += MASKS[layer.scores].launches
    if era.autocasts and layer.kind == "linear":
        operations += 2.0 * (len(layer.tensors) + (reads > 0.0))
    return LayerWork(
        layer.name,
        tuple(forward),
        tuple(backward),
        operations * era.op_share,
        layer.module,
        tuple(_activation(layer, era)),
        _experts_launch_s(layer, era),
    )


_CASTS = 4.0
"""Operations that a dense layer in fp32 launches to cast what it reads and its weight, and both of
their gradients."""


_DISPATCH_OPERATIONS = (38.0, 27.0)
"""Operations that Megatron-LM launches forward and backward to choose experts, to send tokens to
them and to put them in order (counted: tests/scripts/expert_operations.txt)."""
_PRODUCTS = (1.0, 2.0)
"""Products of a dense layer, forward and backward."""
_BIAS_OPERATIONS = (2.0, 6.0)
"""Operations on the bias of each expert behind its last product, that weight and add it, and those
of their gradients (NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/moe/experts.py,
``_apply_bias``)."""


_Both = tuple[list[Work], list[Work]]
"""Forward and backward kernels of a layer."""


class _Loop(NamedTuple):
    """Operations of a loop over experts, forward and backward: those of each expert, and the rest.

    ``products`` are those of an expert that make the gradients of its weights.
    """

    expert: tuple[float, float]
    rest: tuple[float, float]
    products: float


_LOOP = _Loop((12.0, 20.0), (9.0, 2.0), 3.0)
"""What finds each expert's tokens, its three products and their gate, the router's weights, and the
addition to all tokens, with what the host reads of the GPU (transformers 4.57.1,
modeling_qwen3_moe.py, modeling_mixtral.py; counted: tests/scripts/expert_loops.txt)."""
_LOOP_WITH_BIASES = _Loop((23.0, 42.0), (9.0, 0.0), 2.0)
"""The same of gpt-oss, whose experts are parts of one tensor, with biases and a clamped gate
(transformers 4.57.1 and 5.24.0, modeling_gpt_oss.py)."""
_ALL_AGAIN = 4.0
"""Passes over a whole gradient for each part of it: it is filled with zeros, and added to the sum
of those before (PyTorch 2, torch/csrc/autograd/FunctionsManual.cpp, ``index_backward``; ATen,
``select_backward``)."""


def _loop_launch_s(layer: ModelLayer, era: Execution) -> tuple[float, float]:
    """Return what the host needs to launch a loop over experts [s]; counted at the last product."""
    if layer.split != "row":
        return 0.0, 0.0
    loop, experts = _LOOP_WITH_BIASES if layer.unfused else _LOOP, layer.tensors[0][1][0]
    forward, backward = (
        experts * each + rest for each, rest in zip(loop.expert, loop.rest, strict=True)
    )
    backward -= experts * loop.products * layer.frozen
    return forward * era.op_s, backward * era.op_s


def _looped(layer: ModelLayer, era: Execution) -> _Both:
    """Return what a loop over experts passes over besides: gradients that are mostly zeros.

    The gradient of each expert's tokens is one of all tokens that a rank has. Where experts are one
    tensor (with biases), the gradient of each expert's weights is one of all experts'.
    """
    if not (era.looped and is_expert(layer)):
        return [], []
    experts, backward = layer.tensors[0][1][0], []
    if layer.split == "row":
        tokens = layer.outputs / layer.chosen
        backward.append(Work("stream", 0.0, _ALL_AGAIN * experts * tokens, counted=True))
    if layer.unfused and not layer.frozen:
        width = FLOAT if era.autocasts else _HALF_BYTES
        moved = _ALL_AGAIN * experts * width * layer.elements
        backward.append(Work("stream", 0.0, 0.0, moved / FLOAT, wide=True))
    return [], backward


def _experts_launch_s(layer: ModelLayer, era: Execution) -> tuple[float, float]:
    """Return the ``experts_s`` of a layer (see `LayerWork`)."""
    if era.looped and is_expert(layer):
        return _loop_launch_s(layer, era)
    if not (era.expert_s and is_expert(layer)):
        return 0.0, 0.0
    experts = layer.tensors[0][1][0]
    is_last = layer.split == "row"  # the last product
    biased = experts * bool(layer.unfused)

    def pass_s(products: float, dispatch: float, bias: float) -> float:
        eager = dispatch + bias * biased if is_last else 0.0
        return products * experts * era.expert_s + eager * era.eager_s

    forward, backward = zip(_PRODUCTS, _DISPATCH_OPERATIONS, _BIAS_OPERATIONS, strict=True)
    return pass_s(*forward), pass_s(*backward)


def _launched_besides(layer: ModelLayer) -> float:
    """Return the operations that a layer launches where code makes several of one kernel."""
    if layer.modulated or layer.scaled:
        return (MODULATED if layer.modulated else SCALED).launches
    if layer.activated:
        by_operations = ACTIVATIONS.get(layer.activation)
        return by_operations.launches if by_operations else 0.0
    if not layer.fp32:
        return 0.0
    if is_bare_layernorm(layer):
        return BARE_LAYERNORM.launches
    if layer.kind == "layernorm":
        more = _OPERATIONS["rmsnorm"] - _OPERATIONS["layernorm"]
        return more + NORMS_IN_FP32[layer.kind].launches
    return _CASTS if layer.kind == "linear" else 0.0


def _launched_without_attention(layer: ModelLayer, normed: bool) -> float:
    """Return the operations beside a layer that the counts of transformers have elsewhere."""
    activated = (layer.kind == "conv" and not normed) or (
        layer.activated and layer.activation not in ACTIVATIONS
    )
    biased = layer.kind == "linear" and len(layer.tensors) > 1 and not layer.frozen
    return _ACTIVATION_OPERATIONS * activated + _BIAS_OPERATIONS_OF_DENSE * biased


def _launched_to_cast(layer: ModelLayer, first: bool, last: bool) -> float:
    """Return the operations by which autocast casts a layer of a network without attention.

    Weights and biases of convolutions and dense layers are cast to 16 bits, once a step, and their
    gradients back to fp32; images to 16 bits, outputs to fp32 for the loss and their gradient back.
    Normalisations keep fp32 parameters beside values of 16 bits (PyTorch 2.13,
    aten/src/ATen/autocast_mode.cpp; counted: tests/scripts/launches_against_pytorch.py).
    """
    parameters = 2.0 * len(layer.tensors) * (layer.kind in ("conv", "linear"))
    return parameters + first + 2.0 * last


def _launched_with_adapter(layer: ModelLayer) -> float:
    """Return the operations that a frozen layer launches for its adapter, less those that go."""
    if layer.kind == "linear":
        unpacking = 2.0 * _UNPACKING_OPERATIONS * bool(layer.packed)
        casts = _ADAPTER_CASTS * layer.adapter_fp32 + 2.0 * layer.adapter_drops
        return _ADAPTER_OPERATIONS * bool(layer.adapter) + casts + unpacking - 1.0
    return -1.0 if layer.kind == "embedding" else 0.0


_UNPACKING_OPERATIONS = 3.0
"""Operations that unpack a matrix of 4 bits in a pass: the constants of its blocks are unpacked,
their mean is added, and the values are (bitsandbytes-foundation/bitsandbytes 0.45.0
bitsandbytes/functional.py, ``dequantize_4bit``)."""

_ADAPTER_CASTS = 5.0
"""Operations of both passes that cast what an adapter in fp32 reads, adds to and has gradients of
(there; counted: tests/scripts/adapters_in_fp32.txt)."""
_ADAPTER_OPERATIONS = 10.0
"""Operations of an adapter: two products, a scaling and a sum forward; four products, a scaling and
a sum backward (huggingface/peft src/peft/tuners/lora/layer.py, ``Linear.forward``)."""


def _exact(layer: ModelLayer, era: Execution) -> bool:
    """Tell whether autocast leaves what a layer's activation writes in fp32."""
    by_operations = None if era.fused else ACTIVATIONS.get(layer.activation)
    return layer.activated and by_operations is not None and by_operations.fp32


def _reads(layer: ModelLayer) -> float:
    """Return the values that a dense layer reads and, by autocast, casts to 16 bits.

    Those of normalisations, additions and powers are fp32; those of attention and of an
    activation in one kernel have 16 bits already.
    """
    if layer.kind != "linear":
        return 0.0
    return max(layer.rows, 1) * layer.flops / (2.0 * layer.outputs)


_CAST_WIDTHS = 1.5
"""fp32 values' worth that a cast between fp32 and 16 bits reads and writes of one value."""


def _cast(reads: float, forward: list[Work], backward: list[Work]) -> _Both:
    """Return a layer's kernels with the cast of what it reads, and of its gradient back to fp32."""
    if not reads:
        return forward, backward
    cast = Work("stream", 0.0, _CAST_WIDTHS * reads, wide=True)
    return [cast, *forward], [*backward, cast]


def _cast_back(layer: ModelLayer, era: Execution) -> _Both:
    """Return the casts of a layer that reads fp32 values, but that of what the layer itself reads.

    A packed one casts what it writes back to fp32. So does its adapter's sum, of fp32 and 16 bits;
    the adapter casts what it reads once more. Without autocast an adapter is fp32 throughout.
    """
    written = layer.outputs * bool(layer.packed)
    adapts = layer.adapter and era.autocasts
    adapted = (_reads(layer) + layer.outputs) * bool(adapts)
    values = [_CAST_WIDTHS * one for one in (written, adapted) if one]
    casts = [Work("stream", 0.0, one, wide=True) for one in values]
    return casts, casts


def _all_in_fp32(layer: ModelLayer, era: Execution) -> bool:
    """Tell whether all of a layer in half precision runs in fp32 but a product of packed values.

    Values between layers are fp32, and no autocast makes them narrower.
    """
    return layer.wide and not era.autocasts


def _layer(layer: ModelLayer, era: Execution, points: int, first: bool, normed: bool) -> _Both:
    """Return a layer's kernels, with the element-wise work beside it.

    ``points`` are those that the convolution before it wrote; ``normed`` says whether the network
    normalises its convolutions.
    """
    if layer.kind == "conv":
        works = _convolution(layer, era, points, first, normed)
    elif layer.kind == "linear":
        works = _linear(layer, era)
    elif layer.kind == "attention":
        works = _attention(layer, era)
    elif layer.kind == "lstm":
        works = _recurrent(layer)
    elif layer.kind == "batchnorm":
        works = _batch_norm(layer, era)
    elif layer.kind in ("rmsnorm", "layernorm"):
        works = _norm(layer, era)
    else:
        works = _lookup(layer)
        if layer.frozen:
            works = works[0], []
    works = _with(works, _modulation(layer, era))
    if era.multihead and layer.kind == "attention":
        works = _with(works, _counted(_width(layer) * layer.outputs, _MULTIHEAD))
    copied, unfused = _gate(layer, era)
    if era.liger:
        rotated, gated = layer.rotated, layer.copies * _liger_gate(layer, era)
        works = _with(works, _counted(_width(layer) * rotated, _LIGER_ROTARY))
        works = _with(works, _counted(_width(layer) * gated, _LIGER_GATE))
    beside = (
        copied,
        (layer.rotated * (not era.liger), era.passes.rotary),
        (_PERMUTED * layer.permuted, (1.0, 1.0)),
        unfused,
        _dropout(layer, era),
    )
    for values, passes in beside:
        works = _with(works, _streams(_width(layer) * values, passes))
    return _with(works, _looped(layer, era))


def _norm(layer: ModelLayer, era: Execution) -> _Both:
    """Return a transformer's normalisation."""
    if _liger_norm(layer, era):
        return _counted(_width(layer) * layer.outputs, _LIGER_NORM)
    if layer.kind in NORMS_IN_FP32 and layer.fp32 and not era.fused:
        one, passes = NORMS_IN_FP32[layer.kind], era.passes.rmsnorm
        if is_bare_layernorm(layer):
            one, passes = BARE_LAYERNORM, era.passes.layernorm
        wide = era.autocasts or layer.wide
        more = _by_operations(one, layer.outputs, fp32=wide)
        return _with(_streams(layer.outputs, passes), more)
    if layer.kind == "rmsnorm":
        return _streams(layer.outputs, era.passes.rmsnorm)
    return _streams(_gathered(layer, era) * layer.outputs, era.passes.layernorm)


def _width(layer: ModelLayer) -> float:
    """Return how many values of half precision one value between layers takes."""
    return FLOAT / _HALF_BYTES if layer.wide else 1.0


def _modulation(layer: ModelLayer, era: Execution) -> _Both:
    """Return what shifts and scales the tokens of a sample alike, and what scales what is added."""
    works: _Both = [], []
    for values, code in ((layer.modulated, MODULATED), (layer.scaled, SCALED)):
        if era.fused:
            works = _with(works, _streams(values, SUMMED))
        else:
            works = _with(works, _by_operations(code, values, fp32=code.fp32 and era.autocasts))
    return works


_Passes = tuple[float, tuple[float, float]]
"""Values, and how often each pass goes over them."""


def _gate(layer: ModelLayer, era: Execution) -> tuple[_Passes, _Passes]:
    """Return what a gate multiplies or a shortcut adds, and operations that nothing fuses."""
    gated = layer.activation == "clamped_swiglu" and not era.fused  # its operations have all
    gated = gated or _liger_gate(layer, era)
    return (
        (0.0 if gated else layer.copies, era.passes.add),
        (0.0 if era.captured or gated else layer.unfused, (1.0, 1.0)),
    )


def _activation(layer: ModelLayer, era: Execution) -> list[Work]:
    """Return the forward kernels of the activation behind experts' first product."""
    if not (is_expert(layer) and layer.activated):
        return []
    forward = [work for work in _linear(layer, era)[0] if work.kind == "stream"]
    for values, passes in _gate(layer, era):
        forward += _streams(values, passes)[0]
    return forward


def _dropout(layer: ModelLayer, era: Execution) -> _Passes:
    """Return the values that a layer's dropout passes over, and how often."""
    if layer.kind != "attention":
        return layer.dropped, era.passes.dropout
    dropped = 0.0 if era.in_one_kernel(layer.scores) else layer.dropped
    return dropped, era.passes.dropped_scores


_PERMUTED = 0.666 / 0.506
"""How much longer it takes to put rows in another order than to pass over as many bytes in place:
the two reach 0.506 and 0.666 of a B200's memory rate (MooreThreads/SimuMax@4dcaae51, Apache-2.0,
configs/system/b200_bf16_ceperm.json)."""


_LIGER_NORM, _LIGER_ROTARY, _LIGER_GATE = (2.0, 3.0), (2.0, 2.0), (3.0, 5.0)
"""Values that Liger's kernels load and store in both passes: an RMSNorm reads and writes, backward
reads its input and the gradient and writes; positions turn queries and keys where they are; a gate
reads two and writes one, backward reads three and writes two where they were
(linkedin/Liger-Kernel@ead96b61 src/liger_kernel/ops: rms_norm.py, rope.py, swiglu.py)."""
_LIGER_NORM_OPERATIONS = 3.0
"""Operations of Liger's RMSNorm in both passes: a kernel each, and the sum of its weight's gradient
over blocks (rms_norm.py)."""


def _liger_norm(layer: ModelLayer, era: Execution) -> bool:
    """Tell whether Liger's kernel normalises."""
    return era.liger and layer.kind == "rmsnorm"


def _liger_gate(layer: ModelLayer, era: Execution) -> bool:
    """Tell whether a layer writes what Liger's SwiGLU or GEGLU reads: a gate, and what it weighs.

    Experts in grouped products have no such kernel.
    """
    gate = layer.activated and layer.name.endswith("gate_proj")
    return era.liger and (gate or (layer.name.endswith("up_proj") and layer.copies > 0.0))


_MULTIHEAD = (14.0, 51.0)
"""Values that ``nn.MultiheadAttention`` reads and writes of one that attention writes, beside its
products and attention. Forward, the bias of queries, keys and values is added by itself, as what
they are made of lies apart (6), they are put in order by a copy (6), and so is what attention
writes (2); backward these copies again, and the gradient of each of the three is one of all three
that is zero elsewhere, and added to the others (PyTorch 2.13, torch/nn/functional.py,
``multi_head_attention_forward`` and ``_in_projection_packed``; counted:
tests/scripts/multihead_attention.txt)."""
_MULTIHEAD_OPERATIONS = 16.0
"""Operations that it launches more than code that calls the kernel itself (there)."""


def _counted(values: float, passes: tuple[float, float]) -> _Both:
    """Return kernels in which the passes over values are all there are."""
    forward, backward = _streams(values, passes)
    return (
        [work._replace(counted=True) for work in forward],
        [work._replace(counted=True) for work in backward],
    )


def _streams(values: float, *passes: tuple[float, float]) -> _Both:
    """Return element-wise kernels that pass over ``values``, (forward, backward) times each."""
    forward = [Work("stream", 0.0, values * both[0]) for both in passes if values * both[0]]
    backward = [Work("stream", 0.0, values * both[1]) for both in passes if values * both[1]]
    return forward, backward


def _batch_norm(layer: ModelLayer, era: Execution) -> _Both:
    """Return a batch normalisation, and the activation behind it."""
    channels = layer.tensors[0][1][0]
    forward, backward = (
        [work._replace(channels=channels) for work in works]
        for works in _streams(layer.outputs, era.passes.norm)
    )
    more = _streams(layer.outputs, era.passes.activation)
    return forward + more[0], backward + more[1]


def _gathered(layer: ModelLayer, era: Execution) -> float:
    return layer.gathered if era.gathers else 1.0


def _convolution(
    layer: ModelLayer, era: Execution, points: int, first: bool, normed: bool
) -> _Both:
    """Return a convolution and its backward products; the first has no gradient of its input.

    Where no normalisation follows, bias and activation do. It reads maps as large as those that
    the convolution before it wrote, or a stride of 2 if it is the first.
    """
    shape = layer.tensors[0][1]
    inner = layer.inner
    kernel = shape[-2] * shape[-1] if len(shape) > 2 else shape[-1]
    if first:
        points = 4 * layer.rows
    elif not layer.rows < points <= _STRIDE_LIMIT * layer.rows:
        points = layer.rows
    square = len(shape) > 2 and shape[-2] == shape[-1] and shape[-1] in _WINOGRAD_SIDES
    kind: WorkKind = "winograd" if square and points == layer.rows and not first else "conv"
    values = inner / kernel * points + layer.outputs
    work = Work(kind, layer.flops, values, layer.elements, inner)
    forward, backward = [work], [work] if first else [work, work]
    if layer.frozen:
        backward = backward[1:]
    if not normed:
        more = _streams(layer.outputs, era.passes.activation, era.passes.bias)
        forward, backward = forward + more[0], backward + more[1]
    return forward, backward


def _linear(layer: ModelLayer, era: Execution) -> _Both:
    """Return a dense layer, and what activates it; a bias's gradient reads what comes in."""
    share = _gathered(layer, era)
    inner = layer.inner
    rows = max(layer.rows, 1)
    values = share * (rows * inner + layer.outputs)
    experts = is_expert(layer)
    sides = layer.tensors[0][1][-_MATRIX_AXES:] if layer.tensors else ()
    weights = float(layer.elements) if experts else inner * layer.outputs / rows
    if len(sides) < _MATRIX_AXES:  # an output layer that shares the embedding's table
        sides = (round(inner), round(layer.outputs / rows))
    elif not experts:  # a part of a row reads no weights of its own
        weights = min(weights, float(prod(sides)))
    aligned = gcd(LOAD_BYTES // _HALF_BYTES, *sides)
    work = Work("product", share * layer.flops, values, weights, inner, aligned=aligned)
    first = again = work
    if experts:
        count = layer.tensors[0][1][0]
        row = layer.flops / max(layer.rows, 1) * count
        padded = rows * inner if layer.split == "column" else layer.outputs
        work = work._replace(
            fixed=_GROUPED_ROWS[0] * row, experts=count, casts=count, padded=padded
        )
        again = again._replace(fixed=_GROUPED_ROWS[1] * row, experts=count)
        first = again._replace(casts=count, padded=padded)
    biased = len(layer.tensors) > 1 and not layer.frozen
    passes = [(0.0, 1.0)] if biased else []
    written = None if era.fused else ACTIVATIONS.get(layer.activation)
    by_hand = _liger_gate(layer, era)
    if layer.activated and written is None and not by_hand:
        passes = [era.passes.feedforward, *passes]
    more = _streams(_width(layer) * share * layer.outputs, *passes)
    if layer.activated and written is not None and not by_hand:
        values = share * activated_values(layer)
        fp32 = layer.wide or (written.fp32 and era.autocasts)
        more = _with(more, _by_operations(written, values, fp32=fp32))
    casts: list[Work] = []
    if layer.fp32 and not (era.fused or era.autocasts):
        work, first, again = (one._replace(wide=True) for one in (work, first, again))
        casts = [Work("stream", 0.0, _CAST_PASSES * rows * inner, widened=True)]
    if _all_in_fp32(layer, era) and not layer.packed:
        work, first, again, casts = *(one._replace(wide=True) for one in (work, first, again)), []
    gradients = [first] if layer.frozen else [first, again]
    unpacked = _unpacked(layer)
    works = [*unpacked, *casts, work, *more[0]], [*unpacked, *gradients, *casts, *more[1]]
    return _with(works, _adapter(layer, era)) if layer.adapter else works


def _unpacked(layer: ModelLayer) -> list[Work]:
    """Return the kernel that makes wider values of a matrix in 4 bits: it reads and writes all."""
    if not layer.packed:
        return []
    moved_bytes = (PACKED_BITS + layer.packed) / _BYTE * prod(layer.tensors[0][1])
    return [Work("stream", 0.0, 0.0, moved_bytes / FLOAT, wide=True)]


def _adapter(layer: ModelLayer, era: Execution) -> _Both:
    """Return the kernels of a layer's adapter: two products with their gradients, and two sums.

    What the second product writes is scaled and added to what the layer writes; in the backward
    pass the gradient of what both read is a sum of two. A compiler scales as it adds.
    Adapters in fp32 cast what they read; their sum is fp32, and cast back. Where all is fp32 there
    is nothing to cast.
    """
    exact = _all_in_fp32(layer, era)
    rows, rank, outputs = max(layer.rows, 1), layer.adapter, layer.outputs
    inputs = rows * layer.inner
    down = Work(
        "product", 2.0 * inputs * rank, inputs + rows * rank, layer.inner * rank, layer.inner
    )
    up = Work("product", 2.0 * outputs * rank, outputs + rows * rank, outputs / rows * rank, rank)
    down, up = (one._replace(wide=layer.adapter_fp32 or exact) for one in (down, up))
    scaled = 0.0 if era.captured else _SCALED * outputs
    summed = Work("stream", 0.0, _ADDED * inputs, counted=True)
    if layer.adapter_fp32:
        cast = Work("stream", 0.0, _CAST_WIDTHS * inputs, wide=True)
        forward = [cast, Work("stream", 0.0, scaled + _ADDED_IN_FP32[0] * outputs, wide=True)]
        backward = [cast, Work("stream", 0.0, scaled + _ADDED_IN_FP32[1] * outputs, wide=True)]
        works = [*forward, down, up], [*backward, summed, up, up, down, down]
    else:
        added = Work("stream", 0.0, scaled + _ADDED * outputs, counted=True, wide=exact)
        back = Work("stream", 0.0, scaled + _ADDED * inputs, counted=True, wide=exact)
        works = [down, up, added], [up, up, down, down, back]
    if layer.adapter_drops:
        wide = layer.adapter_fp32 or era.autocasts or exact
        moved = _DROPPED + _MASK_BYTES / (FLOAT if wide else _HALF_BYTES)
        drop = Work("stream", 0.0, moved * inputs, counted=True, wide=wide)
        works = _with(works, ([drop], [drop]))
    return works


_BYTE = 8
"""Bits of a byte."""
_SCALED, _ADDED = 2.0, 3.0
"""Values that a scaling and a sum read and write of one value."""
_DROPPED, _MASK_BYTES = 2.0, 1.0
"""Values that dropout reads and writes of one value in each pass, and bytes of its mask
(ATen/native/cuda/Dropout.cu). On an H100 8.4 million values of 16 bits, 42 MB each way, take 16 and
11 us (tests/scripts/end_to_end/one_gpu.jsonl, BERT-Large)."""
_ADDED_IN_FP32 = 4.0, 3.0
"""fp32 values' worth that such a sum and its casts move of a value, forward and backward: it reads
2 and 4 bytes and writes 4, of which a cast makes 2 again; the gradient is made 4 bytes wide for the
adapter, and what is left of it 2 (huggingface/peft 0.21.2, src/peft/tuners/lora/layer.py)."""


_CAST_PASSES = 3.0
"""Values of 2 bytes, fp32's width beyond 16 bits, that a cast between both moves: 6 bytes."""


def _by_operations(one: ByOperations, values: float, *, fp32: bool) -> _Both:
    """Return the kernels of operations that stand for one; ``fp32``: all of them run in it."""
    works = _streams(values, one.passes)
    forward, backward = ([w._replace(counted=True, wide=fp32) for w in both] for both in works)
    if fp32:
        return forward, backward
    more = _streams(values, one.widened)
    return (
        [*forward, *(work._replace(widened=True) for work in more[0])],
        [*backward, *(work._replace(widened=True) for work in more[1])],
    )


def _with(works: _Both, more: _Both) -> _Both:
    """Return the kernels of both."""
    return works[0] + more[0], works[1] + more[1]


_GROUPED_ROWS = (174.0, 242.0)
"""Tokens that each expert costs besides its own in a product of several experts, forward and
backward: the medians of 36 forward products and of 36 for the gradient of the input, with 128 to
9,832 tokens an expert on a B200, over what their operations take at the rate of large dense ones
there, 0.483 of 2,250 TFLOP/s (MooreThreads/SimuMax@4dcaae51, Apache-2.0,
configs/system/b200_bf16_ceperm.json). Those for the gradient of the weights add to it in fp32
there: 509 tokens, as 242 and the time of adding (`perfsim.model_parallel`) come to 540."""


def _attention(layer: ModelLayer, era: Execution) -> _Both:
    """Return attention: one kernel, or products of scores and values with passes between."""
    exact = _all_in_fp32(layer, era)
    if era.masked and era.in_one_kernel(layer.scores):
        return _masked_attention(layer, exact=exact)
    if era.in_one_kernel(layer.scores):
        flops = layer.flops / (2 if layer.causal else 1)
        work = Work(
            "attention",
            flops,
            4 * layer.outputs,
            tokens=layer.document or layer.rows,
            causal=layer.causal,
            window=layer.window,
            head=round(layer.outputs / (layer.rows * layer.heads)),
            wide=exact,
        )
        twice = work._replace(flops=BACKWARD_WORK * flops, values=8 * layer.outputs)
        return [work], [twice]
    keys = all_keys(layer)
    scores = float(layer.heads * layer.rows * keys)
    work = Work("batched", layer.flops / 2, 2 * layer.outputs + scores, wide=exact)
    if layer.scores and not era.fused:
        # All scores are computed, masked or not, whatever the window.
        work = work._replace(flops=2.0 * keys * layer.outputs)
        more = _by_operations(SCORES[layer.scores], scores, fp32=exact)
        return [work] * 2 + more[0], [work] * 4 + more[1]
    more = _streams((1.0 + exact) * scores, era.passes.scores)
    return [work] * 2 + more[0], [work] * 4 + more[1]


def _masked_attention(layer: ModelLayer, *, exact: bool) -> _Both:
    """Return PyTorch's kernel with a mask: all scores are computed; and what makes the mask."""
    flops = 4.0 * all_keys(layer) * layer.outputs
    head = round(layer.outputs / (layer.rows * layer.heads))
    work = Work("attention", flops, 4 * layer.outputs, tokens=layer.rows, head=head, wide=exact)
    twice = work._replace(flops=BACKWARD_WORK * flops, values=8 * layer.outputs)
    made = _by_operations(MASKS[layer.scores], mask_values(layer), fp32=exact)
    return _with(([work], [twice]), made)


def _recurrent(layer: ModelLayer) -> _Both:
    """Return an LSTM layer: its recurrent matrix is read again at every step."""
    again = layer.elements / 2.0 * max(layer.rows - 1, 0)
    inner = sqrt(layer.elements / 4.0)
    work = Work("recurrent", layer.flops, 10 * layer.outputs, layer.elements + again, inner)
    return [work], [work, work]


def _lookup(layer: ModelLayer) -> _Both:
    """Return an embedding or a parameter: its backward pass fills a gradient of the whole table."""
    forward = Work("stream", 0.0, 2 * layer.outputs, wide=True)
    backward = Work("stream", 0.0, 3 * layer.outputs, float(layer.elements), wide=True)
    return [forward], [backward]
