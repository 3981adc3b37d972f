"""How long a model's kernels take on a GPU, and how long its host needs to launch them.

A kernel that computes and moves data takes t = (c^p + m^p)^(1/p) + launch: c its operations over
the rate that such products reach, m its bytes over memory bandwidth, and half a wave of tiles that
the last wave leaves idle. An iteration is the later of GPU and host, for both passes and for the
update. ``profiles/build/compute_record.py`` fits the constants here and says how wrong they are on
GPUs, models and sources left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

from perfsim.compute.attention import AttentionRate, fused_attention, usual_kernel
from perfsim.compute.device import Device
from perfsim.compute.execution import Execution, execution_of
from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import AUTOCAST_PRECISIONS, HALF_PRECISIONS, OPERAND_BYTES
from perfsim.compute.recompute import (
    blocks_again,
    is_again,
    layers_again,
    modules_again,
)
from perfsim.compute.work import LOAD_BYTES, LayerWork, ModelWork, Work, model_work
from perfsim.sums import sum_in_order

__all__ = [
    "PASSES_BY_OPERATION",
    "UPDATES",
    "UPDATE_PASSES",
    "Constants",
    "KernelRates",
    "ModelTime",
    "cast_time",
    "kernel_shares",
    "model_time",
    "newton_schulz_flops",
    "update_passes",
    "work_time",
]


class Constants(NamedTuple):
    """What kernels of each kind reach, of the rate of large products or of memory bandwidth.

    All are fitted but ``compiled``, which is chosen: rows of compiled transformers are few. By
    precision: conv, winograd. ``gap_s`` is what each kernel takes beside its work [s]; ``wave`` the
    part of a wave of tiles that is idle; ``layout`` how often a convolution whose maps are not in
    the layout of tensor cores moves them again; ``eager`` how much longer element-wise kernels of
    transformers take where they are not fused, ``compiled`` the same where a compiler fused them,
    ``mixed`` the same under mixed precision (casts); ``unpadded`` the share of tokens that are no
    padding; ``kepler`` the most that Winograd's convolutions reach on Kepler, as a multiple of the
    others there; ``update_passes`` how much longer an update takes than its least traffic.
    """

    product: float = 1.05
    batched: float = 0.589
    conv_fp32: float = 0.776
    conv_tf32: float = 0.759
    conv_half: float = 0.605
    winograd_fp32: float = 2.79
    winograd_tf32: float = 0.817
    winograd_half: float = 0.61
    attention: float = 1.01
    recurrent: float = 0.7
    memory: float = 0.931
    eager: float = 1.72
    compiled: float = 1.25
    mixed: float = 1.04
    layout: float = 2.48
    wave: float = 0.427
    gap_s: float = 5.02e-06
    unpadded: float = 0.691
    update_passes: float = 1.19
    kepler: float = 0.736


FITTED = Constants()

_OPERAND_CAST_BYTES = {
    "fp8": (2.0 + 2 * OPERAND_BYTES["fp8"]) / 3.0,
    "nvfp4": (2 * 2.0 + 2 * OPERAND_BYTES["nvfp4"]) / 3.0,
}
"""Bytes that a product of narrow operands moves besides, for a value of its input and its output:
both are read in 16 bits and written twice, as they are and transposed, once for three products (the
input in the forward pass, the gradient of the output in the backward pass:
NVIDIA/TransformerEngine@d0067d0d pytorch/module/linear.py). In nvfp4 they are read once more before
it, for their largest value (there, pytorch/csrc/quantizer.cpp, NVFP4Quantizer::quantize_impl).
Weights are cast once for all micro-batches, which is left out."""
_COPY_BYTES = 4.0
"""Bytes that copying a 16-bit value reads and writes."""
_TILE = 128
"""Rows and columns of a tile of a product."""
_CONV_POWER, _PRODUCT_POWER = 2.0, 4.0
"""Power with which a kernel's computation and data movement add: convolutions overlap them less."""
UPDATE_PASSES = {
    "plain-sgd": 3.0,
    "sgd": 5.0,
    "adam": 7.0,
    "adam-fused": 7.0,
    "adamw-by-operation": 18.0,
    "lamb": 11.0,
    "adafactor": 5.0,
    "muon": 5.0,
}
"""fp32 passes over the parameters of an optimizer's update: it reads weight, gradient and moments
and writes weight and moments; by operation, every operation reads and writes again. LAMB writes
Adam's update, reads it and the weights for their norms, and reads it once more (You et al., arXiv
1904.00962, algorithm 2). Adafactor keeps a row and a column of a moment: it reads the gradient for
these, and again to update (Shazeer & Stern, arXiv 1804.04235, algorithm 4). Muon has a momentum,
and products besides."""
PASSES_BY_OPERATION = {
    "plain-sgd": 3.0,
    "sgd": 11.0,
    "adam": 20.0,
    "adam-fused": UPDATE_PASSES["adam-fused"],
    "adamw-by-operation": 18.0,
    "lamb": 28.0,
    "adafactor": 18.0,
    "muon": 11.0,
}
"""The same where each operation of an update is a kernel that reads and writes; ``adam-fused`` is
one kernel there too (``fused=True`` of torch.optim.AdamW).

SGD adds the decay (3), scales the momentum (2), adds the gradient (3) and updates (3). AdamW decays
(2), moves the first moment (3), scales and adds to the second (2, 3), takes its root, divides it
and adds epsilon (2 each) and updates (4): PyTorch 2, torch/optim/sgd.py and adam.py,
_multi_tensor_sgd and _multi_tensor_adam. That of huggingface/transformers of 2020 has one operation
fewer. LAMB adds to Adam the decay of its direction, two norms and their ratio (derived from You et
al., algorithm 2). Adafactor reads the gradient for the moment's row and column (1 each), writes
their product (1), divides, limits and inverts it (2 each), multiplies by the gradient (3), takes a
norm (1), decays (2) and updates (3): torch/optim/_adafactor.py, _single_tensor_adafactor. Muon
moves the momentum (3) and the gradient (3), decays (2) and updates (3): torch/optim/_muon.py.

On an H100 AdamW takes 21.7 passes of streaming memory for 0.12, 0.33 and 1.24 billion parameters
alike, SGD without decay 8.5 for 8 (tests/scripts/end_to_end/one_gpu.txt)."""
_UNALIGNED_FLOPS = 120e12
"""What products reach on tensor cores for each value that a load can take at once, where sides of
the weight are no multiple of 16 bytes [FLOP/s]: 94, 139 and 147 TFLOP/s forward and backward with
50,257 columns, 244 to 262 with 30,522, which are even, in bf16 on an H100 that reaches 756 with
sides that are (one_gpu.txt). Left out: nanoGPT ran some 25 % faster with 50,304 columns on A100s
(A. Karpathy, February 2023, quoted at simonwillison.net), where this says 17 %."""
_CHANNEL_BYTES_PER_S = 10e9
"""What a batch normalisation moves of a channel, where each has one block of threads [B/s].

Chosen of 5, 7, 10 and 15e9 by the four steps of ResNet-50 on an H100 (one_gpu.txt): by kernels
alone they are 21 % off without it (root mean square of ln), 16 % with. Left out: ResNet-152,
DenseNet-201 and Inception-v3 there -17, -37 and -45 % off without, -11, -31 and -26 % with; the 122
iterations of such networks that others measured on 17 GPUs stay at 7.0 % (median). On those memory
is not much faster than 64 channels."""
_NEWTON_SCHULZ_STEPS = 5
"""Steps of Newton-Schulz in Muon (Keller Jordan's muon.py), each 4 a^2 b + 2 a^3 operations on an a
x b matrix, a <= b."""
UPDATES = {
    "sgd": "plain-sgd",
    "momentum": "sgd",
    "adam": "adam",
    "adamw": "adam",
    "adam-fused": "adam-fused",
    "adamw-fused": "adam-fused",
    "lamb": "lamb",
    "adafactor": "adafactor",
    "muon": "muon",
}
"""What a scenario calls an optimizer -> its name in ``UPDATE_PASSES``; AdamW has Adam's passes."""
_PRODUCTS_AGAIN = 0.5
"""Share of the products that selective recomputation computes again: every second one (torchtitan's
checkpointing of operations; `perfsim.compute.recompute`). It counts aten.mm alone: grouped products
of experts, aten._grouped_mm, are on none of its lists, and all are computed again
(torchtitan of October 2025, as huggingface/torchtitan@e43621cf has it:
torchtitan/models/qwen3/infra/parallelize.py, ``_op_sac_save_list``)."""
_CAST_BYTES = 12.0
"""Bytes a parameter that mixed precision moves more: its weight is cast before the forward pass and
its gradient after the backward pass (4 and 2 bytes each)."""


_PADDED_TOKENS = 512
"""Tokens a sample at which the share without padding was fitted."""
_PADDING_POWER = 0.337
"""Of English Wikipedia's tokens, 17 % are padding at 128 and 48 % at 512 tokens a sample
(openreview 3nzKUh9a4M, abstract): 0.83 / 0.52 = 4^0.337."""


class KernelRates(NamedTuple):
    """What prices the kernels of one era on a GPU at a precision.

    ``flops_per_s`` is what each kind of kernel reaches, "wide" a product of fp32 values in any
    precision, "wide attention" one kernel of attention on these; in fp8 and nvfp4, other dense
    products alone have their rate, all else computes in bf16. ``casts`` is how often
    element-wise kernels of transformers move their values, ``conversions`` how often those of a
    convolution change their layout; ``width`` is the bytes of a value. ``or_else`` prices the
    kernels of another precision that libraries may choose: fp32's under tf32. ``cast_bytes`` is
    what a product moves besides for a value of its operands and outputs, where these are cast
    to another type first. ``expert_s`` is the least that the product of one expert takes,
    ``expert_cast_s`` what its own cast adds. ``channel_bytes_per_s`` is what a batch
    normalisation moves of a channel at most. ``load_values`` are the values of an operand that
    tensor cores load at once; 1 where products are padded or run on other cores. ``kept_bytes``
    is the width of the parameters that the optimizer updates, of their gradients and of its
    state.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    multiprocessors: float
    era: str
    execution: Execution
    constants: Constants
    width: float
    casts: float
    conversions: float
    attention: AttentionRate
    wide_attention: AttentionRate
    or_else: KernelRates | None = None
    cast_bytes: float = 0.0
    expert_s: float = 0.0
    expert_cast_s: float = 0.0
    load_values: int = 1
    channel_bytes_per_s: float = inf
    kept_bytes: float = FLOAT

    def one_by_one(self) -> KernelRates:
        """Return the same for a rank's own experts, each of which has its product and its cast.

        Transformer Engine casts the tokens of one expert after the other, and so it multiplies them
        (NVIDIA/TransformerEngine@d0067d0d pytorch/csrc/extensions/cast.cpp, split_quantize).
        """
        cast_s = self.constants.gap_s if self.cast_bytes and not self.execution.captured else 0.0
        return self._replace(expert_s=self.execution.expert_s, expert_cast_s=cast_s)

    def seconds(self, work: Work, batch: int, transformer: bool) -> float:
        """Return how long one kernel takes for a batch [s]."""
        seconds = self._seconds(work, batch, transformer)
        if self.or_else is None or work.kind == "stream":
            return seconds
        return min(seconds, self.or_else._seconds(work, batch, transformer))

    def _seconds(self, work: Work, batch: int, transformer: bool) -> float:
        constants, width = self.constants, self.width
        if work.widened:  # within kernels that are priced as if it had the narrow width
            return (FLOAT - width) * work.values * batch / self.bytes_per_s
        if work.kind == "stream":
            if work.wide:
                moved = FLOAT * (work.values * batch + work.weights)
            else:
                more = self.casts if transformer and not work.counted else 1.0
                moved = width * work.values * batch * more
            moves = self.bytes_per_s
            if work.channels:
                moves = min(moves, work.channels * self.channel_bytes_per_s)
            return moved / moves + constants.gap_s
        attends = work.kind == "attention"
        kind = "wide attention" if attends else "wide"
        rate = self.flops_per_s[kind if work.wide else work.kind]
        width = FLOAT if work.wide else width
        narrow = work.kind == "product" and not work.wide
        if narrow and work.aligned < self.load_values:
            rate = min(rate, _UNALIGNED_FLOPS * work.aligned)
        compute_s = work.flops * batch / rate
        if work.fixed:
            compute_s += work.fixed / self.flops_per_s["fixed"]
        if attends:
            reached = self.wide_attention if work.wide else self.attention
            compute_s *= reached.short(work.tokens, work.causal, work.window)
            compute_s *= reached.narrower(work.head)
        memory_s = width * (work.values * batch + work.weights) / self.bytes_per_s
        convolves = work.kind in ("conv", "winograd")
        power = _CONV_POWER if convolves else _PRODUCT_POWER
        together_s: float = (compute_s**power + memory_s**power) ** (1 / power)
        if convolves:
            together_s += self.conversions * memory_s
        elif narrow:
            together_s += self.cast_bytes * work.values * batch / self.bytes_per_s
            if self.cast_bytes and not self.execution.captured:
                together_s += _COPY_BYTES * work.padded * batch / self.bytes_per_s
            together_s += work.casts * self.expert_cast_s
            together_s = max(together_s, work.experts * self.expert_s)
        wave_s = 2.0 * _TILE**2 * work.inner * self.multiprocessors / rate
        return together_s + constants.wave * wave_s + constants.gap_s


class ModelTime(NamedTuple):
    """An iteration of a model by its kernels [s]: both passes and the update, on GPU and host."""

    passes_s: float
    update_s: float
    host_passes_s: float
    host_update_s: float

    @property
    def device_s(self) -> float:
        """What the GPU works."""
        return self.passes_s + self.update_s

    @property
    def host_s(self) -> float:
        """What the host needs for its launches."""
        return self.host_passes_s + self.host_update_s

    @property
    def later_passes_s(self) -> float:
        """The later of GPU and host, for both passes."""
        return max(self.passes_s, self.host_passes_s)

    @property
    def host_binds(self) -> bool:
        """Whether both passes wait for the host's launches."""
        return self.host_passes_s > self.passes_s

    @property
    def later_update_s(self) -> float:
        """The later of GPU and host, for the update."""
        return max(self.update_s, self.host_update_s)

    @property
    def iteration_s(self) -> float:
        """The later of GPU and host, for both passes and for the update."""
        return self.later_passes_s + self.later_update_s


def kernel_rates(
    device: Device,
    precision: str,
    era: str,
    constants: Constants = FITTED,
    *,
    autocast: bool = True,
    master_weights: bool = True,
) -> KernelRates:
    """Return what prices a model's kernels on a GPU at a precision.

    ``autocast`` says whether mixed precision casts the values of an fp32 model at each operation
    where the era does so; else the model has 16 bits itself. ``master_weights`` says whether the
    optimizer updates parameters in fp32; else all that is kept is as wide as values.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision or there is no such era.
    """
    execution = execution_of(era)
    if not (autocast and precision in AUTOCAST_PRECISIONS):
        execution = execution._replace(autocasts=False)
    half = precision in HALF_PRECISIONS
    plain = "amp-bf16" if precision in OPERAND_BYTES else precision
    large = device.matrix_rate(plain).value
    suffix = "half" if half else precision
    conv, winograd = (getattr(constants, f"{kind}_{suffix}") for kind in ("conv", "winograd"))
    old = device.architecture == "Kepler"
    whole = "fp32" if half and "fp32" in device.rates else plain
    kernel = execution.attention or usual_kernel(device.architecture)
    attention, attention_large = fused_attention(kernel, device, plain)
    wide_attention, wide_large = fused_attention(kernel, device, whole)
    if half:
        # A convolution waits for its data at a rate that halved sums do not touch.
        conv = min(conv / device.fp32_accumulation, constants.product)
        winograd /= device.fp32_accumulation
    clocks = device.sustained.get(plain, 1.0)  # of all that tensor cores run, for seconds on end
    reached = {
        "product": device.matrix_rate(precision).value
        * constants.product
        * device.sustained.get(precision, 1.0),
        "wide": device.matrix_rate(whole).value
        * constants.product
        * device.sustained.get(whole, 1.0),
        "batched": large * constants.batched * clocks,
        # What a product takes beside its operations was measured in bf16: no narrower operand makes
        # it shorter.
        "fixed": large * constants.product * clocks,
        "attention": attention_large * constants.attention * attention.both * clocks,
        "wide attention": wide_large * constants.attention * wide_attention.both * clocks,
        "recurrent": large * constants.recurrent,
        "conv": large * conv,
        "winograd": large * (min(winograd, constants.kepler * conv) if old else winograd),
    }
    width = 2.0 if half else 4.0
    tensor_cores = half or precision == "tf32"
    converted = tensor_cores and not (half and execution.channels_last)
    eager = 1.0 if execution.fused else constants.eager
    if execution.compiled:
        eager = constants.compiled
    return KernelRates(
        reached,
        device.memory_bandwidth.value * constants.memory,
        device.multiprocessors,
        era,
        execution,
        constants,
        width,
        eager * (constants.mixed if half and not execution.fused else 1.0),
        constants.layout if converted else 0.0,
        attention,
        wide_attention,
        kernel_rates(device, "fp32", era, constants) if precision == "tf32" else None,
        _OPERAND_CAST_BYTES.get(precision, 0.0),
        load_values=round(LOAD_BYTES / width) if tensor_cores and not execution.pads else 1,
        channel_bytes_per_s=_CHANNEL_BYTES_PER_S if execution.norms_by_channel else inf,
        kept_bytes=FLOAT if master_weights else width,
    )


def model_time(
    model: str,
    tokens: int | None,
    batch: int,
    rates: KernelRates,
    *,
    update: bool = True,
    optimizer: str | None = None,
    recompute: str = "none",
    experts: bool = False,
    document_tokens: int | None = None,
) -> ModelTime:
    """Return how long an iteration of a network takes on a GPU by its kernels.

    Parameters
    ----------
    tokens : tokens a sample, None for the network's own
    update : whether the optimizer's update belongs to it
    optimizer : a name in ``UPDATE_PASSES``; if None, Adam for transformers and SGD for others
    recompute : what the backward pass computes again (see `perfsim.compute.recompute`)
    experts : whether the host launches all experts one by one, where software does so
    document_tokens : that of `perfsim.models.packed_model`

    Raises
    ------
    RequestError
        If there is no such network, or it takes no tokens.
    """
    return work_time(
        _work(model, tokens, rates, document_tokens),
        batch,
        rates,
        update=update,
        optimizer=optimizer,
        recompute=recompute,
        experts=experts,
    )


def _work(
    model: str, tokens: int | None, rates: KernelRates, document_tokens: int | None
) -> ModelWork:
    """Return the kernels of a network as they run where they are priced so."""
    return model_work(model, tokens, rates.era, rates.execution.autocasts, document_tokens)


def work_time(
    work: ModelWork,
    batch: int,
    rates: KernelRates,
    *,
    update: bool = True,
    optimizer: str | None = None,
    recompute: str = "none",
    experts: bool = False,
) -> ModelTime:
    """Return how long an iteration of a network takes, given its kernels (see ``model_time``)."""
    passes_s = sum_in_order(
        count * _seconds(one, batch, rates, work) for one, count in work.counted
    )
    launched = work.operations
    if modules := modules_again(recompute, rates.execution):
        again = Counter(one for layer in work.layers for one in _kernels_again(layer, modules))
        passes_s += sum_in_order(
            count * _seconds(one, batch, rates, work) for one, count in again.items()
        )
        launched += _FORWARD_LAUNCHES * sum_in_order(
            layer.operations for layer in work.layers if is_again(layer.module, modules)
        )
    elif blocks_again(recompute):
        whole = [work.layers[index] for index in sorted(layers_again(work.blocks, recompute))]
        repeated = Counter(one for layer in whole for one in layer.forward)
        passes_s += sum_in_order(
            count * _seconds(one, batch, rates, work) for one, count in repeated.items()
        )
        launched += _FORWARD_LAUNCHES * sum_in_order(layer.operations for layer in whole)
    elif recompute != "none":
        passes_s += sum_in_order(
            count * _again_s(one, batch, rates, work, recompute) for one, count in work.forward
        )
        launched += _FORWARD_LAUNCHES * launched
    passes_s += cast_time(work.parameters, rates)
    host_s = launched * rates.execution.op_s
    if experts:
        whole_again = layers_again(work.blocks, recompute)
        host_s += sum_in_order(
            experts_host_s(layer, rates.execution, "full" if index in whole_again else recompute)
            for index, layer in enumerate(work.layers)
        )
    if not update:
        return ModelTime(passes_s, 0.0, host_s, 0.0)
    name = optimizer or ("adam" if work.transformer else "sgd")
    passes = update_passes(rates.execution)[name]
    if not rates.execution.updates_by_operation:
        passes *= rates.constants.update_passes
    update_s = rates.kept_bytes * passes * work.parameters / rates.bytes_per_s
    if name == "muon":
        update_s += _newton_schulz_s(work, rates)
    return ModelTime(passes_s, update_s, host_s, work.tensors * rates.execution.tensor_s)


def experts_host_s(layer: LayerWork, execution: Execution, recompute: str) -> float:
    """Return what the host needs to launch the experts of a layer in both passes [s].

    Those that are computed again are launched again.
    """
    forward_s, backward_s = layer.experts_s
    again = recompute == "full" or is_again(layer.module, modules_again(recompute, execution))
    return forward_s + backward_s + forward_s * again


def update_passes(execution: Execution) -> Mapping[str, float]:
    """Return how often an update passes over the parameters, by optimizer, as an era runs it."""
    return PASSES_BY_OPERATION if execution.updates_by_operation else UPDATE_PASSES


def cast_time(parameters: float, rates: KernelRates) -> float:
    """Return what mixed precision takes to cast weights and their gradients in both passes [s].

    Parameters that are kept as wide as they are used are not cast.
    """
    return _CAST_BYTES * parameters / rates.bytes_per_s if rates.width < rates.kept_bytes else 0.0


_WORDS = {
    "product": "matrix products",
    "batched": "attention",
    "attention": "attention",
    "conv": "convolutions",
    "winograd": "convolutions",
    "recurrent": "recurrent products",
    "stream": "passes over memory",
}
"""What a kernel's kind is called in notes."""


def kernel_shares(
    model: str,
    tokens: int | None,
    batch: int,
    rates: KernelRates,
    document_tokens: int | None = None,
) -> dict[str, float]:
    """Return what each kind of kernel takes of both passes on the GPU, the largest share first."""
    work = _work(model, tokens, rates, document_tokens)
    found: dict[str, float] = {}
    for one, count in work.counted:
        word = _WORDS[one.kind]
        found[word] = found.get(word, 0.0) + count * _seconds(one, batch, rates, work)
    total = sum_in_order(found.values())
    return {word: found[word] / total for word in sorted(found, key=lambda name: -found[name])}


_FORWARD_LAUNCHES = 1 / 3
"""The forward pass's share of launches: a backward pass has about twice as many (counted: 0.32 to
0.40 of a block's, tests/scripts/autocast_host.txt; of the host's time it is half there)."""


def _kernels_again(layer: LayerWork, modules: frozenset[str]) -> tuple[Work, ...]:
    """Return the forward kernels of a layer that the backward pass runs again, by its part."""
    if is_again(layer.module, modules):
        return layer.forward
    return layer.activation if "moe_act" in modules else ()


def _again_s(one: Work, batch: int, rates: KernelRates, work: ModelWork, recompute: str) -> float:
    """Return what computing a forward kernel again adds to the backward pass [s]."""
    if recompute == "full":
        return _seconds(one, batch, rates, work)
    if one.kind == "stream":
        return _seconds(one, batch, rates, work)
    if one.kind == "attention":
        return 0.0
    grouped = one.experts and not rates.execution.looped
    return (1.0 if grouped else _PRODUCTS_AGAIN) * _seconds(one, batch, rates, work)


def newton_schulz_flops(shape: Sequence[int]) -> float:
    """Return the operations that orthogonalise a matrix in Muon, or each of a stack of matrices.

    Examples
    --------
    >>> newton_schulz_flops((2, 3)), newton_schulz_flops((4, 3, 2))
    (320.0, 1280.0)
    """
    short, long = sorted(shape[-2:])
    each = 4.0 * short**2 * long + 2.0 * short**3
    return prod(shape[:-2]) * _NEWTON_SCHULZ_STEPS * each


def _newton_schulz_s(work: ModelWork, rates: KernelRates) -> float:
    """Return how long Muon's products take, on one GPU and in the precision of the passes [s]."""
    flops = sum_in_order(count * newton_schulz_flops(shape) for shape, count in work.matrices)
    return flops / rates.flops_per_s["product"]


def _seconds(one: Work, batch: int, rates: KernelRates, work: ModelWork) -> float:
    seconds = rates.seconds(one, batch, work.transformer)
    if not (rates.execution.unpadded and work.tokens and work.padded):
        return seconds
    share: float = min(
        1.0, rates.constants.unpadded * (_PADDED_TOKENS / work.tokens) ** _PADDING_POWER
    )
    return seconds * (share * share if one.kind == "attention" else share)


def layer_times(
    model: str,
    tokens: int | None,
    batch: int,
    rates: KernelRates,
    recompute: str = "none",
    document_tokens: int | None = None,
) -> list[tuple[float, float]]:
    """Return the forward and backward time of each layer of a network on a GPU [s].

    Layers without parameters count to the one before, as in a profile. ``recompute`` and
    ``document_tokens`` are those of `model_time`.
    """
    work = _work(model, tokens, rates, document_tokens)
    return times_of_layers(work, batch, rates, recompute)


def times_of_layers(
    work: ModelWork, batch: int, rates: KernelRates, recompute: str = "none"
) -> list[tuple[float, float]]:
    """Return the forward and backward time of each layer [s], given a network's kernels."""
    known = {one: _seconds(one, batch, rates, work) for one, _ in work.counted}
    again = dict.fromkeys(known, 0.0)
    modules, some = modules_again(recompute, rates.execution), layers_again(work.blocks, recompute)
    if recompute != "none" and not (modules or some):
        again |= {one: _again_s(one, batch, rates, work, recompute) for one, _ in work.forward}
    last = work.layers[-1]

    def again_s(layer: LayerWork, whole: bool) -> float:
        if modules:
            return sum_in_order(known[one] for one in _kernels_again(layer, modules))
        if whole:
            return sum_in_order(known[one] for one in layer.forward)
        return 0.0 if layer is last else sum_in_order(again.get(one, 0.0) for one in layer.forward)

    seconds: dict[tuple[int, bool], tuple[float, float]] = {}
    kinds = [(place, index in some) for index, place in enumerate(work.places)]
    for kind, layer in zip(kinds, work.layers, strict=True):
        if kind not in seconds:
            forward_s = sum_in_order(known[one] for one in layer.forward)
            backward_s = sum_in_order(known[one] for one in layer.backward)
            seconds[kind] = forward_s, backward_s + again_s(layer, kind[1])
    return [seconds[kind] for kind in kinds]
