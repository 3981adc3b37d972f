"""The examples at the end of each command's ``--help``; tests run them."""

from __future__ import annotations

__all__ = ["EXAMPLES", "examples"]

EXAMPLES = {
    "predict": (
        "perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "perfsim predict --model bert-base --gpus 32 --net 10gbe --method auto",
        "perfsim predict --model vgg16 --gpus 8 --net 10Gbit/s,50us --method topk \\\n"
        "    --set density=0.01 --timeline",
        "perfsim predict --scenario what_if_dgc_1gbe --gpus 128 --json",
    ),
    "compare": (
        "perfsim compare --model bert-large --gpus 32 --net 10gbe \\\n"
        "    --methods ssgd,topk,dgc,powersgd",
        "perfsim compare --scenario what_if_dgc_1gbe --csv methods.csv",
    ),
    "sweep": (
        "perfsim sweep --model resnet50 --vary gpus=8..1024 --vary net=1gbe,ib100",
        "perfsim sweep --model resnet50 --gpus 16 --method topk \\\n"
        "    --vary net=1Gbit/s..100Gbit/s:log5,50us --out rows.csv",
    ),
    "tune": (
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --over bucket",
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --method topk",
    ),
    "explain": ("perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk",),
    "plan": (
        "perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h",
        "perfsim plan --model bert-base --dataset 1000000samples --epochs 3 \\\n"
        "    --nets 10gbe,ib100 --methods ssgd,powersgd --deadline 2h",
    ),
    "list": ("perfsim list methods", "perfsim list networks --json"),
    "show": ("perfsim show method dgc", "perfsim show net 10gbe --html 10gbe.html"),
    "pipeline": ("perfsim pipeline two-sites.toml",),
    "calibrate": (
        "perfsim calibrate import all_reduce.log --name our-cluster",
        "perfsim calibrate compute --model torchvision:resnet50 --batch 64",
    ),
    "calibrate import": (
        "perfsim calibrate import all_reduce.log all_gather.log --name our-cluster",
        "perfsim calibrate import trace.json.gz --model resnet50 --batch 64",
    ),
    "calibrate network": (
        "torchrun --nnodes 4 --nproc-per-node 8 \\\n"
        "    -m perfsim calibrate network --out our-cluster.toml",
        "mpirun -n 32 python -m perfsim calibrate network \\\n"
        "    --backend mpi --out our-cluster.toml --budget 10min",
    ),
    "calibrate compute": (
        "perfsim calibrate compute --model torchvision:resnet50 --batch 64",
        "perfsim calibrate compute --model mine:model --batch 8 --precision amp-bf16",
    ),
    "calibrate kernels": (
        "perfsim calibrate kernels --out profiles",
        "torchrun --nproc-per-node 2 -m perfsim calibrate kernels --beside",
    ),
    "validate": (
        "perfsim validate --method dgc",
        "perfsim validate --measurements cases.csv --json",
    ),
    "validate measurements": (
        "perfsim validate measurements --measurements cases.csv --html errors.html",
    ),
    "validate nccl": ("perfsim validate nccl --data my_curves/",),
    "validate claims": ("perfsim validate claims",),
}
"""By command; a line that goes on ends in a backslash, as a shell takes it."""


def examples(command: str) -> str:
    """Return what stands below a command's options: its examples, as they are typed.

    Examples
    --------
    >>> print(examples("validate claims").removeprefix(chr(8)).strip())
    Example:
      perfsim validate claims
    """
    shown = EXAMPLES[command]
    lines = "\n".join(shown).replace("\n", "\n  ")
    return f"\b\nExample{'s' if len(shown) > 1 else ''}:\n  {lines}"
