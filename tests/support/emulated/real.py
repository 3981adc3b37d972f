"""Real training on emulated hosts, beside what perfsim says from its own calibrations there.

Each host is pinned to a core, where it comes before the machine's other work. Where hosts are more
than cores, several share one, as real ones do not: the model's step, kernels and the slowdown
beside messages are calibrated on as many hosts at once as train, which sees that, by perfsim's
commands alone.

A prediction's network is known in two ways. "carried": calibrated on two hosts of one site and
carried by perfsim to those that train; what joins sites is stated as measured (``wan``;
`far_tcp.py` measures it). "measured": calibrated on the very hosts that train, over all links
between them. What the second one mends is not the method's or the computation's fault: collectives
of more ranks than cores, or of a long link.

perfsim predicts the mean of an iteration. So it is compared with the mean over all iterations of a
case; the median of the slowest rank's blocks stands beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, stdev
from typing import Any, TypedDict

from support.emulated.hosts import Hosts, bit_rate
from support.paths import ROOT, TESTS

__all__ = ["CASES", "MODELS", "WAYS", "RealBench", "RealCase", "RealSetting", "Trained"]

HERE = Path(__file__).resolve().parent
GPU = "emulated-host"
MODELS = {"cnn": 24, "gpt": 12}
"""Model of `real_models` and its batch."""
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""glibc keeps freed memory, as allocators that PyTorch's tuning guide advises for CPUs do: handed
back and mapped anew, it costs a step up to a fifth of its time, more at first than later on."""
NEEDED_KERNELS = "stream_add,stream_copy,stream_scale,launch_queued,launch_alone,matrix_fp32"
HOOK_KERNELS = "fp16_cast,fp16_uncast,gram_schmidt,qr,lowrank_p,lowrank_q,lowrank_rebuilt"
"""What a device file needs, and what the hooks run."""


OVER_SOCKETS = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
"""NCCL between hosts in namespaces. Each is a host to NCCL by a number of its own (NCCL_HOSTID), so
that it lets them share a GPU."""
WITHIN_90 = 1.645
"""Standard errors to either side that hold 90 % of a normal distribution."""


class Trained(TypedDict):
    """What a case took: its mean [s], and the slowest rank's seconds an iteration, by block."""

    mean_s: float
    seconds: list[float]


@dataclass(frozen=True)
class RealCase:
    """One way to train, as the worker runs it (``options``) and as perfsim is asked (``asks``)."""

    name: str
    scheme: str
    asks: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


def _powersgd(rank: int) -> RealCase:
    # One bucket: gloo's threads run the callbacks of several in another order on each rank, whose
    # all-reduces then do not meet.
    asks = ("--method", "powersgd", "--set", f"rank={rank}", "--bucket", "25MiB")
    options = {"hook": "powersgd", "rank": rank, "bucket_mb": 25}
    return RealCase(f"powersgd rank {rank}", "ddp", asks, options)


def _diloco(interval: int) -> RealCase:
    asks = ("--method", "diloco", "--set", f"interval={interval}", "--set", "backup=gpu")
    options = {"inside": 2, "interval": interval, "optimizer": "adamw"}
    return RealCase(f"diloco every {interval}", "diloco", asks, options)


_BUFFERED = ("ddp", "post_local", "diloco")
"""Schemes in DDP, which broadcasts the model's buffers."""
WAYS = ("carried", "measured")
"""Ways to know the network, see above."""
NO_OVERLAP = "--no-overlap"
LEAST_CASE_S = 3.0
"""A case trains so long or longer, so that its mean is of more iterations where they are short."""
LONGEST_JOB_S = 900.0
LINE_BURST_KB, LARGE_FRAMES, USUAL_FRAMES = 16, 9000, 1500
"""A link lets little through at once, as a wire does: calibration, which sends without a pause,
would not see what training may send after one. Large frames keep what that costs low; where frames
are lost they are the usual ones of 1500 B, of which Mathis et al. count one in so many."""

_POST_LOCAL = ("--method", "postlocalsgd", "--set", "dense_share=0", "--set", "interval=4")

CASES = {
    case.name: case
    for case in (
        RealCase("ddp", "ddp", ("--method", "ssgd")),
        RealCase("fp16 hook", "ddp", ("--method", "fp16"), {"hook": "fp16"}),
        RealCase("bf16 hook", "ddp", ("--method", "bf16"), {"hook": "bf16"}),
        _powersgd(1),
        _powersgd(2),
        _powersgd(4),
        # A CPU has no streams: what FSDP gathers and scatters is waited for where it is called.
        RealCase("fsdp", "fsdp", ("--method", "fsdp", "--set", "version=2", NO_OVERLAP)),
        RealCase("fsdp with streams", "fsdp", ("--method", "fsdp", "--set", "version=2")),
        RealCase("post-local", "post_local", _POST_LOCAL, {"interval": 4, "inside": 1}),
        RealCase("post-local sites", "post_local", _POST_LOCAL, {"interval": 4, "inside": 2}),
        RealCase(
            "local sgd",
            "local_sgd",
            ("--method", "localsgd", "--set", "interval=4"),
            {"interval": 4},
        ),
        _diloco(4),
        _diloco(8),
        _diloco(32),
    )
}


@dataclass(frozen=True)
class RealSetting:
    """Hosts, their links, a model, and the cases trained there."""

    hosts: int
    rate: str
    model: str
    cases: tuple[str, ...]
    sites: int = 1
    between: str = ""
    delay: str = ""
    loss: str = ""

    @property
    def far(self) -> tuple[str, ...]:
        """What the link between sites is, as far as it is stated."""
        return tuple(filter(None, (self.between, self.delay, self.loss)))

    @property
    def name(self) -> str:
        """In words."""
        sites = f" in {self.sites} sites, {' '.join(self.far)} between" if self.sites > 1 else ""
        return f"{self.hosts} hosts{sites}, {self.rate}, {self.model}"

    @property
    def ways(self) -> tuple[str, ...]:
        """Ways in which its network is known: two hosts of one site are the very ones that train.

        perfsim's ``wan`` states no link without a delay.
        """
        if self.sites == 1:
            return WAYS if self.hosts > 2 else WAYS[:1]
        return WAYS if self.delay else WAYS[1:]

    def net(self, way: str) -> str:
        """Name of the network that is calibrated for it."""
        if way == "carried":
            return f"two-hosts-{self.rate}"
        return "-".join((f"all-{self.hosts}", self.rate, *self.far)).replace("%", "")


class RealBench:
    """A folder of profiles, and the commands that fill it and ask it.

    Parameters
    ----------
    work : the folder
    network_s, kernel_s : time of a network's sweep and of one kernel [s]
    short : leave out the hooks' kernels, messages above 1 MiB and the slowdown beside messages
    gpu : name of the GPU that all hosts share, which trains with NCCL; "" trains on CPUs with gloo
    """

    def __init__(
        self,
        work: Path,
        network_s: float = 25.0,
        kernel_s: float = 2.0,
        *,
        short: bool = False,
        gpu: str = "",
    ) -> None:
        self.short, self.gpu = short, gpu
        self.others: dict[str, float] = {}
        self.work, self.network_s, self.kernel_s = work, network_s, kernel_s
        self.profiles = work / "profiles"
        for folder in ("devices", "networks", "models"):
            (self.profiles / folder).mkdir(parents=True, exist_ok=True)

    @property
    def device(self) -> str:
        """What computes, as PyTorch calls it."""
        return "cuda" if self.gpu else "cpu"

    @property
    def backend(self) -> str:
        """What communicates, as PyTorch calls it."""
        return "nccl" if self.gpu else "gloo"

    def kernels(self, hosts_at_once: int) -> str:
        """Calibrate the kernels of so many hosts at once; return the name of such a host's GPU."""
        if self.gpu:
            return self.gpu
        name = f"{GPU}-{hosts_at_once}"
        if (self.profiles / "devices" / f"{name}.toml").exists():
            return name
        budget = ("--kernel-budget", f"{self.kernel_s}s", "--max", str(2**22))
        names = NEEDED_KERNELS if self.short else f"{NEEDED_KERNELS},{HOOK_KERNELS}"
        asked = ("kernels", "--device", "cpu", "--gpu", name, "--kernels", names, *budget)
        with self.hosts(hosts_at_once, "") as hosts:
            self.do(hosts, (*asked, "--device-file", "--out", "own"), name, own_folders=True)
        for path in (self.work / "rank0" / "own" / "devices").iterdir():
            shutil.copy(path, self.profiles / "devices")
        return name

    def compute(self, model: str, hosts_at_once: int, optimizer: str = "sgd") -> str:
        """Calibrate a model's training step on so many hosts at once; return the model's name."""
        name = f"{model}-{optimizer}-on-{hosts_at_once}"
        if not list((self.profiles / "models").glob(f"{name}.*.csv")):
            asked = ("compute", "--model", f"support.emulated.real_models:{model}")
            asked += ("--gpu", self.kernels(hosts_at_once))
            asked += ("--batch", str(MODELS[model]), "--optimizer", optimizer, "--name", name)
            repeats = "4" if self.short else "16"
            asked += ("--repeats", repeats, "--device", self.device, "--out", str(self.profiles))
            with self.hosts(hosts_at_once, "") as hosts:
                self.do(hosts, asked, name)
        return name

    def slowdown(self, setting: RealSetting) -> Path:
        """Measure computation beside all-reduces; return a scenario file with the slowdown."""
        label = f"beside-{setting.hosts}-{setting.rate}"
        path = self.work / f"{label}.toml"
        if not path.exists():
            asked = ("kernels", "--beside", "--device", self.device, "--json")
            with self.hosts(setting.hosts, setting.rate) as hosts:
                text = self.do(hosts, asked, label)
            measured = json.loads(text[text.index("{") :])["computations"][0]
            factor = max(1.0, measured["slowdown"])
            path.write_text(
                f'schema = "perfsim/scenario/1"\n[scenario]\noverlap_slowdown = {factor:.4f}\n'
            )
        return path

    def network(self, setting: RealSetting, way: str = "carried") -> str:
        """Calibrate the network on two hosts, or on all that train; return its name."""
        name = setting.net(way)
        out = self.profiles / "networks" / f"{name}.toml"
        if not out.exists():
            most = "1MiB" if self.short else "16MiB"
            asked = ("network", "--out", str(out), "--max", most, "--budget", f"{self.network_s}s")
            asked += ("--collectives", "all_reduce,all_gather,broadcast")
            asked += ("--transport", "tcp", "--fresh", "--backend", self.backend)
            all_of_it = way == "measured"
            with self.place(setting) if all_of_it else self.hosts(2, setting.rate) as hosts:
                self.do(hosts, asked, name)
        return name

    def train(self, setting: RealSetting, blocks: int) -> dict[str, Trained]:
        """Train for real; return what each case took, by its name."""
        cases = [CASES[name] for name in setting.cases]
        texts = [
            json.dumps({"name": case.name, "scheme": case.scheme, "options": case.options})
            for case in cases
        ]
        asked = (str(HERE / "real_worker.py"), self.device)
        asked += (setting.model, str(MODELS[setting.model]))
        with self.place(setting) as hosts:
            least_s = 0.0 if self.short else LEAST_CASE_S
            text = self.run(hosts, (*asked, str(blocks), str(least_s), *texts), "train")
        results = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {result.pop("name"): result for result in results}

    def predict(self, setting: RealSetting, case: RealCase, way: str = "carried") -> dict[str, Any]:
        """Return the object of ``perfsim predict --json``."""
        optimizer = case.options.get("optimizer", "sgd")
        model = self.compute(setting.model, setting.hosts, optimizer)
        each, together = setting.hosts // setting.sites, "1"
        asked = ["predict", "--model", model, "--gpu", self.kernels(setting.hosts)]
        asked += ["--gpus", str(setting.hosts)]
        if setting.sites > 1 and way == "carried":
            asked += ["--site", ",".join([str(each)] * setting.sites), "--wan", _wan(setting)]
        elif setting.sites > 1:
            together = str(each)
        asked += ["--gpus-per-node", together, "--net", setting.net(way), *case.asks]
        asked += ["--profiles", str(self.profiles), "--json"]
        buffers = buffer_bytes(setting.model) if case.scheme in _BUFFERED else 0
        asked += ["--set", f"buffers_mib={buffers / 2**20:.6f}"] if buffers else []
        if not self.short and NO_OVERLAP not in case.asks:
            asked += ["--scenario", str(self.slowdown(setting))]
        done = subprocess.run(
            [sys.executable, "-m", "perfsim", *asked],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            cwd=self.work,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"perfsim {' '.join(asked)}: {done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def measure(self, setting: RealSetting, blocks: int) -> dict[str, Trained]:
        """Calibrate what a setting needs, train, and return what each case took, by its name."""
        self.kernels(setting.hosts)
        for way in setting.ways:
            self.network(setting, way)
        if not self.short:
            self.slowdown(setting)
        for name in setting.cases:
            self.compute(setting.model, setting.hosts, CASES[name].options.get("optimizer", "sgd"))
        return self.train(setting, blocks)

    def rows(
        self, setting: RealSetting, measured: Mapping[str, Trained]
    ) -> Iterator[dict[str, Any]]:
        """Predict what was trained; yield a row a case."""
        for name in setting.cases:
            yield self.row(setting, CASES[name], measured[name])

    def row(self, setting: RealSetting, case: RealCase, trained: Trained) -> dict[str, Any]:
        """Return what was measured beside what is predicted, in each way.

        ``half_width`` is half the 90 % interval of the mean, over the mean.
        """
        mean_s, blocks_s = trained["mean_s"], trained["seconds"]
        row: dict[str, Any] = {
            "setting": setting.name,
            "case": case.name,
            "measured_s": mean_s,
            "median_s": median(blocks_s),
            "blocks": len(blocks_s),
            "half_width": WITHIN_90 * stdev(blocks_s) / len(blocks_s) ** 0.5 / mean_s,
        }
        for way in setting.ways:
            answer = self.predict(setting, case, way)
            low, high = answer["iteration_s_interval"]
            row[way] = {
                "predicted_s": answer["iteration_s"],
                "low_s": low,
                "high_s": high,
                "inside": low <= mean_s <= high,
                "error": answer["iteration_s"] / mean_s - 1,
                "median_error": answer["iteration_s"] / row["median_s"] - 1,
            }
        return row

    def hosts(self, count: int, rate: str, **more: Any) -> Hosts:
        """Return hosts with a share of a core each; of all cores with NCCL, whose threads spin."""
        usual = {"burst_kb": LINE_BURST_KB, "mtu": LARGE_FRAMES, "ahead": False}
        return Hosts(count, rate, self.work, pinned=not self.gpu, **{**usual, **more})

    def place(self, setting: RealSetting) -> Hosts:
        """Return the hosts that train, where they stand."""
        frames = USUAL_FRAMES if setting.loss else LARGE_FRAMES
        far = {name: getattr(setting, name) for name in ("sites", "between", "delay", "loss")}
        return self.hosts(setting.hosts, setting.rate, mtu=frames, **far)

    def do(self, hosts: Hosts, asked: Sequence[str], label: str, **more: Any) -> str:
        """Run ``perfsim calibrate`` on hosts."""
        return self.run(hosts, ("-m", "perfsim", "calibrate", *asked), label, **more)

    def run(self, hosts: Hosts, arguments: Sequence[str], label: str, **more: Any) -> str:
        """Run Python on hosts and return what the first one says."""
        path = f"{ROOT}:{TESTS}:{os.environ.get('PYTHONPATH', '')}"
        environ = {**KEPT_MEMORY, "PYTHONPATH": path, "TORCH_CPP_LOG_LEVEL": "ERROR"}
        if self.gpu:
            environ |= OVER_SOCKETS
            more["per_rank"] = {rank: {"NCCL_HOSTID": f"{rank}"} for rank in range(hosts.count)}
        before = _others_s()
        job = hosts.run(arguments, environ=environ, label=label, **more)
        codes = job.wait(LONGEST_JOB_S)
        after = _others_s()
        self.others[label] = (after[0] - before[0]) / (after[1] - before[1])
        if any(codes):
            said = "".join(job.text(rank)[-1500:] for rank in range(hosts.count))
            raise SystemExit(f"{label} failed {codes}: {said}")
        return job.text(0)


def buffer_bytes(model: str) -> int:
    """Return the bytes of what a model keeps and does not train."""
    from support.emulated import real_models

    net, _ = getattr(real_models, model)(1, "cpu")
    return sum(buffer.numel() * buffer.element_size() for buffer in net.buffers())


def _wan(setting: RealSetting) -> str:
    """Return what joins sites, as perfsim reads it."""
    loss = [f"loss={setting.loss}"] if setting.loss else []
    return ",".join((bit_rate(setting.between), setting.delay, *loss, "measured"))


def _others_s() -> tuple[float, float]:
    """Return the CPU time of all but this process and its children that ended, and the time [s]."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, steal = (int(words[column]) for column in (1, 2, 3, 8))
    all_s = (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return all_s - sum(own[:4]), time.monotonic()
