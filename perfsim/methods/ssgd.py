"""Synchronous SGD: dense gradients, averaged by one all-reduce a bucket."""

from typing import ClassVar

from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.dense_buckets import DenseBuckets


class Ssgd(DdpBuffers, DenseBuckets):
    """Sends every bucket dense by an all-reduce as soon as it is ready, in backward order.

    It is also found as "ddp". With overlap this is wait-free backpropagation with tensor fusion
    (PyTorch DDP's rule by default). Without `overlap` it sends after the backward pass; with
    `fusion` whole this is BSP with one buffer. Where ``gradients`` are "fp16" the weights
    themselves are cast to half. The backward pass then makes gradients in half, and the optimizer
    keeps masters in fp32 (MXNet's float16 networks with multi_precision, Apex's O2). PyTorch's amp
    keeps gradients in fp32. The method runs no kernels of its own.

    DDP also broadcasts the model's buffers from rank 0 before the forward pass, which waits for
    them, once an iteration, unless broadcast_buffers is off. Buffers are what a model keeps and
    does not train: running means of batch normalisation, tables of rotary positions.
    ``buffers_mib`` says how large they are; by default there are none. So do its hooks (`fp16`,
    `bf16`, `powersgd`, `postlocalsgd`).

    Bytes a rank: 2 (P-1)/P x 4 a parameter (ring), half of it where ``gradients`` are "fp16", and
    (P-1)/P of the buffers. Memory: DDP's buckets, as large as all gradients, which stay beside
    them. Left out: the time of copies of gradients into and out of the buckets, which DDP makes
    unless gradient_as_bucket_view is set (4 passes, 2 launches a tensor); copies of buffers into
    their message and back; normalisations, which stay in fp32 where the rest is cast (0.2 % of
    ResNet-50).
    """

    summary: ClassVar[str] = "dense all-reduce of every bucket (S-SGD; DDP when overlapped)"
    citation: ClassVar[str] = (
        "Li et al. 2020, PyTorch Distributed, VLDB 13(12), section 3.2; wait-free"
        " backpropagation: Zhang et al. 2017, Poseidon, ATC, section 3.1; gradients in fp16:"
        " Micikevicius et al. 2018, Mixed Precision Training, ICLR, section 3.1; buffers:"
        " pytorch/pytorch torch/nn/parallel/distributed.py, _pre_forward"
    )
