"""CPSGD: parameters averaged once in a constant number of iterations."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Job,
    JobStage,
    Method,
    MethodContext,
    OnlyWith,
    OptionError,
    Round,
)
from perfsim.methods.bsp import Bsp
from perfsim.methods.building.averaging import NOTHING_BETWEEN, averages, periodic
from perfsim.methods.building.flat_buffer import packed_buffer, written_back
from perfsim.methods.qsgd import Qsgd
from perfsim.methods.randk import Randk
from perfsim.methods.randk_maxnorm import RandkMaxnorm


class Cpsgd(Method):
    """Updates locally; every ``interval`` iterations all ranks exchange once.

    ``exchange`` "parameters" averages the models. After the update they are concatenated and
    divided by P (4 passes, 2 launches) and all-reduced as one buffer; the next forward pass waits.
    `fusion` none averages tensor by tensor.

    "gradients" is what vineeths96's code calls local steps. After the backward pass of every
    interval's last iteration the gradients are packed (2 passes), all-reduced and added to the
    cleared ones (4 passes); the update waits. ``compress`` then sends them by QSGD's max-norm
    all-reduce, by Rand-k with a shared seed or by Rand-k max-norm, with those methods' kernels.

    The default interval is that of PyTorch's documentation.

    Bytes a rank: 2 (P-1)/P x 4 / interval a parameter.
    Memory: none from one iteration to the next; a copy of the model while averaging.
    Left out: averaging of batch-norm statistics; Rand-k's indices, which that code looks up on the
    CPU.
    """

    summary: ClassVar[str] = "models averaged every so many iterations (CPSGD)"
    citation: ClassVar[str] = (
        "Jiang & Agrawal 2020, Adaptive Periodic Averaging, arXiv 2007.06134, abstract; code"
        " pytorch/pytorch@03e7531c torch/distributed/algorithms/model_averaging; gradients:"
        " vineeths96/Gradient-Compression@e5b61b1e trainer.py and reducer.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = NOTHING_BETWEEN
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n / interval"
    fusion: ClassVar[str] = "whole"
    interval_option: ClassVar[str] = "interval"
    published_intervals: ClassVar[Mapping[int, str]] = {4: "PyTorch's documentation"}

    interval: int = Field(4, ge=1, le=10**6, description="iterations from one exchange to the next")
    exchange: Literal["parameters", "gradients"] = Field(
        "parameters", description="what is averaged"
    )
    compress: Literal["none", "qsgd", "randk", "randk_maxnorm"] = Field(
        "none", description="how exchanged gradients are compressed"
    )
    bits: Annotated[int, OnlyWith(compress="qsgd")] = Field(
        8, ge=2, le=16, description="bits a value of qsgd, sign included"
    )
    second_bits: Annotated[int, OnlyWith(compress="qsgd")] = Field(
        0, ge=0, le=16, description="bits of the finer of two scales of qsgd; 0 for one scale"
    )
    values: Annotated[int, OnlyWith(compress="randk_maxnorm")] = Field(
        10000, ge=1, description="values that randk_maxnorm sends"
    )
    two_scale: Annotated[bool, OnlyWith(compress="randk_maxnorm")] = Field(
        False, description="two scales and a mask that says which (randk_maxnorm)"
    )
    density: Annotated[float, OnlyWith(compress="randk")] = Field(
        0.001, gt=0, le=1, description="share of values that randk keeps"
    )

    @model_validator(mode="after")
    def _gradients_are_compressed(self) -> Self:
        if self.compress != "none" and self.exchange == "parameters":
            raise OptionError("compress", self.compress, "is for gradients: set exchange=gradients")
        return self

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the averaging after the update, or the exchange of gradients before it."""
        if self.exchange == "parameters":
            return averages(buckets)
        return super().jobs(buckets, world, iteration)

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the packing, the exchange of gradients, and the unpacking."""
        if self.compress == "none":
            return Bsp.model_validate({"write_back": True}).stages(bucket, world, iteration)
        if self.compress == "qsgd":
            bits = {"bits": self.bits, "second_bits": self.second_bits}
            qsgd = Qsgd.model_validate({"exchange": "all_reduce", **bits})
            return qsgd.stages(bucket, world, iteration)
        if self.compress == "randk_maxnorm":
            options = {"values": self.values, "two_scale": self.two_scale}
            return RandkMaxnorm.model_validate(options).stages(bucket, world, iteration)
        randk = Randk.model_validate({"density": self.density})
        tensors, n = len(bucket.gradients), bucket.elements
        return [
            Compute(packed_buffer(n, tensors), "compress", earliest="backward"),
            *randk.stages(bucket, world, iteration),
            Compute(written_back(n, tensors, world), "decompress", earliest="backward"),
        ]

    def rounds(self) -> list[Round]:
        """Return the local iterations and the one that exchanges."""
        return periodic(self.interval)
