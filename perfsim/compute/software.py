"""Software eras: which framework, of which time, runs the kernels and launches them.

A scenario names one era (``software``) and every kernel and launch is priced for it, the model's
and the method's alike; attention may run by another kernel (``megatron+flash2``), experts in a loop
(``torch2+loop``), norms, positions and gates by Liger's kernels (``torch2+liger``), tensor
parallelism by DTensor (``torch2+dtensor``), convolutions on maps whose channels lie together
(``torch2+channels-last``), attention in ``nn.MultiheadAttention`` (``torch2+mha``). Measured rows
use the era of their source. Points of kernels say the software that they were measured with;
`eras_of` reads the eras from that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from perfsim.errors import RequestError, own_name, unknown

__all__ = [
    "ATTENTION_SINCE",
    "BLOCKS",
    "CHANNELS_LAST",
    "DTENSOR",
    "EFFICIENT",
    "ERAS",
    "LIGER",
    "LOOP",
    "MULTIHEAD",
    "NEWEST",
    "WITH",
    "SoftwareEra",
    "eras_of",
    "is_newest",
    "may_loop",
    "may_mask",
    "nearest_era",
    "neighbour_eras",
    "software_era",
    "software_named",
    "stated_kernel",
    "without",
]

Version = tuple[int, ...]


class SoftwareEra(NamedTuple):
    """One era of training software: its name, what it means, and the year of its releases.

    ``framework`` and ``first``, its first version, tell to which era a measurement belongs; an era
    ends where the next one of its framework begins. Eras without a framework are ways to run
    software of that year; no measurement is theirs by its version.
    """

    name: str
    title: str
    year: int
    framework: str = ""
    first: Version = ()


ERAS: dict[str, SoftwareEra] = {
    era.name: era
    for era in (
        SoftwareEra("mxnet-2017", "MXNet 1.x, symbolic executor, 2017 to 2019", 2017, "mxnet"),
        SoftwareEra(
            "tensorflow-2017", "TensorFlow 1.x, graph mode, 2017 to 2020", 2017, "tensorflow"
        ),
        SoftwareEra("torch1.1", "PyTorch before 1.6, eager, 2018 to 2020", 2019, "pytorch"),
        SoftwareEra(
            "torch1.8", "PyTorch 1.6 to 1.10, eager, 2020 to 2021", 2021, "pytorch", (1, 6)
        ),
        SoftwareEra(
            "graph-2020",
            "fused graphs: TensorFlow with XLA, NVIDIA's MXNet, PaddlePaddle, 2020 to 2023",
            2021,
        ),
        SoftwareEra(
            "ngc-2020",
            "PyTorch with apex and channels last, as NVIDIA's examples, 2020 to 2023",
            2021,
        ),
        SoftwareEra("torch1.12", "PyTorch 1.11 to 1.13, eager, 2022", 2022, "pytorch", (1, 11)),
        SoftwareEra(
            "composer-2023",
            "PyTorch 2.0 with FlashAttention in Triton, as Composer and llm-foundry of 2023",
            2023,
        ),
        SoftwareEra("torch2", "PyTorch 2, eager", 2024, "pytorch", (2,)),
        SoftwareEra(
            "megatron",
            "PyTorch 2 with the fused kernels of Megatron, Transformer Engine or flash-attn",
            2024,
        ),
        SoftwareEra("torch2-compiled", "PyTorch 2 with torch.compile", 2024),
        SoftwareEra("mlperf", "captured in CUDA graphs and fused, as MLPerf submitters tune", 2024),
    )
}
"""Every era by the name that ``software`` takes, oldest first."""

NEWEST = "torch2"
"""The default: what `pip install torch` runs today without further work."""


def software_era(name: str) -> SoftwareEra:
    """Return an era by its name, without the kernel of attention that may follow it.

    Raises
    ------
    RequestError
        If there is no such era; the message gives the nearest name.

    Examples
    --------
    >>> software_era("torch2").year, software_era("megatron+unfused").name
    (2024, 'megatron')
    """
    era = name.partition(WITH)[0]
    if era not in ERAS:
        raise unknown("software", era, ERAS)
    return ERAS[era]


WITH = "+"
"""Stands between an era and the kernel that attention runs in it: ``megatron+unfused``."""

EFFICIENT = "efficient"
"""PyTorch's memory-efficient attention (CUTLASS, once of xformers). scaled_dot_product_attention
takes it for fp32 values, and in 16 bits where it is given a mask or a bias (``attn_mask``), which
FlashAttention refuses; as a word it says the latter, and may follow eras of PyTorch 2 that call it
(in 2.9 and from 2.11 on PyTorch takes cuDNN's on Hopper and the B200: `attention.MASKED`)."""

ATTENTION_SINCE = {
    "unfused": 0,
    "flash2": 2023,
    "flash3": 2024,
    "flash4": 2024,
    "cudnn": 2023,
    "aiter": 2024,
    EFFICIENT: 2023,
}
"""Kernels of attention that may follow an era, and the year of the first software that can have
them: products with passes between; FlashAttention-2 (Dao, arXiv 2307.08691); FlashAttention-3 (Shah
et al., arXiv 2407.08608), on Hopper; FlashAttention-4 (of 2026, arXiv 2603.05451; eras of 2024 are
what runs today), on Blackwell; cuDNN's fused attention; AITER's, AMD's kernels in assembly;
PyTorch's for 16 bits with a mask. Without one, attention is what the era has."""


_FLASH = re.compile(r"^(?:fa|flash[-_ ]?att(?:entio)?n)[-_ ]?(\d)$", re.IGNORECASE)
"""How others write FlashAttention: FA3, flash_attn_3, flash_attention_3 (transformers)."""

LOOP = "loop"
"""May follow torch2: a loop in Python runs experts one by one, as in transformers before 5.0.

Since 5.0 grouped products run all of them where PyTorch is 2.9 or newer and the GPU an A100 or
newer; ``experts_implementation="eager"`` is the loop (transformers 5.24.0, modeling_utils.py,
``get_correct_experts_implementation``; integrations/moe.py, ``_can_use_grouped_mm``)."""


BLOCKS = "blocks"
"""May follow torch2-compiled: blocks alone are compiled, output layer and loss run eagerly.

So prime-rl compiles (PrimeIntellect-ai/prime-rl@559b4477 src/prime_rl/trainer/model.py), and
torchtitan where ``compile.components`` has no "loss", as before it had components
(benchmarks/llama3_h100_202412_torchtitan.md). torchtitan's default compiles the loss too, as
torchtune does; Hugging Face's Trainer and nanoGPT compile a model with its loss."""

LIGER = "liger"
"""May follow torch2: Liger's kernels run norms, positions and gates (linkedin/Liger-Kernel, which
trl, ms-swift, axolotl and LLaMA-Factory have as an option). Its fused linear cross-entropy is what
``chunked_loss`` says."""

DTENSOR = "dtensor"
"""May follow torch2: tensor parallelism by PyTorch's DTensor, run eagerly, as torchtitan's without
compiling, transformers' ``tp_plan`` and FSDP2 with ``parallelize_module``. AutoTP (DeepSpeed) and
Megatron-LM divide plain tensors; a compiler takes DTensor out of what runs."""

CHANNELS_LAST = "channels-last"
"""May follow PyTorch since 1.6: convolutions get their maps with the channels of a point together,
as ``model.to(memory_format=torch.channels_last)`` and inputs made so, the layout of tensor cores
(pytorch.org, "Channels Last Memory Format in PyTorch"). Without it a convolution in half precision
changes the layout of what it reads and writes."""

MULTIHEAD = "mha"
"""May follow torch2: attention is in ``nn.MultiheadAttention`` without weights, as torchvision's
ViT and ``nn.TransformerEncoderLayer`` have it, which copies queries, keys, values and what
attention writes. timm, transformers and models of one's own call the kernel themselves."""

_WAYS = {
    LOOP: ((NEWEST,), "experts run in a loop in"),
    LIGER: ((NEWEST,), "Liger's kernels run in"),
    DTENSOR: ((NEWEST,), "DTensor is run eagerly in"),
    BLOCKS: (("torch2-compiled",), "blocks alone are compiled in"),
    MULTIHEAD: ((NEWEST,), "nn.MultiheadAttention is run eagerly in"),
    CHANNELS_LAST: (
        ("torch1.8", "torch1.12", NEWEST, "torch2-compiled"),
        "maps have another order of their values in",
    ),
}
"""Words for how a model runs -> the eras that they may follow, and what there is in these alone."""


_MASK_ERAS = (NEWEST, "torch2-compiled")
"""Eras whose attention is PyTorch's scaled_dot_product_attention of 2.1 or newer, the first whose
memory-efficient kernel takes a mask in training (pytorch/pytorch pull request 104310)."""


_IN_SOME_ERAS = _WAYS | {EFFICIENT: (_MASK_ERAS, "PyTorch's kernel gets a mask in")}
"""Words that may follow some eras alone, as `_WAYS` has them."""


def may_mask(software: str) -> bool:
    """Tell whether PyTorch's kernel for a mask may run attention in an era.

    Examples
    --------
    >>> may_mask("torch2+liger"), may_mask("megatron")
    (True, False)
    """
    return software_era(software).name in _MASK_ERAS


def may_loop(software: str) -> bool:
    """Tell whether experts may run in a loop in an era: in eager PyTorch 2.

    Examples
    --------
    >>> may_loop("torch2+flash2"), may_loop("megatron")
    (True, False)
    """
    return software_era(software).name == NEWEST


def without(way: str, software: str) -> str:
    """Return software that does not run a model in a way (`LOOP`, `BLOCKS`, ...), else the same.

    Examples
    --------
    >>> without(LOOP, "torch2+flash2+loop"), without(BLOCKS, "megatron")
    ('torch2+flash2', 'megatron')
    >>> without(LOOP, "torch2+loop+liger")
    'torch2+liger'
    """
    return WITH.join(word for word in software.split(WITH) if word != way)


def stated_kernel(software: str) -> str:
    """Return the kernel of attention that software names, "" where it names none.

    Examples
    --------
    >>> stated_kernel("torch2+flash2+loop"), stated_kernel("torch2-compiled+blocks")
    ('flash2', '')
    """
    return next((word for word in software.split(WITH)[1:] if word not in _WAYS), "")


def software_named(text: str) -> str:
    """Return software as it is asked for: an era, and a kernel of attention behind it, in any case.

    ``loop``, ``liger``, ``dtensor``, ``blocks``, ``mha``, ``channels-last`` may stand behind both.

    Raises
    ------
    RequestError
        If there is no such era or kernel, or the era is older than the kernel.

    Examples
    --------
    >>> software_named("Torch2"), software_named("megatron+flash2")
    ('torch2', 'megatron+flash2')
    >>> software_named("torch2+Loop"), software_named("torch2+loop+flash2")
    ('torch2+loop', 'torch2+flash2+loop')
    >>> software_named("torch2+flash_attention_3"), software_named("megatron+FA2")
    ('torch2+flash3', 'megatron+flash2')
    >>> software_named("torch2-compiled+blocks+flash2")
    'torch2-compiled+flash2+blocks'
    >>> software_named("torch1.12+channels_last")
    'torch1.12+channels-last'
    >>> software_named("torch2+Liger+flash2"), software_named("torch2+liger+loop")
    ('torch2+flash2+liger', 'torch2+loop+liger')
    >>> software_named("torch2+liger+Efficient")
    'torch2+efficient+liger'
    """
    named, *words = text.split(WITH)
    era = software_era(own_name(named, ERAS))
    known = (*ATTENTION_SINCE, *_WAYS)
    elsewhere = {word for word, (eras, _) in _IN_SOME_ERAS.items() if era.name not in eras}
    allowed = [word for word in known if word not in elsewhere]
    ways = [word for word in allowed if word in _WAYS]
    words = [own_name(_FLASH.sub(r"flash\1", word), known) for word in words]
    for word in words:
        if word in elsewhere:
            eras, what = _IN_SOME_ERAS[word]
            why = f"{what} {', '.join(eras)} only; leave {WITH}{word} out."
            raise RequestError("software", why, value=text)
        if word not in allowed:
            raise unknown("software", word, allowed).or_else(f"an era alone, such as {era.name}.")
        if era.year < ATTENTION_SINCE.get(word, 0):
            since = ATTENTION_SINCE[word]
            why = f"{word} is of {since}, {era.name} of {era.year}; leave {WITH}{word} out."
            raise RequestError("software", why, value=text)
    kernels = [word for word in words if word not in ways]
    if len(kernels) > 1 or len({*words}) < len(words):
        once = "".join(f", and {way} once" for way in ways)
        why = f"one kernel of attention may follow {era.name}{once}."
        raise RequestError("software", why, value=text)
    return WITH.join([era.name, *kernels, *(way for way in ways if way in words)])


_SOFTWARE = re.compile(
    r"(?P<framework>pytorch|mxnet|tensorflow)\b(?: (?P<how>before|since))?"
    r" ?(?P<version>\d{1,4}(?:\.\d{1,4})*)?",
    re.ASCII | re.IGNORECASE,
)


@cache
def eras_of(software: str) -> tuple[str, ...]:
    """Return the eras that software belongs to, by the framework and version that it names first.

    "PyTorch 1.8" is one era, "PyTorch before 1.11" and "PyTorch since 1.12" are several. Software
    without a framework or without its version (a library, a copy, a server) holds in every era, and
    () is returned.

    Examples
    --------
    >>> eras_of("PyTorch 1.8.1, CUDA 11.0"), eras_of("PyTorch before 1.11, measured in 1.1")
    (('torch1.8',), ('torch1.1', 'torch1.8'))
    >>> eras_of("PyTorch since 1.12"), eras_of("cuSZp 3")
    (('torch1.12', 'torch2'), ())
    """
    match = _SOFTWARE.search(software)
    if match is None or (match["version"] is None and match["framework"].lower() == "pytorch"):
        return ()
    mine = [era for era in ERAS.values() if era.framework == match["framework"].lower()]
    version = tuple(int(part) for part in (match["version"] or "0").split(".") if part)
    ends: list[Version] = [era.first for era in mine[1:]] + [(10**6,)]
    if match["how"] == "before":
        return tuple(era.name for era in mine if era.first < version)
    found = (era.name for era, end in zip(mine, ends, strict=True) if end > version)
    return tuple(found) if match["how"] == "since" else (next(found),)


def is_newest(software: str) -> bool:
    """Tell whether an era runs the newest framework, in whatever way."""
    return software_era(software).year >= ERAS[NEWEST].year


def nearest_era(software: str, measured: Iterable[str]) -> str:
    """Return the era nearest in time of those measured; of two as near, the older.

    Examples
    --------
    >>> nearest_era("torch1.12", ["torch1.1", "torch1.8", "torch2"])
    'torch1.8'
    """
    year = software_era(software).year
    order = list(ERAS)
    return min(
        measured,
        key=lambda name: (abs(ERAS[name].year - year), name != software, order.index(name)),
    )


def neighbour_eras(software: str) -> list[str]:
    """Return the eras of eager PyTorch just before and just after an era, where there are any.

    Examples
    --------
    >>> neighbour_eras("torch1.8"), neighbour_eras("torch2"), neighbour_eras("mlperf")
    (['torch1.1', 'torch1.12'], ['torch1.12'], ['torch1.12'])
    """
    year = software_era(software).year
    eager = [era for era in ERAS.values() if era.framework == "pytorch"]
    before = [era.name for era in eager if era.year < year]
    after = [era.name for era in eager if era.year > year]
    return before[-1:] + after[:1]
