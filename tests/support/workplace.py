"""A folder with the files that the examples of README.md and of ``--help`` read."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.paths import FILES

__all__ = ["furnish"]

LOG = """\
# nccl-tests, {collective}, 4 GPUs on 2 nodes
#  Rank  0 Group  0 Pid  11 on  node-a device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid  12 on  node-a device  1 [0x0f] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid  13 on  node-b device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid  14 on  node-b device  1 [0x0f] NVIDIA A100-SXM4-40GB
NCCL version 2.18.3+cuda12.2
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
"""

CASES = """\
id,system,model,gpu,gpus,gpus_per_node,network,batch_per_gpu,fusion,rank_or_density,metric,value,notes
t-1,single GPU,ResNet-50,V100-PCIE-32GB,1,1,none,64,,,throughput,250,
t-2,S-SGD DDP,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,throughput,1500,
"""

TRAINING = """\
id,source,model,gpu,n_gpus,gpus_per_node,precision,strategy,tp,pp,micro_batch,global_batch,throughput_total,throughput_unit,step_time_s
a-1,our lab,PyTorch/resnet50,V100-SXM2-32GB,1,8,AMP,DDP,1,1,128,128,800,img/s,
a-2,our lab,PyTorch/resnet50,V100-SXM2-32GB,8,8,AMP,DDP,1,1,128,1024,6100,img/s,
a-3,our lab,PyTorch/resnet50,V100-SXM2-32GB,8,8,AMP,,2,1,128,512,3000,img/s,
"""

CONFIG = """\
{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16,
"num_key_value_heads": 8, "intermediate_size": 2816, "vocab_size": 32000,
"max_position_embeddings": 2048}
"""

TWO_SITES = """\
schema = "perfsim/pipeline/1"
micro_batches = 4
reduction = 100
[[stage]]
forward = "20ms"
backward = "40ms"
[[stage]]
forward = "30ms"
backward = "60ms"
[[link]]
rate = "100Mbit/s"
latency = "10ms"
activation = "4MiB"
"""


def log_of_nccl_tests(collective: str, share: float) -> str:
    """Return a log of times 25 us + share n / (20 GB/s)."""
    lines = [LOG.format(collective=collective)]
    for power in range(10, 29, 2):
        size = 2**power
        time_us = 25.0 + share * size / 20e3
        rate = size / time_us / 1e3
        lines.append(
            f"{size} {size // 4} float sum -1 {time_us:.2f} {rate:.2f} {share * rate:.2f} 0\n"
        )
    return "".join(lines)


def furnish(folder: Path) -> Path:
    """Write the files into a folder, and return it."""
    (folder / "all_reduce.log").write_text(log_of_nccl_tests("all_reduce_perf", 1.5))
    (folder / "all_gather.log").write_text(log_of_nccl_tests("all_gather_perf", 0.75))
    (folder / "my_curves").mkdir()
    shutil.copy(folder / "all_reduce.log", folder / "my_curves")
    (folder / "cases.csv").write_text(CASES)
    (folder / "training.csv").write_text(TRAINING)
    (folder / "two-sites.toml").write_text(TWO_SITES)
    (folder / "config.json").write_text(CONFIG)
    trace = FILES / "ddp_gloo_2_ranks.pt.trace.json.gz"
    shutil.copy(trace, folder / "trace.json.gz")
    return folder
