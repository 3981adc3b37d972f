"""What is measured on one GPU: whole iterations with perfsim's question, and single kernels."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

__all__ = ["ITERATIONS", "KERNELS", "PROFILED", "Iteration", "kernel_shapes"]

LLAMA_1B = "transformer:layers=16,hidden=2048,heads=32,kv=8,ffn=8192,vocab=128256,tied=yes"


@dataclass(frozen=True)
class Iteration:
    """One model's training step, as it is run (``makes``) and as perfsim is asked (``model``)."""

    model: str
    makes: str
    batch: int
    precision: str
    sequence: int | None = None
    optimizer: str = "sgd"
    compiled: bool = False

    @property
    def profile(self) -> str:
        """What the model's profile is called."""
        return "llama-1b" if self.model == LLAMA_1B else self.model

    @property
    def name(self) -> str:
        """In words that are one file's name."""
        words = (self.profile, self.precision, f"b{self.batch}")
        words += (f"s{self.sequence}",) if self.sequence else ()
        return "-".join((*words, "compiled") if self.compiled else words)

    def question(self, gpu: str) -> dict[str, Any]:
        """Return the scenario of one such GPU."""
        asked = {
            "model": self.model,
            "gpus": 1,
            "gpu": gpu,
            "batch": self.batch,
            "precision": self.precision,
            "optimizer": "momentum" if self.optimizer == "sgd" else self.optimizer,
            "method": "ssgd",
            "net": "100gbe",
            "input": "synthetic",
        }
        asked |= {"software": "torch2-compiled" if self.compiled else "torch2"}
        return asked | ({"seq": self.sequence} if self.sequence else {})


def _cnn(model: str, makes: str, batch: int, precision: str) -> Iteration:
    return Iteration(model, f"torchvision:{makes}", batch, precision)


def _text(model: str, makes: str, batch: int, sequence: int, **more: Any) -> Iteration:
    usual = {"precision": "amp-bf16", "optimizer": "adamw"}
    return Iteration(model, makes, batch, sequence=sequence, **{**usual, **more})


_OWN = "support.one_gpu.models"
ITERATIONS = (
    _cnn("resnet50", "resnet50", 64, "fp32"),
    _cnn("resnet50", "resnet50", 128, "tf32"),
    _cnn("resnet50", "resnet50", 128, "amp-fp16"),
    _cnn("resnet50", "resnet50", 256, "amp-bf16"),
    _cnn("resnet152", "resnet152", 128, "amp-bf16"),
    _cnn("vgg16", "vgg16", 128, "tf32"),
    _cnn("densenet201", "densenet201", 128, "amp-bf16"),
    _cnn("inception-v3", "inception_v3", 128, "amp-fp16"),
    _cnn("alexnet", "alexnet", 512, "tf32"),
    _cnn("vit-b16", "vit_b_16", 128, "amp-bf16"),
    _cnn("vit-l16", "vit_l_16", 64, "amp-bf16"),
    _text("bert-base", "transformers:bert-base-uncased", 64, 128),
    _text("bert-large", "transformers:bert-large-uncased", 16, 512),
    _text("bert-large", "transformers:bert-large-uncased", 16, 128, precision="fp32"),
    _text("gpt2", "transformers:gpt2", 8, 1024),
    _text("gpt2", "transformers:gpt2", 8, 1024, precision="tf32"),
    _text("gpt2-medium", f"{_OWN}:gpt2_medium", 8, 1024),
    _text("gpt2-xl", f"{_OWN}:gpt2_xl", 4, 1024),
    _text("opt-1.3b", f"{_OWN}:opt_1_3b", 4, 2048),
    _text(LLAMA_1B, f"{_OWN}:llama_1b", 4, 2048),
    _text(LLAMA_1B, f"{_OWN}:llama_1b", 1, 8192),
    _text("gpt2", "transformers:gpt2", 8, 1024, compiled=True),
    _text(LLAMA_1B, f"{_OWN}:llama_1b", 4, 2048, compiled=True),
    _text("bert-large", "transformers:bert-large-uncased", 16, 512, compiled=True),
    Iteration("resnet50", "torchvision:resnet50", 256, "amp-bf16", compiled=True),
)

PROFILED = (
    "resnet50-amp-bf16-b256",
    "vit-b16-amp-bf16-b128",
    "bert-large-amp-bf16-b16-s512",
    "gpt2-amp-bf16-b8-s1024",
    "llama-1b-amp-bf16-b4-s2048",
)
"""Iterations whose kernels are listed besides, to see where a prediction is off."""

KERNELS = ("product", "attention", "norm", "softmax", "embedding", "stream")
_SHAPES = 40
_TALL = (256, 32768)
_WIDE = (512, 16384)
"""Rows of a product (tokens), and its other sides."""


def kernel_shapes(kernel: str) -> list[dict[str, Any]]:
    """Return the shapes of one kind of kernel, the same in every run."""
    return sorted(_MAKERS[kernel](), key=lambda shape: shape.get("backward", False))


def _products() -> list[dict[str, Any]]:
    chosen = random.Random(7)

    def side(low: int, high: int) -> int:
        """Return a multiple of 64, log-uniform."""
        return 64 * round(low * (high / low) ** chosen.random() / 64)

    shapes = []
    for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16"):
        for _ in range(_SHAPES):
            sizes = {"m": side(*_TALL), "n": side(*_WIDE), "k": side(*_WIDE)}
            shapes.append({"precision": precision, **sizes})
    return shapes


def _attention() -> list[dict[str, Any]]:
    shapes = []
    for kernel in ("cudnn", "flash2"):
        for batch, tokens, heads, width in (
            (64, 128, 12, 64),
            (16, 512, 16, 64),
            (8, 1024, 12, 64),
            (4, 2048, 32, 64),
            (8, 2048, 16, 128),
            (4, 4096, 32, 128),
            (1, 8192, 32, 128),
            (1, 16384, 16, 128),
        ):
            sizes = {"batch": batch, "tokens": tokens, "heads": heads, "head_dim": width}
            for causal in (True, False):
                for backward in (False, True):
                    shapes.append(
                        {**sizes, "causal": causal, "backward": backward, "kernel": kernel}
                    )
    return shapes


def _norms() -> list[dict[str, Any]]:
    return [
        {"rows": rows, "width": width, "backward": backward, "kernel": kernel}
        for kernel in ("eager", "compiled")
        for rows, width in ((2048, 1024), (8192, 768), (8192, 2048), (16384, 4096), (4096, 8192))
        for backward in (False, True)
    ]


def _softmax() -> list[dict[str, Any]]:
    return [
        {"rows": rows, "width": width, "backward": backward}
        for rows, width in ((4096, 32000), (8192, 50257), (8192, 128256))
        for backward in (False, True)
    ]


def _embeddings() -> list[dict[str, Any]]:
    return [
        {"tokens": tokens, "width": width, "vocabulary": words, "backward": backward}
        for tokens, width, words in ((8192, 768, 50257), (8192, 1024, 30522), (8192, 2048, 128256))
        for backward in (False, True)
    ]


def _streams() -> list[dict[str, Any]]:
    return [
        {"elements": 2**power, "op": op} for op in ("add", "gelu") for power in range(16, 29, 2)
    ]


_MAKERS = {
    "product": _products,
    "attention": _attention,
    "norm": _norms,
    "softmax": _softmax,
    "embedding": _embeddings,
    "stream": _streams,
}
