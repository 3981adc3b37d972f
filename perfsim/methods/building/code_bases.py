"""Code bases: the training code that a method was published in, and how it launches the update.

A host that waits for the exchanges launches the update onto a GPU with an empty queue. The update
then takes at least as long as its launches, one tensor after the other. Where streams wait for each
other instead, the host is far ahead and the GPU sees no launch. So each method names its code base,
and the launches follow from the model's optimizer and the host (``eager_launch``).

Evidence, derived and not measured by itself: BERT-Large with AdamW through Horovod on V100 takes
0.15 to 0.18 ms a tensor more than its passes and its network explain, the same on 4 to 32 GPUs and
for 4 or 398 messages; ResNet-50 with plain SGD 0.00 to 0.01 ms (HKBU-HPML/ddl-benchmarks@30de09bc,
results of 2020-05-29). The launches charged here, 8 of 10.1 us, are half of the former: what the
host does besides in AdamW is not charged.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BLUEFOG",
    "BYTEPS",
    "COCKTAILSGD",
    "DDP",
    "DEEPSPEED",
    "DEEPSPEED_LAMB",
    "GTOPK",
    "HOROVOD",
    "HOROVOD_FORK",
    "CodeBase",
]


class CodeBase(NamedTuple):
    """One code base: its name, whether its host waits before the update, and where it says so."""

    name: str
    waits: bool
    source: str


DDP = CodeBase(
    "PyTorch's own hooks and streams",
    False,
    "PyTorch's notes on CUDA semantics and on DDP: the wait for an NCCL collective blocks the"
    " stream, not the host (general knowledge; no file was read for it)",
)

HOROVOD = CodeBase(
    "Horovod's optimizer",
    True,
    "horovod/horovod@2626dc87 horovod/torch/optimizer.py, step; mpi_ops.py, synchronize",
)

HOROVOD_FORK = CodeBase(
    "HKBU's fork of Horovod's optimizer",
    True,
    "hclhkbu/GaussianK-SGD@0de3eeb distributed_optimizer.py and HKBU-HPML/ddl-benchmarks@565964a"
    " mgwfbp/hv_distributed_optimizer.py, synchronize and step; shyhuai/kfac_pytorch@1dacea76 and"
    " lzhangbv/kfac_pytorch@c45acb8f kfac/, whose step follows optimizer.synchronize()",
)

GTOPK = CodeBase(
    "HKBU's gTop-k trainer",
    True,
    "HKBU-HPML/gtopkssgd@6f57343f allreducer.py; Shigangli/Ok-Topk@9763dcc VGG/allreducer.py:"
    " messages by mpi4py from host memory, for which the host waits",
)

BYTEPS = CodeBase(
    "BytePS's optimizer",
    True,
    "bytedance/byteps@f5df52fe byteps/torch/__init__.py, step and synchronize",
)

BLUEFOG = CodeBase(
    "Bluefog's optimizer",
    True,
    "Bluefog-Lib/bluefog@9ee376a7 bluefog/torch/optimizers.py, step",
)

DEEPSPEED = CodeBase(
    "DeepSpeed's engine and FP16_Optimizer",
    False,
    "deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/fp16/fused_optimizer.py: a group of"
    " parameters is one tensor, so that the update has few launches",
)

DEEPSPEED_LAMB = CodeBase(
    "DeepSpeed's 1-bit LAMB",
    True,
    "deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/fp16/onebit/lamb.py, step: the host reads"
    " the coefficients of each tensor (item)",
)

COCKTAILSGD = CodeBase(
    "CocktailSGD's trainer",
    True,
    "DS3Lab/CocktailSGD@4819ed75 data_parallel/dist_dp_cocktail_sgd.py, optimizer_step: it joins"
    " the thread that exchanges",
)
