"""The commands that the oracle runs: a command's arguments are one line.

They run in a folder that holds the files of ``oracle/inputs``; what they write into ``out`` is part
of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["Names", "commands"]

Names = Callable[[str], list[str]]
"""Returns what ``perfsim list`` knows of one kind."""

COMMANDS = {
    "predict": [
        "--model resnet50 --gpus 64 --net 1gbe --method dgc",
        "--model bert-base --gpus 32 --net 10gbe --method auto",
        "--model alexnet --gpus 8 --net 10gbe --method topk --trace out/t.json --chakra out/c.json",
        "--model lstm-ptb --gpus 4 --net 1gbe --method localsgd --trace out/t.json",
        "--model alexnet --gpus 8 --method fsdp --trace out/t.json --chakra out/c.json",
        "--model resnet20-cifar --gpus 8 --gpu v100 --method spd_kfac --trace out/t.json",
        "--model alexnet --gpus 8 --net 1gbe --straggler 1:2 --chakra out/c.json --out out/p.json",
        "--model vgg16 --gpus 8 --net 10Gbit/s,50us --method topk --set density=0.01",
        "--scenario what_if_dgc_1gbe --gpus 128",
        "--scenario full.toml",
        "--scenario uneven.toml",
        "--model resnet50 --gpus 16 --beside uneven.toml --net 10gbe",
        "--model hand --gpus 8 --profiles own",
        "--model hand --gpus 8 --profiles own --net made-up",
        "--model hand --gpus 8 --profiles own --intra-net two-roots --method topk",
        "--model resnet50 --gpus eight",
        "--model resnet50 --gpus 8 --nett 1gbe",
        "--model resnet50 --gpus 8 --bucket 25",
        "--gpus 8",
        "--scenario nowhere.toml",
        "--scenario prices.toml",
        "--scenario today.log",
        "--model resnet50 --gpus 8 --profiles nowhere",
        "--model resnet50 --gpus 8 --set density",
        "--model resnet50 --gpus 8 --out nowhere/x.json",
    ],
    "compare": [
        "--model resnet50 --gpus 64 --net 1gbe",
        "--model bert-large --gpus 32 --gpu v100-pcie --methods ssgd,topk,powersgd",
        "--model vgg16 --gpus 16 --net 10gbe --method topk --set density=0.01 --sort sent",
        "--model resnet50 --gpus 32 --gpu v100:16,p100:16 --methods ssgd,dgc,topk --sort memory",
        "--model alexnet --gpus 8 --methods ssgd,dgc --csv out/rows.csv --trace out/t.json",
        "--model resnet50 --gpus 16 --methods ssgd,topk --jitter 5% --sort name",
        "--model resnet50 --gpus 8 --methods ssgd,nothing",
        "--model resnet50 --gpus 8 --sort colour",
        "--model resnet50 --gpus 12 --methods gtopk",
    ],
    "explain": [
        "--model resnet50 --gpus 64 --net 10gbe --method topk",
        "--model bert-base --gpus 16 --net 1gbe --gpu v100-pcie --method powersgd",
        "--model vgg16 --gpus 32 --net ib100",
        "--model resnet50 --gpus 64 --net ib100 --method spd_kfac",
        "--model alexnet --gpus 8 --net 1gbe --method localsgd --trace out/t.json",
        "--model resnet50 --gpus 16 --straggler 1:2 --background 30% --method dgc",
        "--model resnet50 --gpus 64 --node dgx-1 --method topk",
        "--model resnet50 --gpus 64 --node eth-1g --method localsgd --set interval=32",
        "--model gpt3-1.3b --gpus 64 --gpu h100 --net ib100 --tp 2 --method topk",
        "--scenario what_if_dgc_1gbe",
        "--model resnet50 --gpus 1",
        "--model resnet50 --gpus 16 --method nothing",
    ],
    "tune": [
        "--model resnet50 --gpus 64 --net 10gbe --method topk",
        "--model resnet50 --gpus 64 --net 10gbe --over bucket",
        "--model bert-base --gpus 32 --gpu v100-pcie --net 1gbe --method powersgd --over rank",
        "--model vgg16 --gpus 16 --net 1gbe --method localsgd --over interval",
        "--model resnet50 --gpus 32 --net ib100 --over algorithm",
        "--model vgg16 --gpus 16 --net 1gbe --method dgc --over density",
        "--model resnet50 --gpus 16 --over rank",
        "--model resnet50 --gpus 16 --over colour",
    ],
    "sweep": [
        "--model resnet50 --vary gpus=8..256 --vary net=1gbe,10gbe,ib100",
        "--model resnet50 --vary gpus=8..32 --vary net=1gbe,ib100 --full",
        "--model resnet50 --gpus 16 --method topk --vary net=1Gbit/s..100Gbit/s:log5,50us",
        "--model resnet50 --gpus 16 --method topk --vary options.density=0.001,0.01,0.1 --full",
        "--model vgg16 --gpus 16 --vary method=all",
        "--model vgg16 --gpus 16 --vary bucket=1MiB..64MiB:log7",
        "--model resnet50 --vary batch=8..64:8 --gpus 8",
        "--model bert-base --gpu v100-pcie --gpus 8 --vary placement=3,5",
        "--model resnet50 --gpus 16 --vary algorithm=auto,ring,tree --vary protocol=ll,simple",
        "--model alexnet --vary gpus=8,16 --out out/rows.csv",
        "--model alexnet --vary gpus=8,16 --full --out out/rows.jsonl",
        "--model resnet50 --vary gpus=8..4",
        "--model resnet50 --gpus 8 --vary colour=red",
        "--model resnet50 --gpus 8",
    ],
    "plan": [
        "--model resnet50 --dataset imagenet --epochs 90 --deadline 24h",
        "--model bert-base --dataset 1000000samples --epochs 3 --nets 10gbe,ib100"
        " --methods ssgd,powersgd --deadline 2h",
        "--model resnet50 --dataset imagenet --epochs 90 --budget 500usd --prices prices.toml",
        "--model resnet50 --dataset imagenet --epochs 90 --nets 10gbe,25gbe --prices prices.toml"
        " --methods ssgd,dgc --epochs-of dgc=95 --gpu-power 250W --deadline 12h",
        "--model vgg16 --dataset imagenet --epochs 74 --gpu-types v100,p100 --counts 4..32"
        " --deadline 3h",
        "--model resnet50 --dataset imagenet --epochs 90 --budget 500usd",
        "--model resnet50 --dataset nothing --epochs 90 --deadline 24h",
        "--model resnet50 --dataset imagenet --epochs 90 --deadline 24",
    ],
    "pipeline": ["two-sites.toml", "two-sites.toml --out out/p.json", "prices.toml", "nowhere"],
    "show": [
        *("model nothing", "gpu nothing", "net nothing", "method nothing", "scenario nothing"),
        *("colour red", "model hand --profiles own", "net two-roots --profiles own"),
    ],
    "list": [
        *("models", "gpus", "networks", "methods", "collectives", "fusion", "scenarios"),
        *("measurements", "models --profiles own", "colours"),
    ],
    "calibrate import": [
        "today.log --name ours --out out",
        "version-2.0.log --name ours --out out --transport tcp --nics-per-node 2",
        "two-runs.log --name ours --out out --report full",
        "today.log version-2.0.log --name ours --out out",
        "nccl.json --name ours --out out",
        "nccl.json --name ours --out out --nodes 1 --gpus-per-node 8",
        "pairs.csv --name ours --out out --collective all_reduce --ranks 8 --nodes 2",
        "printed.csv --name ours --out out --collective all_reduce --ranks 8 --nodes 1",
        "pairs.csv --name ours --out out",
        "torch.csv --name ours --out out",
        "ours.csv --name ours --out out",
        "plain.csv --name ours --out out",
        "param.txt --name ours --out out --nodes 1",
        "param.txt --name ours --out out",
        "hkbu-2080ti-10gbe.curves.csv --name ours --out out --report full",
        "occl-v100.curves.csv --name ours --out out --report full",
        "p4d-a100-efa400.curves.csv --name ours --out out --report full",
        "kineto-cpu.json --model ours --batch 32 --gpu v100 --out out",
        "kineto-gpu.json --model ours --batch 32 --gpu v100 --out out --precision amp-fp16",
        "ddp.json.gz --model ours --batch 32 --gpu v100 --out out",
        "ddp.json.gz --model ours --batch 32 --out out",
        "kineto-cpu.json kineto-gpu.json --model ours --batch 32 --out out",
        "horovod.json --model ours --batch 32 --gpu v100 --out out",
        "horovod.json --out out",
        "two-sites.toml --name ours --out out",
        "nowhere.log --name ours --out out",
        "today.log --out out",
    ],
    "validate": [
        "measurements",
        "measurements --cluster blf",
        "measurements --method dgc",
        "measurements --measurements dgc.csv",
        "measurements --method nothing",
        "nccl",
        "claims",
        "nothing",
    ],
    "": ["nothing"],
}
"""Each command's arguments; ``--json`` is added."""


def commands(names: Names, asked_by: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield group and arguments of each command."""
    for command, listed in COMMANDS.items():
        for arguments in listed:
            yield command.split()[0] if command else "none", f"{command} {arguments}".strip()
    for kind, plural in (("model", "models"), ("gpu", "gpus"), ("net", "networks")):
        for name in names(plural):
            yield "show", f"show {kind} {name}"
    for kind, plural in (("method", "methods"), ("scenario", "scenarios")):
        for name in names(plural):
            yield "show", f"show {kind} {name}"
    for name in names("scenarios"):
        yield "scenarios", f"predict --scenario {name}"
        if asked := asked_by(name):
            yield "scenarios", asked
