"""What `--help` says: each command's first sentence and examples, and the page of `perfsim --help`.

The texts stand here, and not with the commands, so that the overview imports no command.
"""

from __future__ import annotations

__all__ = ["EXAMPLES", "HELP_QUESTIONS", "HELP_REFERENCE", "OVERVIEW", "examples"]

EXAMPLES = {
    "init": (
        "perfsim init --model resnet50 --gpus 16 --net 25gbe",
        "perfsim init all_reduce.log config.json --out our-question.toml",
        "perfsim init trace.json.gz --model ours --batch 16 --gpu a100 \\\n"
        "    --gpus 16 --net 25gbe --out ours.toml",
    ),
    "predict": (
        "perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "perfsim predict --model bert-base --gpus 32 --net 10gbe --method auto",
        "perfsim predict --model vgg16 --gpus 8 --net 10Gbit/s,50us --method topk \\\n"
        "    --set density=0.01 --timeline",
        "perfsim predict --model gpt2-xl --node dgx-h100 --site 8,8,16 \\\n"
        "    --wan 1Gbit/s,40ms --method diloco --fusion whole",
        "perfsim predict --model llama3-8b --gpus 64 --node dgx-h100 --method fsdp \\\n"
        "    --accumulate 4 --recompute selective",
        "perfsim predict --model our_model.json --gpus 64 --node dgx-h100 --tp 8 \\\n"
        "    --accumulate 8 --method distributed_optimizer",
        "perfsim predict --model qwen3-30b-a3b --gpus 64 --node dgx-h100 --ep 16 \\\n"
        "    --accumulate 8 --recompute layernorm --dispatcher deepep --ep-overlap",
        "perfsim predict --model deepseek-v3 --gpus 256 --node dgx-b200 --pp 16 \\\n"
        "    --ep 8 --batch 1 --accumulate 256 --precision fp8 --software megatron \\\n"
        "    --method distributed_optimizer --recompute mla_up_proj+moe_act",
        "perfsim predict --gpus 16 --gpu a100 --net ib200 --batch 4 \\\n"
        "    --model transformer:layers=24,hidden=2048,heads=16,vocab=50257",
        "perfsim predict --scenario what_if_dgc_1gbe --gpus 128 --json",
    ),
    "compare": (
        "perfsim compare --model bert-large --gpus 32 --net 10gbe \\\n"
        "    --methods ssgd,topk,dgc,powersgd",
        "perfsim compare --model resnet50 --gpus 32 --net 10gbe \\\n"
        "    --methods ssgd,topk,powersgd --equal-bytes 100",
        "perfsim compare --model our_model.json --gpus 32 --gpu a100 --net ib200 \\\n"
        "    --batch 2 --accumulate 8 --methods ssgd,zero,fsdp,powersgd",
        "perfsim compare --scenario what_if_dgc_1gbe --csv methods.csv",
    ),
    "sweep": (
        "perfsim sweep --model resnet50 --vary gpus=8..1024 --vary net=1gbe,ib100",
        "perfsim sweep --model llama3-8b --gpus 64 --node dgx-h100 --method fsdp \\\n"
        "    --full --vary recompute=none,full --vary batch=1,2,4",
        "perfsim sweep --model resnet50 --gpus 16 --method topk \\\n"
        "    --vary net=1Gbit/s..100Gbit/s:log5,50us --out rows.csv",
    ),
    "tune": (
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --over bucket",
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --method topk",
        "perfsim tune --model gpt3-350m --gpus 32 --gpu a100 --over bucket",
        "perfsim tune --model gpt3-350m --gpus 32 --gpu a100 --net 1gbe \\\n"
        "    --method diloco --over interval",
        "perfsim tune --model llama3-70b --gpus 512 --node dgx-h100 --seq 8192 \\\n"
        "    --over parallelism --global-batch 512",
    ),
    "explain": (
        "perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk",
        "perfsim explain --model gpt3-350m --gpus 32 --gpu a100 --net 1gbe \\\n"
        "    --method diloco --set interval=100",
    ),
    "plan": (
        "perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h",
        "perfsim plan --model bert-base --dataset 1000000samples --epochs 3 \\\n"
        "    --nets 10gbe,ib100 --methods ssgd,powersgd --deadline 2h",
        "perfsim plan --model our_model.json --gpu h100 --gpus-per-node 8 --batch 4 \\\n"
        "    --nets 100gbe,ib400 --methods ssgd,fsdp --counts 8..64 \\\n"
        "    --dataset 2441406samples --epochs 1 --deadline 24h",
        "perfsim plan --model llama3-70b --node dgx-h100 --seq 8192 \\\n"
        "    --counts 256..1024 --global-batch 1024 \\\n"
        "    --dataset 1e11tokens --epochs 1 --deadline 900h",
    ),
    "list": ("perfsim list methods", "perfsim list networks --json"),
    "show": (
        "perfsim show method dgc",
        "perfsim show net 10gbe --html 10gbe.html",
        "perfsim show model our_model.json",
    ),
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
        "perfsim validate measurements --measurements training.csv",
    ),
    "validate nccl": ("perfsim validate nccl --data my_curves/",),
    "validate claims": ("perfsim validate claims",),
    "app": ("perfsim app", "perfsim app what_if_dgc_1gbe --port 8051 --no-browser"),
    "doctor": ("perfsim doctor",),
}
"""By command; a line that continues ends in a backslash, as in a shell."""


def examples(command: str) -> str:
    """Return the examples of a command as its ``--help`` shows them, below the options.

    Examples
    --------
    >>> print(examples("validate claims").removeprefix(chr(8)).strip())
    Example:
      perfsim validate claims
    """
    typed = EXAMPLES[command]
    lines = "\n".join(typed).replace("\n", "\n  ")
    return f"\b\nExample{'s' if len(typed) > 1 else ''}:\n  {lines}"


OVERVIEW = {
    "init": (
        "Write a first scenario: of your logs, trace or config.json, this job, and what you answer."
    ),
    "predict": (
        "Predict one iteration: its time and interval, where it goes, what holds it back, and why."
    ),
    "compare": (
        "Compare methods side by side: who is first at the same accuracy, and where the time goes."
    ),
    "sweep": "Predict every combination of what varies: GPUs, networks, methods, options, ...",
    "tune": (
        "Tune a scenario: the best bucket size, density, rank, interval, algorithm or parallelism."
    ),
    "explain": (
        "Explain one iteration: critical path, exposed buckets, what pays, break-even with S-SGD."
    ),
    "plan": (
        "Plan a training run: the cheapest and the fastest cluster and method that meet a target."
    ),
    "list": "List what perfsim knows of one kind, with where it comes from.",
    "show": "Show all that is known of one model, GPU, network, node type, method or scenario.",
    "pipeline": "Predict an iteration of a pipeline over slow links, with dense or Top-k messages.",
    "app": "Open a what-if page in the browser: change a scenario, see its answer at once.",
    "doctor": "Say which optional parts are installed here, and what this machine could measure.",
    "calibrate": "Measure a cluster, or read what was measured, into files that predictions use.",
    "validate": "Hold predictions against what was measured.",
    "calibrate import": (
        "Fit a network file to measured collectives, or make a profile of a trace of training."
    ),
    "calibrate network": (
        "Measure the collectives of this job's ranks and fit a network file to them."
    ),
    "calibrate compute": (
        "Measure a model's training step on this machine, layer by layer, with fake data."
    ),
    "calibrate kernels": (
        "Time the kernels that methods use on this machine, over sizes, into a device's files."
    ),
    "validate measurements": (
        "Predict what others measured of whole training runs, in three ways, and show the errors."
    ),
    "validate nccl": (
        "Predict measured collectives from the rest of what was measured, and show the errors."
    ),
    "validate claims": (
        "Show papers' headline claims beside what is predicted in the papers' own settings."
    ),
}
"""The first sentence of each command, as lists of commands show it whole; a test compares."""

HELP_QUESTIONS = """\
Predict the iteration time of distributed data-parallel training from measured layer profiles
and measured network costs.

\b
Where do I begin, with files of my own?         perfsim init
How long is one iteration, and why?             perfsim predict
Which method is fastest here, how sure?         perfsim compare
What holds it back, and what would help?        perfsim explain
Which bucket size, rank, ..., parallelism?      perfsim tune
What if GPUs, network or method vary?           perfsim sweep
Which cluster meets a deadline or a budget?     perfsim plan
Which models, GPUs, networks, methods?          perfsim list, show
How wrong is it?                                perfsim validate
What of my own cluster, GPU and model?          perfsim calibrate
May I try it in a browser?                      perfsim app
What is installed, what can be measured here?   perfsim doctor
"""

HELP_REFERENCE = """\
\b
Examples:
  perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc
  perfsim compare --model bert-large --gpus 32 --methods ssgd,topk,powersgd
  perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk
  perfsim sweep --model resnet50 --vary gpus=8..64 --vary net=1gbe,ib100
  perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h

\b
Files and environment:
  ./profiles      your own models/, devices/, networks/ and nodes/; searched
                  before those that ship
  PERFSIM_PATH    more such folders, separated by colons; searched before
                  ./profiles
  --profiles DIR  one such folder, searched first; the only one whose records
                  (measurements/, learning/, methods/) count
  PERFSIM_DEBUG   when set, an internal error shows where it happened

\b
Units (a bare number is refused where one is needed):
  time  ns, us, ms, s, min, h    size  kB, MB, GB (1e9 B), KiB, MiB (2^20 B)
  rate  Gbit/s (1e9 bit/s), GB/s (1e9 B/s)    share  5% or 0.05

\b
Exit codes:
  0  done
  1  anything else: what is printed cannot be written, internal error
  2  the request is wrong, or a file cannot be written; one sentence says why
  3  a file is missing or damaged
  4  `validate` found a group of errors outside its limit
  130  stopped by Ctrl-C

Results go to standard output, progress and warnings to standard error. Every command takes
--json (its keys: perfsim/JSON.md in the repository), and --plain (or PERFSIM_PLAIN=1) for screen
readers and logs: a line a fact, no bars, columns or drawings. -h shows common options, --help all
of them and examples.
"""
