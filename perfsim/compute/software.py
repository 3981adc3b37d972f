"""Software eras: which framework, of which time, runs the kernels and launches them.

A scenario names one era (``software``) and every kernel and launch is priced for it, the model's
and the method's alike. Measured rows use the era of their source.
"""

from __future__ import annotations

from typing import NamedTuple

from perfsim.errors import unknown

__all__ = ["ERAS", "NEWEST", "Passes", "SoftwareEra", "software_era"]


class Passes(NamedTuple):
    """How often a layer's values go through memory, as (forward, backward) reads and writes.

    ``norm`` is a batch normalisation, ``layernorm`` a layer normalisation, ``activation`` a ReLU or
    GELU, ``add`` an addition, a concatenation or a pooling, ``dropout`` a dropout, ``scores`` the
    softmax, mask and dropout of unfused attention, ``bias`` the bias of a convolution.
    """

    norm: tuple[float, float]
    layernorm: tuple[float, float]
    activation: tuple[float, float]
    add: tuple[float, float]
    dropout: tuple[float, float]
    scores: tuple[float, float]
    bias: tuple[float, float]


_EAGER = Passes((3, 5), (3.8, 7.2), (2, 3), (3, 2), (2.8, 6.1), (9, 12), (2, 1))
"""One kernel an operation: batch normalisation reads twice and writes once, its backward reads four
times; the rest as the fp32 eager kernels of seven GPUs show (multiples of the least traffic:
layer normalisation 1.9 and 3.6, dropout 1.4 and 3.05, softmax 1.1 and 3.0; fitted to
sitar-lab/NeuSight@6945927d scripts/asplos/label, MIT)."""

_FUSED = Passes((2, 4), (2, 4), (0, 1), (1, 1), (0, 1), (5, 8), (0, 1))
"""Normalisation, activation and addition in one kernel, as cuDNN's fused batch normalisation (NHWC)
and XLA write them: each value is read once more for the statistics."""


_TUNED = _EAGER._replace(norm=_FUSED.norm, activation=_FUSED.activation, add=_FUSED.add)
"""Convolution networks fused, transformers one kernel an operation, as NVIDIA's examples run."""


class SoftwareEra(NamedTuple):
    """One era of training software.

    ``op_s`` is the host's time for a launched operation, ``tensor_s`` that for a parameter tensor
    in the optimizer [s]; ``op_share`` the share of a layer's operations that are launched one by
    one. ``flash`` says whether attention is one kernel, ``gathers`` whether pre-training computes
    the output layer for masked tokens only, ``unpadded`` whether padding is skipped,
    ``channels_last`` whether convolutions get their maps in the layout of tensor cores.
    """

    name: str
    title: str
    year: int
    passes: Passes
    op_s: float
    tensor_s: float
    op_share: float = 1.0
    flash: bool = False
    gathers: bool = False
    unpadded: bool = False
    channels_last: bool = False

    @property
    def fused(self) -> bool:
        """Whether element-wise work of transformers runs in fused kernels."""
        return self.passes is _FUSED


ERAS: dict[str, SoftwareEra] = {
    era.name: era
    for era in (
        SoftwareEra("mxnet-2017", "MXNet 1.x, 2017 to 2019", 2017, _EAGER, 35e-6, 85e-6),
        SoftwareEra(
            "tensorflow-2017",
            "TensorFlow 1.x, graph mode, 2017 to 2020",
            2017,
            _EAGER,
            25e-6,
            20e-6,
            gathers=True,
        ),
        SoftwareEra(
            "torch1.1", "PyTorch before 1.6, eager, 2018 to 2020", 2019, _EAGER, 55e-6, 75e-6
        ),
        SoftwareEra(
            "torch1.8", "PyTorch 1.6 to 1.10, eager, 2020 to 2021", 2021, _EAGER, 55e-6, 75e-6
        ),
        SoftwareEra(
            "tensorflow-xla",
            "TensorFlow 1.15 and 2 with XLA, 2020 to 2022",
            2021,
            _TUNED,
            25e-6,
            20e-6,
            gathers=True,
            channels_last=True,
        ),
        SoftwareEra(
            "ngc",
            "PyTorch with apex and channels last, as NVIDIA's examples of 2020 to 2023",
            2021,
            _TUNED,
            20e-6,
            5e-6,
            gathers=True,
            channels_last=True,
        ),
        SoftwareEra("torch1.12", "PyTorch 1.11 to 1.13, eager, 2022", 2022, _EAGER, 30e-6, 20e-6),
        SoftwareEra("torch2", "PyTorch 2, eager", 2024, _EAGER, 20e-6, 5e-6, flash=True),
        SoftwareEra(
            "torch2-compiled",
            "PyTorch 2 with torch.compile",
            2024,
            _FUSED,
            8e-6,
            2e-6,
            op_share=1 / 3,
            flash=True,
        ),
        SoftwareEra(
            "mlperf",
            "captured in CUDA graphs and fused, as MLPerf submitters tune",
            2024,
            _FUSED,
            0.0,
            0.0,
            op_share=0.0,
            flash=True,
            gathers=True,
            unpadded=True,
            channels_last=True,
        ),
    )
}
"""Every era by the name that ``software`` takes, oldest first.

Host times are fitted where a source shows them. MXNet: ResNet-50 and Inception-v3 at batch 1 on a
V100, 29 and 46 ms for 371 and 665 operations and 161 and 292 tensors (apache/mxnet@054aeee). PyTorch
of 2020: six networks at batch 12 on an A100, 16 to 133 ms for 140 to 1407 operations
(ryujaehun/pytorch-gpu-benchmark@3f47a9e). The rest is derived: PyTorch 2 lies between the 8 us of an
eager addition's submission (flagos-ai/Torch-FL pull request 27) and the 41 us an operation of
BERT-Large at batch 2 on an H100 (sitar-lab/NeuSight@6945927d), and its optimizers launch for all
tensors at once; inductor launches a kernel in 7 to 9 us (meta-pytorch/tritonbench pull request
1017), three operations in one; a captured graph is one launch."""

NEWEST = "torch2"
"""The default: what `pip install torch` runs today without further work."""


def software_era(name: str) -> SoftwareEra:
    """Return an era by its name.

    Raises
    ------
    RequestError
        If there is no such era; the message gives the nearest name.

    Examples
    --------
    >>> software_era("torch2").year
    2024
    """
    if name not in ERAS:
        raise unknown("software", name, ERAS)
    return ERAS[name]
