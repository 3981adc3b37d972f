"""Calibrate an emulated cluster, predict training on it, train for real, and compare.

    sudo python tests/end_to_end/compare.py [--short] [--out FILE]

Hosts are network namespaces joined by a bridge, their links shaped by tc; gloo carries real
messages; layers sleep for their profile's times. Networks are calibrated at 2 and 4 hosts only,
computation at every number of hosts (they share this machine's cores, as real ones do not).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from hosts import Hosts, why_not  # noqa: E402

from perfsim.catalog import Catalog, shipped  # noqa: E402

MODELS = {
    "resnet50": ("resnet50.v100.fp32.b32.csv", 10.0, 32),
    "vgg16-cifar": ("vgg16-cifar.p102-100.fp32.b128.csv", 4.0, 128),
    "resnet18-cifar": ("resnet18-cifar.v100.fp32.b128.csv", 8.0, 128),
}
"""Profile that is slept through, times slower; its batch."""

DEVICE = """schema = "perfsim/device/1"
name = "emulated"
title = "layers that sleep"
aliases = []
memory = "16GiB"
references = []
[memory_bandwidth]
value = "1000000 GB/s"
kind = "derived"
source = "no elementwise kernel is run"
[launch]
value = "1 ns"
kind = "derived"
source = "no elementwise kernel is run"
[rates.fp32]
peak = "1000000 TFLOP/s"
source = "no product is run"
"""

KERNELS = """# schema: perfsim/kernels/1
# gpu: emulated
# licence: own
kernel,elements,width,time_us,kind,software,source,note
"""
POINT = "{},{},{},{:.6g},derived,none,what the emulated GPU sleeps,\n"


def kernels() -> str:
    """Return the kernel points of the emulated GPU: top-k as `select_s`, the rest nothing."""
    from select_time import select_s

    rows = [POINT.format("topk_old", 2**k, 0, select_s(2**k) * 1e6) for k in range(6, 28)]
    for kernel in ("gram_schmidt", "qr"):
        rows += [POINT.format(kernel, size, 4, 0.001) for size in (1000, 1000000)]
    return KERNELS + "".join(rows)


@dataclass(frozen=True)
class Scheme:
    """A case as the emulated job runs it, and as perfsim is asked."""

    name: str
    runs: dict[str, Any]
    asks: dict[str, Any]


def _dense(method: str, bucket: int, asked: str, **more: Any) -> Scheme:
    runs = {"method": method, "bucket_mb": bucket, **({"options": more} if more else {})}
    return Scheme(f"{method} {bucket} MB", runs, {"method": asked, "bucket": f"{bucket}MiB"})


SCHEMES = {
    "ddp1": _dense("ddp", 1, "ssgd"),
    "ddp5": _dense("ddp", 5, "ssgd"),
    "ddp25": _dense("ddp", 25, "ssgd"),
    "fp16": _dense("fp16", 25, "fp16"),
    "topk": Scheme(
        "topk 1 %",
        {"method": "topk", "bucket_mb": 25, "options": {"density": 0.01}},
        {"method": "topk", "options": {"density": 0.01, "kernel": "old"}},
    ),
    "powersgd": Scheme(
        "powersgd rank 4",
        {"method": "powersgd", "bucket_mb": 25, "options": {"rank": 4}},
        {"method": "powersgd", "options": {"rank": 4}},
    ),
    "acpsgd": Scheme(
        "acpsgd rank 4",
        {"method": "acpsgd", "bucket_mb": 25, "options": {"rank": 4}},
        {"method": "acpsgd", "options": {"rank": 4, "orthogonalisation": "qr"}},
    ),
    "cpsgd": Scheme(
        "cpsgd every 4",
        {"method": "cpsgd", "bucket_mb": 25, "options": {"interval": 4}},
        {"method": "cpsgd", "options": {"interval": 4}},
    ),
    "dear": Scheme(
        "dear 25 MB",
        {"method": "dear", "bucket_mb": 25},
        {"method": "dear", "fusion": "size", "bucket": "25MiB"},
    ),
}


@dataclass
class Setting:
    """One cluster, one model, and the schemes run there; ``net`` is what predicts it.

    ``narrower`` predicts it from a network calibrated at so many times its rate.
    """

    hosts: int
    rate: str
    model: str
    schemes: tuple[str, ...]
    seen: bool = False
    net: str = ""
    narrower: float = 1.0
    calibrated: str = ""

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.hosts} hosts, {self.rate}, {self.model}"


ALL = tuple(SCHEMES)
FULL = (
    Setting(4, "1gbit", "resnet50", ("ddp1", "ddp5", "ddp25"), seen=True),
    Setting(4, "1gbit", "resnet50", ("fp16", "topk", "powersgd", "acpsgd", "cpsgd", "dear")),
    Setting(8, "1gbit", "resnet50", ALL),
    Setting(4, "1gbit", "resnet18-cifar", ALL),
    Setting(4, "500mbit", "resnet50", ALL, narrower=2.0, calibrated="1gbit"),
    Setting(4, "100mbit", "vgg16-cifar", ("ddp5", "ddp25", "topk", "powersgd", "acpsgd", "cpsgd")),
    Setting(8, "100mbit", "vgg16-cifar", ("ddp25", "topk", "powersgd", "acpsgd", "cpsgd")),
)
SHORT = (Setting(2, "1gbit", "resnet18-cifar", ("ddp25", "topk", "acpsgd"), seen=True),)


class Bench:
    """Folders of profiles and networks, and the commands that fill them."""

    def __init__(self, work: Path, budget_s: float, blocks: int) -> None:
        self.work, self.budget_s, self.blocks = work, budget_s, blocks
        self.profiles = work / "profiles"
        for folder in ("devices", "networks", "models"):
            (self.profiles / folder).mkdir(parents=True, exist_ok=True)
        (self.profiles / "devices" / "emulated.toml").write_text(DEVICE)
        (self.profiles / "devices" / "emulated.kernels.csv").write_text(kernels())

    def environ(self, model: str) -> dict[str, str]:
        """Return what every process of a job is told."""
        file, slower, _ = MODELS[model]
        return {
            "SLEEPING": str(shipped() / "models" / file),
            "SLOWER": str(slower),
            "PYTHONPATH": f"{HERE.parents[1]}:{HERE}",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }

    def network(self, counts: Sequence[int], rate: str, most: str) -> str:
        """Calibrate a network at some numbers of hosts and return its name."""
        name = f"emulated-{rate}"
        if (self.profiles / "networks" / f"{name}.toml").exists():
            return name
        logs = []
        for count in counts:
            part = f"{name}-{count}"
            asked = ["--out", f"{part}.toml", "--max", most, "--budget", f"{self.budget_s}s"]
            with Hosts(count, rate, self.work) as hosts:
                self._do(hosts, ["ring_sweep.py", *asked, "--force", "--fresh"], "resnet50", part)
            logs.append(str(self.work / f"{part}.curves.csv"))
        from perfsim.calibrate.importing import import_files

        import_files(
            [Path(log) for log in logs], name, folder=self.profiles / "networks", transport="tcp"
        )
        return name

    def compute(self, count: int, rate: str, model: str) -> Path:
        """Calibrate computation on so many hosts at once; return the folder of its profile."""
        folder = self.work / f"compute-{count}-{model}"
        if folder.exists():
            return folder
        _, _, batch = MODELS[model]
        asked = ["-m", "perfsim", "calibrate", "compute", "--model", "sleeping:model"]
        asked += ["--batch", str(batch), "--repeats", "8", "--device", "cpu", "--name", model]
        asked += ["--gpu", "emulated", "--out"]
        shutil.rmtree(self.work / "rank0", ignore_errors=True)
        with Hosts(count, rate, self.work) as hosts:
            self._do(hosts, [*asked, "mine", "--force"], model, f"compute-{count}", own=True)
        shutil.copytree(self.profiles, folder)
        for path in (self.work / "rank0" / "mine" / "models").glob(f"{model}.*"):
            shutil.copy(path, folder / "models")
        return folder

    def run(self, setting: Setting) -> dict[str, list[float]]:
        """Train for real; return the seconds an iteration of each block, by scheme."""
        cases = [json.dumps({**SCHEMES[name].runs, "name": name}) for name in setting.schemes]
        with Hosts(setting.hosts, setting.rate, self.work) as hosts:
            text = self._do(hosts, ["worker.py", str(self.blocks), *cases], setting.model, "train")
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {one["name"]: one["seconds"] for one in found}

    def predict(self, setting: Setting, scheme: Scheme, profiles: Path) -> float:
        """Return perfsim's seconds an iteration."""
        from perfsim import predict
        from perfsim.scenario import make_scenario

        asked = {
            "model": setting.model,
            "gpu": "emulated",
            "gpus": setting.hosts,
            "gpus_per_node": 1,
            "net": setting.net,
            **scheme.asks,
        }
        if setting.narrower != 1.0:
            asked["oversubscription"] = setting.narrower
        return float(predict(make_scenario(asked), Catalog(profiles)).iteration_s)

    def _do(
        self,
        hosts: Hosts,
        arguments: Sequence[str],
        model: str,
        label: str,
        own: bool = False,
    ) -> str:
        script = HERE / arguments[0]
        command = [str(script), *arguments[1:]] if script.exists() else list(arguments)
        job = hosts.run(command, environ=self.environ(model), label=label, own_folders=own)
        codes = job.wait(900)
        if any(codes):
            raise SystemExit(f"{label} failed {codes}: {job.text(0)[-2000:]}{job.text(1)[-500:]}")
        return job.text(0)


def measure(bench: Bench, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Run the settings and yield a row a scheme."""
    for setting in settings:
        counts = (2, 4) if setting.hosts > 2 else (2,)
        rate = setting.calibrated or setting.rate
        most = "64MiB" if rate == "1gbit" else "16MiB"
        setting.net = bench.network(counts, rate, most)
        profiles = bench.compute(setting.hosts, setting.rate, setting.model)
        for path in (bench.profiles / "networks").iterdir():
            shutil.copy(path, profiles / "networks")
        measured = bench.run(setting)
        for name in setting.schemes:
            seconds = measured[name]
            middle = median(seconds)
            predicted = bench.predict(setting, SCHEMES[name], profiles)
            yield {
                "setting": setting.name,
                "seen": setting.seen,
                "scheme": SCHEMES[name].name,
                "measured_s": middle,
                "spread": (max(seconds) - min(seconds)) / 2 / middle,
                "predicted_s": predicted,
                "error": predicted / middle - 1,
            }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows and what they add up to, in words."""
    lines = [
        f"{'setting':34s} {'scheme':16s} {'measured':>10s} {'+-':>6s} {'predicted':>10s} error"
    ]
    lines += [
        f"{row['setting']:34s} {row['scheme']:16s} {row['measured_s'] * 1e3:7.0f} ms"
        f" {row['spread']:6.1%} {row['predicted_s'] * 1e3:7.0f} ms {row['error']:+.1%}"
        for row in rows
    ]
    for seen, title in ((True, "DDP, network fitted at the same hosts"), (False, "unseen")):
        errors = [abs(row["error"]) for row in rows if row["seen"] == seen]
        if errors:
            ninth = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
            lines.append(
                f"{title}: {len(errors)} cases, mean {mean(errors):.1%}, median"
                f" {median(errors):.1%}, p90 {ninth:.1%}, worst {max(errors):.1%}"
            )
    right, pairs = ranking(rows)
    lines.append(f"ranking: of {pairs} pairs that differ by more than 10 %, {right} right")
    return "\n".join(lines)


def ranking(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return how many pairs of schemes of one setting are ranked right, of how many."""
    right = pairs = 0
    for name in {row["setting"] for row in rows}:
        for one, two in combinations([row for row in rows if row["setting"] == name], 2):
            measured = one["measured_s"] / two["measured_s"]
            if max(measured, 1 / measured) > 1.10:
                pairs += 1
                right += (measured > 1) == (one["predicted_s"] > two["predicted_s"])
    return right, pairs


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two hosts, one model")
    parser.add_argument("--out", type=Path, help="also write the rows here, as JSON lines")
    parser.add_argument("--work", type=Path, help="folder to keep what was measured in")
    parser.add_argument("--blocks", type=int, default=5, help="repeats of a scheme")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of settings, from 0")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"compare: {reason}")
    work = given.work or Path(tempfile.mkdtemp(prefix="perfsim-e2e-"))
    work.mkdir(parents=True, exist_ok=True)
    settings = SHORT if given.short else FULL
    if given.only is not None:
        settings = tuple(settings[place] for place in given.only)
    rows = []
    bench = Bench(work.resolve(), 30.0 if given.short else 90.0, given.blocks)
    for row in measure(bench, settings):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(table(rows))
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
