"""How each software era runs a model: passes over memory, launches, and what it fuses.

``EXECUTIONS`` has one for every era of ``software.ERAS``.
"""

from __future__ import annotations

from typing import NamedTuple

from perfsim.compute.software import (
    BLOCKS,
    CHANNELS_LAST,
    DTENSOR,
    EFFICIENT,
    LIGER,
    LOOP,
    MULTIHEAD,
    WITH,
    software_era,
    stated_kernel,
)
from perfsim.models.layers import Scores

__all__ = ["EXECUTIONS", "Execution", "Passes", "execution_of"]


class Passes(NamedTuple):
    """How often a layer's values go through memory, as (forward, backward) reads and writes.

    ``norm`` is a batch normalisation, ``layernorm`` a layer normalisation, ``activation`` a ReLU or
    GELU, ``add`` an addition, a concatenation or a pooling, ``dropout`` a dropout, ``scores`` the
    scale, mask and softmax of unfused attention, ``bias`` the bias of a convolution, ``rmsnorm`` a
    normalisation by the root mean square, ``rotary`` the turning of queries and keys by position,
    ``feedforward`` the activation behind a dense layer, ``dropped_scores`` a dropout of attention's
    scores.
    """

    norm: tuple[float, float]
    layernorm: tuple[float, float]
    activation: tuple[float, float]
    add: tuple[float, float]
    dropout: tuple[float, float]
    scores: tuple[float, float]
    bias: tuple[float, float]
    rmsnorm: tuple[float, float] = (2, 4)
    rotary: tuple[float, float] = (2, 2)
    feedforward: tuple[float, float] = (2, 3)
    dropped_scores: tuple[float, float] = (2.8, 6.1)


_EAGER = Passes((3, 5), (3.8, 7.2), (2, 3), (3, 2), (2.8, 6.1), (6.5, 6), (2, 1), (16, 25), (8, 8))
"""One kernel an operation: batch normalisation reads twice and writes once, its backward reads four
times; the rest as the fp32 eager kernels of seven GPUs show (multiples of the least traffic:
layer normalisation 1.9 and 3.6, dropout 1.4 and 3.05, softmax 1.1 and 3.0; fitted to
sitar-lab/NeuSight@6945927d scripts/asplos/label, MIT). RMSNorm and rotary positions are derived
from the operations of Hugging Face's LlamaRMSNorm and apply_rotary_pos_emb: cast to fp32, square,
mean, multiply, cast back, weigh read and write 32 bytes a value, 50 backward; multiply, negate,
join, multiply and add 16 each way."""

_FUSED = Passes(
    *((2, 4), (2, 4), (0, 1), (1, 1), (0, 1), (3, 4), (0, 1)),
    feedforward=(0, 1),
    dropped_scores=(0, 1),
)
"""Normalisation, activation and addition in one kernel, as cuDNN's fused batch normalisation (NHWC)
and XLA write them: each value is read once more for the statistics."""


_OWN_KERNELS = _FUSED._replace(feedforward=(2, 3))
"""As fused, but for the activation behind a dense layer: a kernel of its own, as inductor writes
it, Megatron's fused bias and GELU, and SwiGLU."""


_OWN_SCORES = {"scores": (2, 3), "dropped_scores": _EAGER.dropped_scores}
"""Scores in Megatron-LM before FlashAttention: scale, mask and softmax in one kernel that reads and
writes, backward reads its output and the gradient and writes; dropout in PyTorch's own
(megatron/fused_kernels/scaled_upper_triang_masked_softmax.h, model/transformer.py of 2021)."""


_TUNED = _EAGER._replace(norm=_FUSED.norm, activation=_FUSED.activation, add=_FUSED.add)
"""Convolution networks fused, transformers one kernel an operation, as XLA runs NVIDIA's
examples."""


_AS_A_MASK: tuple[Scores, ...] = ("", "relative", "alibi")
"""What code does with scores that a mask of numbers can do for it: nothing, or adding a bias."""


class Execution(NamedTuple):
    """How an era runs a model on the GPU, and what its host needs for a launch.

    ``op_s`` is the host's time for a launched operation, ``tensor_s`` that for a parameter tensor
    in the optimizer [s]; ``op_share`` the share of a layer's operations that are launched one by
    one. ``flash`` says whether attention is one kernel, ``attention`` which (``""`` for the
    architecture's newest), ``gathers`` whether pre-training computes
    the output layer for masked tokens only, ``unpadded`` whether padding is skipped,
    ``channels_last`` whether convolutions get their maps in the layout of tensor cores, ``tuned``
    whether vendors tuned input and launches until the GPU binds, ``compiled`` whether a compiler
    fused what it could, which is less than what is written by hand, ``autocasts`` whether mixed
    precision casts the values of an fp32 model at each operation, ``fused_loss`` whether one
    kernel computes the loss (llm-foundry's, by flash-attn's cross-entropy), ``expert_s`` the least
    that the product of one expert takes among those of others [s], ``eager_s`` the host's time for
    an operation that is left to eager PyTorch around experts. ``updates_by_operation`` says
    whether each operation of an update is a kernel, as in eager PyTorch: of a tensor, in PyTorch 2
    of many. ``core_again`` says whether selective recomputation computes attention alone again, as
    Megatron-LM's does (Korthikanti et al., arXiv 2205.05198), and not every second product of a
    block, as torchtitan's. ``blocking_sends`` says whether a stage of plain 1F1B computes nothing
    while it sends to another, as in Megatron-LM, which then waits for the device (NVIDIA/
    Megatron-LM@d98e8a64 megatron/core/pipeline_parallel/p2p_communication.py, ``batch_p2p_sync``).
    ``stated`` says that the kernel of attention was asked for by name. ``looped`` says that a loop
    in Python runs experts one by one, ``blocks`` that blocks alone are compiled, so that the loss
    is single operations, ``liger`` that Liger's kernels run norms, positions and gates,
    ``dtensor`` that the host runs tensor parallelism by DTensor, ``multihead`` that attention is in
    ``nn.MultiheadAttention``. ``registers`` says that FSDP is Megatron's, whose guide advises to
    register its buffers with NCCL (``--use-nccl-ub``).
    """

    passes: Passes
    op_s: float
    tensor_s: float
    op_share: float = 1.0
    flash: bool = False
    attention: str = "flash2"
    gathers: bool = False
    unpadded: bool = False
    channels_last: bool = False
    tuned: bool = False
    compiled: bool = False
    fused_loss: bool = False
    expert_s: float = 0.0
    eager_s: float = 0.0
    updates_by_operation: bool = False
    autocasts: bool = False
    core_again: bool = False
    blocking_sends: bool = False
    stated: bool = False
    looped: bool = False
    blocks: bool = False
    liger: bool = False
    dtensor: bool = False
    multihead: bool = False
    registers: bool = False

    def in_one_kernel(self, scores: Scores) -> bool:
        """Tell whether attention with such scores is one kernel.

        Eager PyTorch's, scaled_dot_product_attention, neither caps scores nor has sinks, so that
        transformers falls back to single operations; a kernel that is asked for does. Where code
        adds a bias to scores, a compiler fuses what it does between products. PyTorch's kernel
        takes such a bias where the software is asked to hand it one.
        """
        if self.masked:
            return scores in _AS_A_MASK
        compiled = self.fused and scores not in ("relative", "alibi")
        return self.flash and (not scores or compiled or self.tuned or self.stated)

    @property
    def masked(self) -> bool:
        """Whether attention gets a mask or a bias, and with it PyTorch's memory-efficient kernel.

        It computes all scores, whatever the mask says, and gets keys and values that are repeated
        for each head of queries.
        """
        return self.attention == EFFICIENT

    @property
    def recomputes_attention(self) -> bool:
        """Whether selective recomputation computes attention alone again: always its scores."""
        return self.core_again or not self.flash

    @property
    def ring_sums_in_fp32(self) -> bool:
        """Whether ring attention adds up the gradients of keys and values in fp32 on their way.

        PyTorch's context parallelism does (2.13, torch/distributed/tensor/experimental/
        _context_parallel/_attention.py, convert_to_f32), as ring-flash-attention
        (zigzag_ring_flash_attn.py). TransformerEngine, which vendors' software runs, sends what
        keys and values are.
        """
        return not self.tuned

    @property
    def captured(self) -> bool:
        """Whether all is captured in a graph, of kernels made for this network."""
        return self.op_share == 0.0

    @property
    def norms_by_channel(self) -> bool:
        """Whether a batch normalisation runs one block of threads a channel.

        cuDNN's and PyTorch's kernels for maps whose channels lie apart do (NCHW; ATen/native/cuda/
        Normalization.cuh); those for channels last and those that a compiler writes do not.
        """
        return not (self.channels_last or self.fused)

    @property
    def pads(self) -> bool:
        """Whether the sides of products are padded to what tensor cores load at once.

        Vendors pad vocabularies, and inductor its products where that pays (PyTorch 2,
        torch/_inductor/fx_passes/pad_mm.py). Sources disagree: 50,304 columns for 50,257 made
        compiled GPT-2 13.7 % faster on an A100 (rasbt/LLMs-from-scratch,
        ch05/10_llm-training-speed), as if nothing were padded; on an H100 it is 22 % slower than
        with padding and 19 % faster than without (tests/scripts/end_to_end/one_gpu.txt).
        """
        return self.tuned or self.compiled

    @property
    def loss_in_one_kernel(self) -> bool:
        """Whether one kernel computes the loss."""
        return (self.fused and not self.blocks) or self.fused_loss

    @property
    def adds_in_products(self) -> bool:
        """Whether products add to the gradients of earlier micro-batches, as Megatron-LM's do."""
        return self.tuned and self.flash

    @property
    def keeps_fp8(self) -> bool:
        """Whether dense layers in fp8 keep narrow copies, as those of Transformer Engine do."""
        return self.tuned and self.flash

    @property
    def loss_by_operation(self) -> bool:
        """Whether the loss of eager PyTorch is operations that each pass over all outputs."""
        return self.updates_by_operation and not self.loss_in_one_kernel

    @property
    def fused(self) -> bool:
        """Whether element-wise work of transformers runs in fused kernels."""
        return self.passes.layernorm == _FUSED.layernorm


_TORCH_2_S = 41e-6
"""What the host needs for an operation of eager PyTorch 2 (`EXECUTIONS` says of which source)."""

EXECUTIONS: dict[str, Execution] = {
    "mxnet-2017": Execution(_EAGER, 35e-6, 85e-6),
    "tensorflow-2017": Execution(_EAGER, 25e-6, 20e-6, gathers=True),
    "torch1.1": Execution(_EAGER, 55e-6, 75e-6, updates_by_operation=True),
    "torch1.8": Execution(_EAGER, 55e-6, 75e-6, updates_by_operation=True, autocasts=True),
    "graph-2020": Execution(_TUNED, 25e-6, 20e-6, gathers=True, channels_last=True, tuned=True),
    "ngc-2020": Execution(_EAGER, 20e-6, 5e-6, gathers=True, channels_last=True, tuned=True),
    "torch1.12": Execution(_EAGER, 48e-6, 20e-6, updates_by_operation=True, autocasts=True),
    "composer-2023": Execution(
        _EAGER,
        20e-6,
        5e-6,
        flash=True,
        attention="triton",
        fused_loss=True,
        updates_by_operation=True,
    ),
    "torch2": Execution(
        _EAGER, _TORCH_2_S, 5e-6, flash=True, updates_by_operation=True, autocasts=True
    ),
    "megatron": Execution(
        _OWN_KERNELS,
        _TORCH_2_S,
        5e-6,
        op_share=0.5,
        flash=True,
        attention="",
        tuned=True,
        expert_s=33e-6,
        eager_s=_TORCH_2_S,
        core_again=True,
        blocking_sends=True,
        registers=True,
    ),
    "torch2-compiled": Execution(
        _OWN_KERNELS,
        8e-6,
        2e-6,
        op_share=1 / 3,
        flash=True,
        compiled=True,
        updates_by_operation=True,
    ),
    "mlperf": Execution(
        _FUSED,
        0.0,
        0.0,
        op_share=0.0,
        flash=True,
        attention="",
        gathers=True,
        unpadded=True,
        channels_last=True,
        tuned=True,
        core_again=True,
        blocking_sends=True,
        registers=True,
    ),
}
"""How each era runs a model, by its name.

Host times are fitted where a source shows them. MXNet: ResNet-50 and Inception-v3 at batch 1 on a
V100, 29 and 46 ms for 371 and 665 operations and 161 and 292 tensors (apache/mxnet@054aeee).
PyTorch of 2020: six networks at batch 12 on an A100, 16 to 133 ms for 140 to 1407 operations
(ryujaehun/pytorch-gpu-benchmark@3f47a9e). PyTorch 2: the 41 us an operation of BERT-Large at
batch 2 on an H100 (sitar-lab/NeuSight@6945927d); left out, BERT-base and BERT-Large under
autocast, which wait for their hosts on another H100, take 35 and 40 us
(tests/scripts/end_to_end/one_gpu.txt). The rest is derived: PyTorch 1.12 lies between those two;
optimizers of PyTorch 2 launch for all tensors at once; Megatron's Python launches what it does not
fuse as eager PyTorch does (a dense layer takes its host 74 us forward, one of Transformer Engine
115 to 140: NVIDIA/TransformerEngine pull request 1191; eager PyTorch's 13 to 37: issue 2053);
inductor launches a kernel in 7 to 9 us (meta-pytorch/tritonbench pull request 1017), three
operations in one; a captured graph is one launch. Products of 8 experts that are launched one by
one take 0.267 ms on a Blackwell GPU, of 128 tokens each, that 0.069 ms are enough for (NVIDIA/
TransformerEngine pull request 3134)."""


def execution_of(era: str) -> Execution:
    """Return how an era runs a model, with what may follow its name (`software.software_named`).

    Raises
    ------
    RequestError
        If there is no such era; the message gives the nearest name.

    Examples
    --------
    >>> execution_of("mlperf").op_share, execution_of("mlperf+unfused").flash
    (0.0, False)
    >>> execution_of("torch2+flash2+loop").looped
    True
    >>> execution_of("torch2-compiled+blocks").loss_in_one_kernel
    False
    >>> execution_of("torch2+channels-last").channels_last, execution_of("torch2").channels_last
    (True, False)
    """
    known, words = EXECUTIONS[software_era(era).name], era.split(WITH)[1:]
    known = known._replace(
        looped=LOOP in words,
        blocks=BLOCKS in words,
        liger=LIGER in words,
        dtensor=DTENSOR in words,
        multihead=MULTIHEAD in words,
        channels_last=known.channels_last or CHANNELS_LAST in words,
    )
    kernel = stated_kernel(era)
    if not kernel:
        return known
    if kernel == "unfused":
        by_hand = known.tuned and known.fused
        passes = known.passes._replace(**_OWN_SCORES) if by_hand else known.passes
        return known._replace(flash=False, passes=passes)
    return known._replace(flash=True, attention=kernel, stated=True)
