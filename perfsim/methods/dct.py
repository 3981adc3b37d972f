"""DCT: gradients above a threshold that is found anew only once in a thousand iterations."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, OnlyWith, Round
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.sparsify import Selection, above, exact, gathered, kept, served
from perfsim.methods.building.tensor_slices import each_way


class Dct(Method):
    """Sends each layer's values above a reused threshold to parameter servers; parameters return.

    The hook works layer by layer on the compute stream. The error is added (3 passes), magnitudes
    are taken (2) and compared with the threshold, and indices are found (1.75). The gradient is
    masked (2.25), and the masked part is subtracted for the next error (3). The values to send are
    gathered. Every ``lifespan`` iterations exact Top-k finds the threshold first. Values and
    indices (8 bytes) are pushed to servers, which update the model. Every rank pulls the
    parameters, dense. Each GPU is a worker that pushes and pulls by itself, so the GPUs of a node
    share its NICs. No sum inside a node is known, since there is no code.

    Bytes a rank, one GPU a node: (P-1)/P x (8 k + 4 a parameter), or 8 k with P further servers.
    Memory: the error, 4 bytes a parameter.
    Left out: DCT-MP, the paper's other half, which thresholds activations and their gradients
    between the parts of a split model (no model is split here, none has embedding tables;
    `perfsim.pipeline` holds its messages); asynchronous training with several threads a rank, which
    the paper runs on CPUs; the servers' work (every rank updates with the values that return); the
    drift from k of the count above an old threshold (the paper: a threshold by 26 % at most).

    The paper sorts magnitudes for a threshold; PyTorch's Top-k takes its place here. The paper
    gives no format of a sparse message. ``exchange`` "all_gather": all ranks get all pairs, as with
    other sparsifiers without servers. ``servers``: machines without GPUs, whose NICs receive pushes
    while they send pulls; with none, a server on each node. ``lifespan``: 1000 in the paper, which
    finds 10000 no faster. ``density``: 5 % in its study of the lifespan, 1 % with DCT-MP.

    The paper says 100 times fewer bytes. This default sends 1.8 times fewer than dense pushes and
    pulls: 8 k + 4 n bytes against (4 + 4) n, at 5 %. The difference is the dense return and the
    density. Pairs alone at 1 %, 8 k bytes, are 100 times fewer: ``pull`` none with ``density`` 0.01
    leaves the return out and so counts the gradients that workers push. That this is the paper's
    count is derived from its number; how its servers would return parameters in few bytes is not
    known here, as there is no code, so the default keeps the return that a parameter server needs.
    """

    summary: ClassVar[str] = "thresholds kept for 1000 iterations, sparse push, dense pull (DCT-DP)"
    citation: ClassVar[str] = (
        "Gupta et al. 2021, KDD; arXiv 2010.08899, Fast Distributed Training of Deep Neural"
        " Networks: Dynamic Communication Thresholding, Algorithm 1, figure 1, section 3.3; no code"
    )
    family: ClassVar[str] = "sparsification"
    levels: ClassVar[str] = (
        "inside a node nothing is added up; across nodes each GPU pushes and pulls by itself;"
        " with exchange all_gather all ranks are one group"
    )
    wire: ClassVar[str] = (
        "8 * k + ((P - 1) * (4 * n if pull == 'parameters' else 0) - 8 * k) * max(P - servers, 0)"
        " / (P * P + min(servers, P) * (P - 2)) if exchange == 'servers' else (P - 1) * 8 * k"
    )
    fusion: ClassVar[str] = "none"

    density: float = Field(0.05, gt=0, le=1, description="share of values kept, k/n")
    lifespan: int = Field(1000, ge=1, le=10**6, description="iterations that a threshold lasts")
    exchange: Literal["servers", "all_gather"] = Field(
        "servers", description="servers or all ranks add up"
    )
    pull: Annotated[Literal["parameters", "none"], OnlyWith(exchange="servers")] = Field(
        "parameters", description="what servers return: all parameters, or left out of the count"
    )
    servers: int = Field(0, ge=0, le=10**5, description="server machines without GPUs")
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the threshold search (if due), the masking, and the exchange."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        due = (exact(n, self.kernel, world.software),) if iteration % self.lifespan == 0 else ()
        masked = elementwise(n, 3 + 2 + 2.25 + 3, 4), above(n), elementwise(k, 2)
        compress = Compute((*due, *masked), "compress")
        if self.exchange == "all_gather":
            return [compress, *gathered(n, k, world.ranks)]
        there_bytes = float((FLOAT + INDEX) * k)
        back_bytes = fp32_bytes(bucket.gradients)
        sends = each_way(*served(there_bytes, back_bytes, world, self.servers))
        return [compress, *(sends if self.pull == "parameters" else sends[:1])]

    def rounds(self) -> list[Round]:
        """Return an iteration that finds thresholds, and those that reuse them."""
        rest = [Round((1,), self.lifespan - 1)] if self.lifespan > 1 else []
        return [Round((0,)), *rest]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return 8 bytes a kept value."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the error: one fp32 value a parameter."""
        return fp32_bytes(gradients)
