"""What is trained on emulated hosts and predicted: models, schemes, and clusters of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["FULL", "MODELS", "SCHEMES", "SHORT", "Scheme", "Setting"]

MODELS = {
    "resnet50": ("resnet50.v100.fp32.b32.csv", 10.0, 32),
    "vgg16-cifar": ("vgg16-cifar.p102-100.fp32.b128.csv", 4.0, 128),
    "resnet18-cifar": ("resnet18-cifar.v100.fp32.b128.csv", 8.0, 128),
}
"""Profile that is slept through, times slower; its batch."""


@dataclass(frozen=True)
class Scheme:
    """A case as the emulated job runs it, and as perfsim is asked."""

    name: str
    runs: dict[str, Any]
    asks: dict[str, Any]


def _dense(method: str, bucket: int, asked: str, **more: Any) -> Scheme:
    runs = {"method": method, "bucket_mb": bucket, **({"options": more} if more else {})}
    return Scheme(f"{method} {bucket} MB", runs, {"method": asked, "bucket": f"{bucket}MiB"})


SCHEMES = {
    "ddp1": _dense("ddp", 1, "ssgd"),
    "ddp5": _dense("ddp", 5, "ssgd"),
    "ddp25": _dense("ddp", 25, "ssgd"),
    "fp16": _dense("fp16", 25, "fp16"),
    "topk": Scheme(
        "topk 1 %",
        {"method": "topk", "bucket_mb": 25, "options": {"density": 0.01}},
        {"method": "topk", "options": {"density": 0.01, "kernel": "old"}},
    ),
    "powersgd": Scheme(
        "powersgd rank 4",
        {"method": "powersgd", "bucket_mb": 25, "options": {"rank": 4}},
        {"method": "powersgd", "options": {"rank": 4}},
    ),
    "acpsgd": Scheme(
        "acpsgd rank 4",
        {"method": "acpsgd", "bucket_mb": 25, "options": {"rank": 4}},
        {"method": "acpsgd", "options": {"rank": 4, "orthogonalisation": "qr"}},
    ),
    "cpsgd": Scheme(
        "cpsgd every 4",
        {"method": "cpsgd", "bucket_mb": 25, "options": {"interval": 4}},
        {"method": "cpsgd", "options": {"interval": 4}},
    ),
    "dear": Scheme(
        "dear 25 MB",
        {"method": "dear", "bucket_mb": 25},
        {"method": "dear", "fusion": "size", "bucket": "25MiB"},
    ),
}


@dataclass
class Setting:
    """One cluster, one model, and the schemes run there; ``net`` is what predicts it.

    ``narrower`` predicts it from a network calibrated at so many times its rate.
    """

    hosts: int
    rate: str
    model: str
    schemes: tuple[str, ...]
    seen: bool = False
    net: str = ""
    narrower: float = 1.0
    calibrated: str = ""

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.hosts} hosts, {self.rate}, {self.model}"


ALL = tuple(SCHEMES)
FULL = (
    Setting(4, "1gbit", "resnet50", ("ddp1", "ddp5", "ddp25"), seen=True),
    Setting(4, "1gbit", "resnet50", ("fp16", "topk", "powersgd", "acpsgd", "cpsgd", "dear")),
    Setting(8, "1gbit", "resnet50", ALL),
    Setting(4, "1gbit", "resnet18-cifar", ALL),
    Setting(4, "500mbit", "resnet50", ALL, narrower=2.0, calibrated="1gbit"),
    Setting(4, "100mbit", "vgg16-cifar", ("ddp5", "ddp25", "topk", "powersgd", "acpsgd", "cpsgd")),
    Setting(8, "100mbit", "vgg16-cifar", ("ddp25", "topk", "powersgd", "acpsgd", "cpsgd")),
)
SHORT = (Setting(2, "1gbit", "resnet18-cifar", ("ddp25", "topk", "acpsgd"), seen=True),)
