"""What the oracle asks. A question is one line: fields of a scenario, or a command.

A prediction is ``field=value ...``, values as in JSON, else strings; ``options.NAME`` and
``fusion_options.NAME`` are those of the method and of the fusion policy. Every name that
``perfsim list`` knows is asked for, so that what ships later is found to have no stored answer.
The commands are in ``oracle_commands.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from scripts.oracle_commands import Names, commands

__all__ = ["GROUPS", "Question", "all_questions"]


@dataclass(frozen=True)
class Question:
    """One question; ``through`` is how it is asked: predict, compare (of Python), or command."""

    group: str
    text: str
    through: str

    @property
    def name(self) -> str:
        """The name that ``--only`` and the differences use."""
        return f"{self.group}/{self.text}"


SETTINGS = [
    "model=vgg16 gpus=8 net=1gbe gpus_per_node=1",
    "model=resnet50 gpus=64 net=ib100 gpus_per_node=8 intra_net=nvlink-v100",
    "model=resnet152 gpus=32 net=hkbu-2080ti-10gbe gpu=rtx2080ti",
    "model=bert-base gpus=16 net=25gbe gpu=v100-pcie gpus_per_node=8",
    "model=lstm-ptb gpus=6 net=alps-gh200-slingshot11 gpus_per_node=3 algorithm=tree",
    "model=resnet50-cifar gpus=16 net=10Gbit/s,50us library=gloo straggler=1:1.5 background=0.3",
]
"""Where every method is asked for: slow, fast, measured, a transformer, often refused, troubled."""

FUSED = [
    "model=resnet50 gpus=32 net=10gbe",
    "model=vgg16 gpus=16 net=1gbe method=topk",
    "model=bert-large gpus=32 net=ib100 gpu=v100-pcie method=acpsgd",
    "model=densenet201 gpus=8 net=hkbu-v100-10gbe method=fp16 bucket=4MiB",
]
"""Where every fusion policy is asked for."""

CONNECTED = [
    "model=resnet50 gpus=16 net=",
    "model=vgg16 gpus=32 gpus_per_node=8 method=topk net=",
    "model=resnet50 gpus=8 gpus_per_node=8 intra_net=",
]
"""Where every network is asked for; one that lies only inside nodes is refused between them."""

DRIVEN = [
    f"model={model} gpus=16 method={method}"
    for model in ("resnet50", "vgg16", "bert-base")
    for method in ("ssgd", "dgc", "spd_kfac")
]
"""Where every GPU is asked for."""

TRAINED = ["", " gpu=rtx2080ti", " method=powersgd net=1gbe", " gpu=a100 method=d_kfac"]
"""How every model is asked for."""

CONDITIONED = [
    "model=resnet50 gpus=32 net=10gbe",
    "model=vgg16 gpus=16 net=1gbe method=dgc",
    "model=resnet50 gpus=16 net=hkbu-2080ti-10gbe method=spd_kfac",
]
"""Where every condition is asked for."""

CONDITIONS = [
    "straggler=1:1.5",
    "straggler=2:1.2 background=0.2",
    'straggler=["1:1.5","2:2"]',
    "jitter=0.05",
    "jitter=0.1 seed=7",
    "background=0.3",
    "background=0.9",
    "beside=what_if_dgc_1gbe",
    "beside=mgwfbp_or_ddp",
    'beside=["Shi2020_mgwfbp_10gbe_16","what_if_powersgd_10gbe"]',
    "gpus_per_node=1",
    "gpus_per_node=8",
    "gpus_per_node=2 intra_net=nvlink-v100",
    "placement=[3,5,8]",
    "placement=[4,12]",
    "placement=[8,8,16]",
    "oversubscription=2",
    "oversubscription=8 gpus_per_node=8",
    "single_gpu=253ms",
    "single_gpu=126samples/s",
    "single_gpu_kernels=10ms",
    "overlap=false",
    "overlap_slowdown=1.2",
    "overlap=false straggler=1:2",
    "precision=amp-fp16",
    "precision=tf32 gpu=rtx3090",
    "precision=amp-bf16 gpu=a100",
    "batch=8",
    "batch=128",
    "bucket=1MiB",
    "bucket=100MB",
    "fusion=threshold fusion_options.cycle_time=2ms",
    "algorithm=ring",
    "algorithm=tree",
    "algorithm=hierarchical",
    "algorithm=torus2d",
    "algorithm=doubling",
    "algorithm=halving_doubling",
    "protocol=ll",
    "protocol=ll128",
    "protocol=simple",
    "library=nccl",
    "library=gloo",
    "library=mpi",
    "library=mpi algorithm=ring",
    "intra_net=nvlink-v100",
    "intra_net=10GB/s,5us",
    "net=100Gbit/s,5us",
]

OPTIONS = [
    "method=topk options.density=0.01",
    "method=topk options.density=0.0001 options.exchange=all_gather",
    "method=dgc options.density=0.01 options.exchange=all_gather",
    "method=dgc options.value_bytes=2 options.index_bytes=4",
    "method=randk options.density=0.05",
    "method=gtopk options.density=0.001",
    "method=oktopk options.density=0.01",
    "method=sidco options.density=0.01",
    "method=powersgd options.rank=1",
    "method=powersgd options.rank=32",
    "method=acpsgd options.rank=8",
    "method=qsgd options.bits=2",
    "method=localsgd options.interval=16",
    "method=postlocalsgd options.interval=4",
    "method=d_kfac options.inverse_interval=10",
    "method=kaisa options.fraction=0.5",
    "method=spd_kfac options.cache=false",
    "method=omgs options.density=0.01",
    "method=bytescheduler options.partition=4000000",
    "method=byteps options.van=zmq",
    "gpu=v100:16,p100:16",
    "gpu=v100:8,p100:24 method=dgc",
    "gpu=v100:16,titan-xp:16 method=powersgd",
    "gpu=p100:16,v100:16 net=1gbe method=topk",
]
"""Options of methods, and several types of GPU, on one setting."""

OPTION_SETTING = "model=resnet50 gpus=32 net=10gbe"

SIZES = [
    f"model={model} gpus={gpus} net={net} method={method}"
    for model, method in [("resnet50", "ssgd"), ("bert-base", "dgc"), ("vgg16", "mgwfbp")]
    for gpus in (1, 2, 4, 8, 12, 48, 128, 1024)
    for net in ("1gbe", "ib100")
]

REFUSED = [
    "model=resnet5O gpus=8",
    "model=resnet50 gpus=8 net=11gbe",
    "model=resnet50 gpus=8 method=topkk",
    "model=resnet50 gpus=8 gpu=v101",
    "model=resnet50 gpus=8 fusion=sizes",
    "model=resnet50 gpus=8 library=ncc",
    "model=resnet50 gpus=8 algorithm=rings",
    "model=resnet50 gpus=8 protocol=ll64",
    "model=resnet50 gpus=8 precision=fp8",
    "model=resnet50 gpus=8 intra_net=pcie9",
    "model=resnet50 gpus=0",
    "model=resnet50 gpus=-4",
    "model=resnet50 gpus=2000000",
    "model=resnet50",
    "gpus=8",
    "model=resnet50 gpus=10 gpus_per_node=4",
    "model=resnet50 gpus=8 placement=[3,4]",
    "model=resnet50 gpus=8 placement=[8,0]",
    "model=resnet50 gpus=8 bucket=25",
    "model=resnet50 gpus=8 bucket=0MiB",
    "model=resnet50 gpus=8 bucket=25ms",
    "model=resnet50 gpus=8 single_gpu=253",
    "model=resnet50 gpus=8 single_gpu=253GB",
    "model=resnet50 gpus=8 single_gpu_kernels=10",
    "model=resnet50 gpus=8 net=10Gbit/s",
    "model=resnet50 gpus=8 net=10,50",
    "model=resnet50 gpus=8 net=10ms,50us",
    "model=resnet50 gpus=8 straggler=9:2",
    "model=resnet50 gpus=8 straggler=1:0.5",
    "model=resnet50 gpus=8 straggler=fast",
    "model=resnet50 gpus=8 jitter=2",
    "model=resnet50 gpus=8 jitter=fast",
    "model=resnet50 gpus=8 background=1",
    "model=resnet50 gpus=8 beside=nothing",
    "model=resnet50 gpus=8 beside=what_if_dgc_1gbe jitter=0.1",
    "model=resnet50 gpus=8 oversubscription=0.5",
    "model=resnet50 gpus=8 overlap=false overlap_slowdown=2",
    "model=resnet50 gpus=8 method=topk options.density=2",
    "model=resnet50 gpus=8 method=topk options.densities=0.1",
    "model=resnet50 gpus=8 options.density=0.1",
    "model=resnet50 gpus=8 method=powersgd options.rank=0",
    "model=resnet50 gpus=8 method=localsgd options.interval=often",
    "model=resnet50 gpus=12 method=gtopk",
    "model=resnet50 gpus=8 method=d_kfac options.inversion=cholesky",
    "model=resnet50 gpus=8 method=bytescheduler options.partition=1MiB",
    "model=resnet50 gpus=8 library=gloo protocol=ll",
    "model=resnet50 gpu=v100:8,p100:8 gpus=17",
    "model=resnet50 gpu=v100:8,p100:8 jitter=0.1",
    "model=resnet50 gpu=v100:3,p100:5 gpus_per_node=4",
    "model=resnet50 gpus=8 colour=red",
    "model=vit-b16 gpus=8 gpu=k80 precision=amp-bf16",
    "model=resnet50 gpus=8 fusion_options.cycle_time=2",
]

_LARGE = "model=llama3-70b gpus=512 node=dgx-h100 net=dgx-h100 seq=8192 batch=1 accumulate=32"
_SMALL = "model=llama3-8b gpus=64 node=dgx-h100 net=dgx-h100 seq=8192 batch=1"

DIVIDED = [
    *(
        f"{_LARGE} tp=8 pp=4 {rest}"
        for rest in (
            "method=ssgd",
            "method=distributed_optimizer",
            "method=distributed_optimizer schedule=gpipe",
            "method=distributed_optimizer schedule=interleaved virtual_stages=5",
            "method=distributed_optimizer schedule=zb-h1",
            "method=distributed_optimizer schedule=zbv",
            "method=distributed_optimizer schedule=dualpipev",
            "method=zero options.stage=1 recompute=full",
            "method=distributed_optimizer recompute=selective software=megatron",
            "method=distributed_optimizer recompute=selective software=megatron+unfused",
            "method=distributed_optimizer software=megatron+flash2 optimizer=adamw-fused",
            "method=fsdp recompute=full",
            "method=powersgd",
            "method=distributed_optimizer cp=2",
            "method=distributed_optimizer layout=tp-dp-cp-pp",
            "method=distributed_optimizer sequence_parallel=false",
            "method=distributed_optimizer tp_overlap=true",
            "method=distributed_optimizer straggler=1:1.5",
            "method=distributed_optimizer jitter=0.05",
            "method=distributed_optimizer seq=4096 precision=fp8",
        )
    ),
    *(
        f"{_SMALL} {rest}"
        for rest in (
            "method=fsdp tp=8",
            "method=fsdp recompute=selective software=torch2-compiled optimizer=adamw-fused",
            "method=fsdp cp=4 seq=32768 recompute=full",
            "method=zero options.stage=3 recompute=full",
            "method=hybrid_zero recompute=full",
            "method=fsdp options.shard=hybrid recompute=full",
            "method=distributed_optimizer pp=4 accumulate=8 stage_layers=9,8,8,7",
            "method=topk tp=8 pp=2 accumulate=16",
            "pp=4 accumulate=8 stage_layers=0,0,32,0",
            "tp=3",
            "pp=64",
            "layout=tp-xp",
            "schedule=1f1c pp=4",
            "ep=4",
        )
    ),
    "model=mixtral-8x7b gpus=64 node=dgx-h100 batch=1 ep=8 method=distributed_optimizer",
    "model=mixtral-8x7b gpus=64 node=dgx-h100 batch=1 accumulate=8 ep=8 ep_overlap=true",
    "model=mixtral-8x7b gpus=64 node=dgx-h100 accumulate=16 ep=8 pp=4 schedule=dualpipev"
    " ep_overlap=true",
    "model=deepseek-v3 gpus=256 node=dgx-b200 precision=fp8 batch=1 accumulate=64 pp=8 ep=32"
    " dispatcher=deepep method=distributed_optimizer",
    "model=llama3-405b gpus=256 node=gb300-nvl72 precision=nvfp4 batch=1 accumulate=48 tp=4 pp=8"
    " method=distributed_optimizer",
    "model=llama3-8b gpus=8 node=dgx-h100 precision=nvfp4 batch=1",
    "model=mixtral-8x7b gpus=8 node=p4d pp=4 accumulate=4 schedule=zb-h1 method=fsdp",
    "model=gpt-oss-120b gpus=64 node=dgx-h100 batch=1 ep=8 dispatcher=depep",
    "model=mixtral-8x7b gpus=128 node=dgx-h100 batch=1 tp=2 ep=8 pp=4 accumulate=16"
    " method=distributed_optimizer imbalance=1.3",
    "model=mixtral-8x7b gpus=8 node=dgx-h100 batch=1 ep=8 imbalance=100",
    *(
        "model=qwen3-235b-a22b gpus=256 node=dgx-h100 batch=1 seq=4096 accumulate=64 tp=4 pp=8"
        f" software=megatron method=distributed_optimizer {experts}"
        for experts in (
            "ep=8",
            "ep=8 etp=1",
            "ep=32",
            "ep=32 etp=1 dispatcher=deepep",
            "ep=8 etp=2",
            "ep=8 cp=2",
            "ep=8 cp=2 etp=1",
        )
    ),
    *(
        f"model=llama3-8b gpus=16 node=dgx-h100 batch=1 seq=32768 method=fsdp recompute=full {how}"
        for how in (
            "cp=8 cp_comm=all_gather",
            "cp=8 cp_comm=ulysses",
            "cp=8 cp_comm=ulysses software=torch2 chunked_loss=true",
            "tp=2 cp=8 cp_comm=ulysses",
            "tp=8 cp=2 cp_comm=a2a",
        )
    ),
    *(
        "model=deepseek-v3 gpus=256 node=dgx-b200 precision=fp8 batch=1 accumulate=64 pp=16 ep=8"
        f" software=megatron method=distributed_optimizer recompute={again}"
        for again in ("mla_up_proj", "moe", "layernorm+moe_act+shared_experts+mlp", "gdn")
    ),
    "model=gpt-oss-120b gpus=64 node=dgx-h100 batch=1 accumulate=8 pp=4 ep=8 software=megatron"
    " method=distributed_optimizer dispatcher=deepep recompute=layernorm+moe_act",
    "model=qwen3-30b-a3b gpus=8 node=dgx-b200 batch=1 accumulate=8 ep=8 software=megatron"
    " precision=fp8 method=distributed_optimizer",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=fsdp recompute=mlp+layernorm",
    "model=gpt3-1.3b gpus=64 node=dgx-h100 batch=4 accumulate=8 tp=2 pp=4"
    " method=distributed_optimizer",
    "model=gpt3-1.3b gpus=64 node=dgx-h100 batch=4 accumulate=8 tp=2 pp=4 schedule=zbv",
    "model=t5-large gpus=16 node=dgx-h100 batch=8 tp=8",
    "model=llama3-8b gpus=16 node=dgx-h100 batch=1 tp=2 method=fsdp master_weights=false",
    "model=llama3.2-1b gpus=8 node=dgx-h100 batch=2 master_weights=false optimizer=adamw-fused",
    "model=llama3.2-1b gpus=8 node=dgx-h100 batch=2 method=zero master_weights=false",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 seq=4096 lora=16",
    "model=llama3-70b gpus=8 node=p4d batch=1 seq=2048 method=fsdp lora=64 lora_base=nf4"
    " recompute=full",
    "model=llama2-7b gpus=2 gpu=rtx4090 gpus_per_node=2 batch=8 seq=2048 lora=64 lora_base=nf4",
    "model=llama3-8b gpus=8 node=dgx-h100 tp=2 lora=16 lora_base=nf4",
    "model=mistral-7b gpus=2 gpu=a100 gpus_per_node=2 method=fsdp batch=4 seq=4096 recompute=full"
    " lora=16 lora_layers=attention lora_dtype=fp32 lora_dropout=0.1",
    "model=mistral-7b gpus=1 gpu=a100 gpus_per_node=1 batch=4 seq=4096 recompute=full lora=16"
    " lora_layers=attention lora_base=nf4 residual_dtype=fp32",
    "model=dit-xl2 gpus=8 gpu=a100 gpus_per_node=8 batch=32 precision=tf32",
    "model=dit-xl2 gpus=16 node=dgx-h100 batch=32 tp=2 method=fsdp software=torch2-compiled",
    "model=transformer:family=vit,layers=12,hidden=384,heads=8,vocab=1280,image=360,image_width=720,"
    "patch=8,channels=20,pool=none gpus=1 gpu=a100 batch=16 precision=fp32",
    "model=transformer:layers=32,hidden=4096,heads=32,kv=8,ffn=14336,vocab=128256,classes=2 gpus=8"
    " node=dgx-h100 batch=1 seq=4096 tp=2 pp=2 accumulate=4",
    "model=transformer:family=encoder-decoder,layers=12,hidden=768,heads=12,vocab=32128,targets=512"
    " gpus=8 node=dgx-h100 batch=16",
    "model=llama3-8b gpus=1 gpu=h100 batch=2 seq=8192 recompute=full lora=8 lora_base=nf4"
    " residual_dtype=fp32 autocast=false",
    "model=llama3-8b gpus=1 gpu=a100 batch=2 seq=8192 recompute=full lora=8 lora_base=nf4"
    " precision=fp32",
    "model=llama3-8b gpus=8 node=dgx-h200 batch=1 seq=8192 method=zero options.stage=3"
    " recompute=full offload=optimizer+checkpoints",
    "model=llama3-8b gpus=16 node=dgx-a100 batch=1 seq=65536 cp=8 method=fsdp recompute=full"
    " offload=checkpoints",
    "model=llama3-70b gpus=64 node=gb200-nvl72 batch=2 seq=8192 precision=fp8 software=megatron"
    " accumulate=2 method=fsdp offload=activations:40",
    "model=llama3-8b gpus=16 node=dgx-h100 batch=1 seq=16384 tp=2 software=megatron"
    " offload=activations",
    "model=qwen3-32b gpus=8 node=dgx-h100 batch=1 seq=2048 tp=8 recompute=full"
    " software=torch2+flash2+dtensor",
    "model=llama3-8b gpus=16 node=dgx-h100 batch=1 seq=4096 tp=2 pp=2 accumulate=8"
    " schedule=interleaved virtual_stages=2 software=megatron recompute=full:3",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=fsdp recompute=full:5",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=fsdp offload=optimizer",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=fsdp recompute=full offload=parameters",
    "model=llama3-70b gpus=16 node=dgx-a100 batch=1 method=zero options.stage=3 recompute=full"
    " offload=parameters+optimizer",
    "model=llama3-8b gpus=8 node=dgx-b200 batch=1 seq=16384 document_tokens=700 method=fsdp",
    "model=qwen3-30b-a3b gpus=16 node=dgx-h100 batch=1 method=fsdp software=torch2+flash2+loop",
    "model=qwen3-30b-a3b gpus=16 node=dgx-h100 batch=1 ep=8 software=megatron dispatcher=hybridep"
    " method=distributed_optimizer",
    "model=llama3-8b gpus=1 gpu=rtx5090 batch=1 seq=32768 precision=bf16 software=torch2+flash2",
    "model=llama3-8b gpus=8 gpu=h200 batch=1 seq=65536 method=fsdp software=torch2-compiled+flash3",
    "model=llama3-8b gpus=8 gpu=b200 batch=1 seq=65536 method=fsdp software=torch2-compiled+flash3",
    "model=gpt2 gpus=8 node=dgx-h100 batch=8 method=localsgd options.variant=fleet",
    "model=mistral-7b gpus=2 gpu=a100 gpus_per_node=2 method=fsdp lora=16 lora_base=nf4"
    " residual_dtype=fp32",
    "model=llama3-70b gpus=16 node=dgx-h100 batch=1 seq=4096 method=fsdp lora=8 lora_layers=mlp",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=zero options.stage=3 lora=64"
    " precision=bf16",
    "model=llama2-70b gpus=64 node=dgx-h100 batch=1 seq=8192 tp=4 cp=2 lora=16 precision=fp8"
    " lora_layers=attention method=distributed_optimizer",
    "model=llama3-8b gpus=8 node=dgx-h100 batch=1 method=zeropp lora=8",
]
"""Models divided by every axis, and what is refused."""

_SITES = "model=resnet50 site=[8,8] net=10gbe"
_FED = "model=resnet50 gpus=64 node=geforce-pcie4-8"
_SERVED = "model=vgg16 gpus=8 gpus_per_node=1 net=1gbe options.servers=8"

SPREAD = [
    f"{_SITES} wan=1Gbit/s,60ms method=diloco",
    f"{_SITES} wan=8Gbit/s,20ms",
    f"{_SITES} wan=100Gbit/s,20ms",
    f"{_SITES} wan=100Gbit/s,20ms library=gloo",
    f"{_SITES} wan=1Gbit/s,30ms method=streaming_diloco accumulate=3",
    "model=llama3-8b node=dgx-h100 site=[32,32] wan=1Gbit/s,30ms method=diloco",
    "model=resnet18 gpus=16 net=1gbe method=streaming_diloco accumulate=5 jitter=0.02",
    "model=googlenet gpus=64 node=geforce-pcie4-8 method=diloco options.interval=3",
    f"{_FED} nics_per_node=8 method=diloco options.interval=3",
    f"{_FED} method=hierarchical",
    f"{_FED} nics_per_node=8 method=hierarchical",
    f"{_FED} method=fsdp options.shard=hybrid",
    f"{_SERVED} method=dct",
    f"{_SERVED} method=dct options.pull=none",
    f"{_SERVED} method=thc",
    "model=bert-large gpus=32 net=10gbe method=signsgd accumulate=4 exchange_each=true",
    "model=gpt2 gpus=8 gpu=a100:4,a100-40gb:4 gpus_per_node=4 batch=8 precision=amp-bf16"
    " method=fsdp",
]
"""Sites, nodes whose host feeds the NICs, servers, and exchanges that micro-batches wait for."""

COMPARED = [
    "model=resnet50 gpus=16 net=1gbe",
    "model=bert-base gpus=32 net=10gbe gpu=v100-pcie method=powersgd",
    "model=vgg16 gpus=8 net=ib100 straggler=1:1.5",
    "model=resnet152 gpus=64 net=hkbu-v100-100gbe-ip background=0.2",
]


def predictions(names: Names) -> Iterator[tuple[str, str]]:
    """Yield group and fields of each prediction."""
    for name, setting in product(names("methods"), SETTINGS):
        yield "methods", f"{setting} method={name}"
    for name, setting in product(names("fusion"), FUSED):
        yield "fusion", f"{setting} fusion={name}"
    for name, setting in product(names("networks"), CONNECTED):
        yield "networks", f"{setting}{name}"
    for name, setting in product(names("gpus"), DRIVEN):
        yield "gpus", f"{setting} gpu={name}"
        yield "gpus", f"model=resnet50 gpus=8 gpu={name}"  # one node of some, two of others
    for name, rest in product(names("models"), TRAINED):
        yield "models", f"model={name} gpus=16{rest}"
    for setting, condition in product(CONDITIONED, CONDITIONS):
        yield "conditions", f"{setting} {condition}"
    for options in OPTIONS:
        mixed = options.startswith("gpu=")
        setting = OPTION_SETTING.replace("gpus=32 ", "") if mixed else OPTION_SETTING
        yield "options", f"{setting} {options}"
    for fields in SIZES:
        yield "sizes", fields
    for fields in DIVIDED:
        yield "divided", fields
    for fields in SPREAD:
        yield "spread", fields
    for fields in REFUSED:
        yield "refused", fields


GROUPS = [
    *(
        "methods",
        "fusion",
        "networks",
        "gpus",
        "models",
        "conditions",
        "options",
        "sizes",
        "divided",
        "spread",
    ),
    *("refused", "compared", "predict", "compare", "explain", "tune", "sweep", "plan"),
    *("pipeline", "show", "list", "calibrate", "validate", "none", "scenarios"),
]


def all_questions(names: Names, asked_by: Callable[[str], str]) -> list[Question]:
    """Return every question once.

    Parameters
    ----------
    names : returns what ``perfsim list`` knows of one kind
    asked_by : returns the command that a shipped scenario is for, or ""
    """
    found = [Question(group, text, "predict") for group, text in predictions(names)]
    found += [Question("compared", text, "compare") for text in COMPARED]
    found += [Question(group, text, "command") for group, text in commands(names, asked_by)]
    return list({question.name: question for question in found}.values())
