"""MG-WFBP: wait-free backpropagation with gradients merged by the cost of a message."""

from typing import ClassVar

from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.update_after_wait import UpdateAfterWait


class Mgwfbp(UpdateAfterWait, DenseBuckets):
    """Sends gradients merged where waiting for the next one costs less than a call's latency.

    Each merged message is sent by one dense all-reduce, as soon as its last gradient is ready, in
    backward order and beside the backward pass. What to merge is decided before training, from the
    tensors' ready times and the time of an all-reduce (`fusion` mgwfbp). The method runs no kernels
    of its own. Bytes a rank: 2 (P-1)/P x 4 a parameter (ring). Memory: the merged buffers; beyond
    the gradients, none from one iteration to the next. Left out: the copy of each gradient into its
    buffer (2 passes, a launch a tensor), the host's wait for the compute stream before each
    message, and the profiling run that measures ready times.

    The paper's implementation takes alpha and beta of an all-reduce from a table or from a fit at
    start-up. The later benchmark code takes them from a table only, and also merges every message
    below 8192 elements. Here the rule sees the network's own cost, unless the fusion options
    merge_alpha, merge_beta and merge_below=32KiB say otherwise.
    """

    summary: ClassVar[str] = "gradients merged by a cost rule, then all-reduced (MG-WFBP)"
    citation: ClassVar[str] = (
        "Shi, Chu & Li 2019, MG-WFBP, INFOCOM (arXiv 1811.11141), Algorithm 1; code"
        " HKBU-HPML/MG-WFBP@5b8ad54a distributed_optimizer.py,"
        " HKBU-HPML/ddl-benchmarks@30de09bc mgwfbp/hv_distributed_optimizer.py"
    )
    fusion: ClassVar[str] = "mgwfbp"
    decides: ClassVar[bool] = True
