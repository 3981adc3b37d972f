"""``perfsim calibrate compute``: from a model's name to its measured profile on this device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.compute.measure import Measured, measure_compute
from perfsim.calibrate.compute.profile_of import positions_text, profile_text
from perfsim.calibrate.compute.ranks import find_ranks
from perfsim.calibrate.compute.subject import find_subject, named_parts
from perfsim.calibrate.gpu_name import device_name
from perfsim.calibrate.torch_device import torch_device
from perfsim.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.files import write_text
from perfsim.profile_file import read_profile

__all__ = ["Profiled", "calibrate_compute"]

SCHEMA = "perfsim/calibrate-compute/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Profiled:
    """The files written, and what was measured."""

    profile: Path
    positions: Path
    measured: Measured

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate compute --json`` prints."""
        measured = self.measured
        return {
            "schema": SCHEMA,
            "profile": str(self.profile),
            "positions": str(self.positions),
            "iteration_s": measured.iteration_s,
            "iteration_relative_half_width": measured.spread,
            "ranks": measured.ranks,
            "samples_per_s": measured.subject.samples / measured.iteration_s,
            "marked_over_whole": measured.marked,
            "forward_s": measured.moments.forward_s,
            "backward_s": measured.moments.backward_s,
            "optimizer_s": measured.moments.update_s,
            "gradients": len(measured.moments.ready_s),
            "without_gradient": list(measured.unused),
            "peak_memory_bytes": measured.peak_bytes,
        }


def calibrate_compute(
    model: str,
    batch: int,
    *,
    precision: str = "fp32",
    sequence: int | None = None,
    optimizer: str = "sgd",
    repeats: int = 20,
    device: str | None = None,
    gpu: str | None = None,
    name: str | None = None,
    folder: Path = Path("profiles"),
    force: bool = False,
) -> Profiled | None:
    """Measure a model on this machine and write its profile and positions.

    As a job of several ranks (torchrun, srun, mpirun) all of them train side by side without
    exchanging anything, and the whole step is the slowest rank's: what a synchronous step waits
    for. Rank 0 writes; the others return None.

    Parameters
    ----------
    model : torchvision:resnet50, transformers:bert-base-uncased, timm:..., module:factory
    batch, sequence : samples, and tokens a sample where it has any
    precision, optimizer, repeats : see `measure_compute`
    device : cuda or cpu; None is a GPU if there is one
    gpu : name of the device in perfsim's words; None is found from what the driver says
    name : of the model in perfsim's words; None is made of ``model``
    folder : of profiles; files go below its models/
    force : replace a profile that is there

    Raises
    ------
    RequestError
        If the request cannot be met; nothing is written then.
    """
    torch, device = torch_device("calibrate compute", device)
    if batch < 1 or repeats < 3:
        raise RequestError("--batch must be at least 1 and --repeats at least 3.")
    ranks = find_ranks(os.environ)
    if device == "cuda":
        torch.cuda.set_device(ranks.local_rank % torch.cuda.device_count())
    word = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    gpu = gpu or device_name(word, Catalog().files("devices"))
    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", named_parts(model)[1])
    if not NAME.fullmatch(name):
        raise RequestError(f"--name: {name!r} is no name; letters, digits, '_' and '-'.")
    parts = [name, gpu, precision, f"b{batch}", *([f"s{sequence}"] if sequence else [])]
    path = folder / "models" / f"{'.'.join(parts)}.csv"
    if path.exists() and not force:
        raise RequestError(f"--out: {str(path)!r} is there already; --force replaces it.")
    measured = measure_compute(
        lambda: find_subject(model, batch, sequence, device),
        precision,
        optimizer,
        repeats,
        device,
        ranks,
    )
    ranks.close()
    if ranks.rank:
        return None
    about = {
        "model": name,
        "gpu": gpu,
        "precision": precision,
        "framework": _framework(torch, device),
        "source": f"perfsim calibrate compute --model {model} --optimizer {optimizer} on {word}",
        "licence": "the measurer's own",
        "date": date.today().isoformat(),
    }
    text = profile_text(measured, about)
    positions = folder / "models" / f"{name}.positions.csv"
    _write(path, text, positions, positions_text(measured, name, about["source"]))
    return Profiled(path, positions, measured)


def _write(path: Path, text: str, positions: Path, positions_csv: str) -> None:
    """Write both files whole, the profile only if it reads back."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out: {str(path.parent)!r}: {error.strerror}.") from None
    with TemporaryDirectory() as work:
        trial = Path(work) / path.name
        trial.write_text(text, encoding="utf-8")
        read_profile(trial)
    write_text(path, text)
    write_text(positions, positions_csv)


def _framework(torch: Any, device: str) -> str:
    parts = [f"PyTorch {torch.__version__}"]
    if device == "cuda":
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(parts)
