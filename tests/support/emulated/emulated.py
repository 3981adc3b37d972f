"""What perfsim knows of the emulated cluster: its GPU's files, calibrated networks and profiles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from perfsim.data.catalog import Catalog, shipped
from support.emulated.hosts import Hosts
from support.emulated.trainings import MODELS, SCHEMES, Scheme, Setting
from support.paths import ROOT, TESTS

__all__ = ["Bench"]

HERE = Path(__file__).resolve().parent

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
    from support.emulated.select_time import select_s

    rows = [POINT.format("topk_old", 2**k, 0, select_s(2**k) * 1e6) for k in range(6, 28)]
    for kernel in ("gram_schmidt", "qr"):
        rows += [POINT.format(kernel, size, 4, 0.001) for size in (1000, 1000000)]
    return KERNELS + "".join(rows)


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
            "PYTHONPATH": f"{ROOT}:{TESTS}:{HERE}",
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
        from perfsim.calibrate.import_logs import import_files

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
        results = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {result["name"]: result["seconds"] for result in results}

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
