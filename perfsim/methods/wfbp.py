"""Wait-free backpropagation: one all-reduce a tensor, during the backward pass."""

from typing import ClassVar

from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.update_after_wait import UpdateAfterWait


class Wfbp(UpdateAfterWait, DenseBuckets):
    """Sends every gradient tensor by an all-reduce of its own as soon as it is ready.

    Tensors go in backward order, one after the other, beside the rest of the backward pass; the
    update waits for all. It runs as `ssgd`, but nothing is fused, so that each tensor pays a call's
    latency. The method runs no kernels of its own. Bytes a rank: 2 (P-1)/P x 4 a parameter (ring).
    Memory: none more. Left out: what the library does for each tensor before it sends (Horovod's
    coordinator first negotiates it with all ranks).

    Poseidon pairs WFBP with parameter servers; the form with all-reduces is that of the code cited
    (threshold 0, Horovod's cycle set to 0).
    """

    summary: ClassVar[str] = "one all-reduce a tensor, overlapped, nothing fused (WFBP)"
    citation: ClassVar[str] = (
        "Zhang et al. 2017, Poseidon, USENIX ATC, section 3.1; code"
        " HKBU-HPML/ddl-benchmarks@30de09bc benchmarks.py (wfbp), mgwfbp/imagenet_benchmark.py"
    )
    fusion: ClassVar[str] = "none"
