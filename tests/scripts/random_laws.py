"""Ask random scenarios of today's training, and hold the answers to laws.

``python tests/scripts/random_laws.py [--seed N] [--count N]`` draws scenarios of models, nodes,
GPUs, parallelism, methods, precisions and software. One that is refused says why and counts for
nothing. Of each other it asks that

- nothing but an error of perfsim's own ends it, and its iteration lies in its interval;
- a faster link, between nodes or inside, no straggler, no other traffic, no imbalance, a newer
  board are no slower. What kernels of compression take longer on a newer board is left out: those
  of each board were measured on a host of its own, whose launches take 16 us on the H100's and
  fewer on an older board's (`profiles/devices/*.kernels.csv`). Nor does it count if a link inside
  nodes that lets the host bind costs 2 %: the host's launches are spread over layers as the GPU's
  work is;
- more samples, a longer sample, more micro-batches, recomputation, a copy to the host are no
  quicker, and twice the samples or micro-batches take at most twice as long;
- recomputation and a copy to the host hold no more on a GPU, more or longer samples no less. Twice
  the GPUs of a method that shards hold no more, nor does twice the tensor parallelism. Buffers of
  NCCL are left out, and 2 % more do not count for recomputation: a block that is computed again
  counts whole beside the gradients of all blocks, which without it come as activations go;
- low-rank factors and signs send no more than dense gradients, and a denser choice of values no
  less;
- a global batch that is divided among twice the GPUs is computed no longer by each;
- a scenario in a file, asked of the command line, has the same answer (one in 20 is asked so).

It prints each scenario that breaks a law by more than 1 % (`_SLACK`), and how many were asked. It
ends with 1 if there was any. `random_laws.txt` has what it printed last.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from perfsim.cli.main import code
from perfsim.errors import PerfsimError
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.session import Session

__all__ = ["Law", "asked_of_the_command_line", "broken", "drawn", "variations"]

_SLACK = 0.01
"""How far a law may be off: residuals of measured iterations move by less than this from one batch
or length to the next, and passes are slowed by messages as if each was sent at its moment."""
_BLOCKS = "transformer:layers=12,hidden=1024,heads=16,vocab=50257,seq=1024"
_EXPERTS = (
    "transformer:layers=24,hidden=2048,heads=16,kv=4,ffn=5632,vocab=32000,gated=yes,norm=rms,"
    "seq=4096,experts=8,topk=2,expert_ffn=5632"
)
_MODELS = [
    *("llama3-8b", "llama3.2-1b", "qwen2.5-7b", "llama3-70b", "qwen3-0.6b", "olmo2-7b", "gpt2-xl"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite", "bert-large", "t5-large"),
    *("gemma2-9b", "dit-b2", "vit-b16", "resnet50", _BLOCKS, _EXPERTS),
]
_GPUS = ["a100", "h100", "h200", "b200", "v100", "l40s", "rtx4090", "mi300x", "gb200", "a10g", "t4"]
_NODES = ["dgx-h100", "dgx-a100", "dgx-b200", "a3-mega", "alps", "dgx-1", "eth-100g"]
_NETWORKS = ["1gbe", "10gbe", "ib100", "100Gbit/s,5us", "25Gbit/s,20us"]
_METHODS = [
    *("ssgd", "fsdp", "zero", "distributed_optimizer", "hybrid_zero", "zeropp", "powersgd", "topk"),
    *("dgc", "diloco", "localsgd", "dear", "mgwfbp", "distributed_muon", "onebit_adam", "qsgd"),
]
_SOFTWARE = [
    *("torch2", "megatron", "torch2-compiled", "torch1.12", "mlperf", "torch2+flash2"),
    *("torch2+liger", "torch2+dtensor", "torch2+loop", "torch2-compiled+blocks"),
    "torch2+channels-last",
]
_FIELDS: dict[str, tuple[list[Any], float]] = {
    "batch": ([1, 2, 3, 4, 8, 16], 0.8),
    "seq": ([512, 1024, 2048, 4096], 0.3),
    "precision": (["bf16", "amp-bf16", "fp8", "fp16", "fp32", "tf32", "amp-fp16", "nvfp4"], 0.6),
    "accumulate": ([2, 3, 4, 8], 0.4),
    "recompute": (["full", "selective", "full:2"], 0.3),
    "optimizer": (["adamw-fused", "sgd", "lamb", "adafactor", "muon"], 0.3),
    "method": (_METHODS, 0.7),
    "tp": ([2, 4, 8], 0.25),
    "pp": ([2, 4], 0.15),
    "cp": ([2, 4], 0.1),
    "ep": ([2, 4, 8], 0.2),
    "etp": ([1], 0.05),
    "lora": ([8, 64], 0.1),
    "software": (_SOFTWARE, 0.4),
    "offload": (["optimizer", "checkpoints", "activations:2", "parameters"], 0.1),
    "reduce_dtype": (["bf16", "fp16"], 0.15),
    "exchange_each": ([True, False], 0.1),
    "tp_overlap": ([True], 0.1),
    "imbalance": ([1.2], 0.1),
    "dispatcher": (["deepep", "hybridep"], 0.1),
    "oversubscription": ([2.0], 0.05),
    "straggler": (["1:1.5"], 0.05),
    "background": ([0.3], 0.05),
}
"""Values of each field, and how often it is stated."""
_NEWER = {"v100": "a100", "a100": "h100", "h100": "b200"}
_FASTER = {
    "1gbe": "100Gbit/s,5us",
    "10gbe": "100Gbit/s,5us",
    "25Gbit/s,20us": "25Gbit/s,5us",
    "100Gbit/s,5us": "400Gbit/s,5us",
}
_INSIDE = "200Gbit/s,5us", "1600Gbit/s,5us"
_SHARDING = ("fsdp", "zero", "distributed_optimizer", "zeropp")
_ANY = math.inf
_ASKED_OF_THE_COMMAND_LINE = 20
"""Every so many scenarios are asked of the command line too."""


def drawn(seed: int) -> Iterator[dict[str, Any]]:
    """Yield random scenarios, the same for each seed."""
    choice = random.Random(seed)
    while True:
        fields: dict[str, Any] = {"model": choice.choice(_MODELS)}
        if choice.random() < 0.4:
            fields["node"] = choice.choice(_NODES)
        else:
            fields |= {"gpu": choice.choice(_GPUS), "net": choice.choice(_NETWORKS)}
            fields["gpus_per_node"] = choice.choice([1, 2, 4, 8])
        fields["gpus"] = choice.choice([1, 2, 4, 8, 8, 16, 16, 32, 64])
        for field, (values, often) in _FIELDS.items():
            if choice.random() < often:
                fields[field] = choice.choice(values)
        yield fields


class Law(NamedTuple):
    """A law: what is asked beside a scenario, and how many times as much it may be.

    Parameters
    ----------
    name : in words
    after : the fields that are asked
    least, most : the ratio of what is looked at, after to before
    of : what is looked at
    before : the fields that it is beside; None: the scenario itself
    allowed : how much more than the ratio says it may be, of the answers before and after
    """

    name: str
    after: dict[str, Any]
    least: float
    most: float
    of: Callable[[Prediction], float] = lambda answer: answer.iteration_s
    before: dict[str, Any] | None = None
    allowed: Callable[[Prediction, Prediction], float] = lambda before, after: 0.0


def _memory(answer: Prediction) -> float:
    """Return what the model keeps; buffers of NCCL's come with each group of GPUs."""
    return sum(answer.memory_bytes.values()) - answer.memory_bytes["overhead"]


def _sent(answer: Prediction) -> float:
    return answer.communication["bytes_per_gpu"]


def _computed(answer: Prediction) -> float:
    return answer.breakdown_s["forward"] + answer.breakdown_s["backward"]


def _compressed_longer(before: Prediction, after: Prediction) -> float:
    longer_s = after.breakdown_s["compression"] - before.breakdown_s["compression"]
    return max(0.0, longer_s)


def variations(fields: dict[str, Any]) -> Iterator[Law]:
    """Yield what is asked beside a scenario."""

    def without(field: str) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name != field}

    if fields.get("net") in _FASTER:
        yield Law("a faster link", {**fields, "net": _FASTER[fields["net"]]}, 0.0, 1.0)
    if fields.get("gpus_per_node", 1) > 1:
        slow, fast = ({**fields, "intra_net": net} for net in _INSIDE)
        yield Law("a faster link inside nodes", fast, 0.0, 1.01, before=slow)
    for field in ("straggler", "background", "imbalance", "oversubscription", "offload"):
        if field in fields:
            yield Law(f"without {field}", without(field), 0.0, 1.0)
    if "offload" in fields:
        yield Law("without offload: memory", without("offload"), 1.0, _ANY, _memory)
    if fields.get("gpu") in _NEWER:
        newer = {**fields, "gpu": _NEWER[fields["gpu"]]}
        yield Law("a newer board", newer, 0.0, 1.0, allowed=_compressed_longer)
    if "batch" in fields:
        more = {**fields, "batch": 2 * fields["batch"]}
        yield Law("twice the samples", more, 1.0, 2.0)
        yield Law("twice the samples: memory", more, 1.0, _ANY, _memory)
    if "seq" in fields:
        longer = {**fields, "seq": 2 * fields["seq"]}
        yield Law("longer samples", longer, 1.0, _ANY)
        yield Law("longer samples: memory", longer, 1.0, _ANY, _memory)
    many = {**fields, "accumulate": 2 * fields.get("accumulate", 1)}
    # Gradients of several are added up besides, where no sum of its own has them anyway.
    yield Law("twice the micro-batches", many, 1.0, 2.05)
    if "recompute" not in fields:
        again = {**fields, "recompute": "full"}
        yield Law("recomputation", again, 1.0, _ANY)
        yield Law("recomputation: memory", again, 0.0, 1.01, _memory)
    yield from _of_more_gpus(fields)
    yield from _of_messages(fields)


def _of_more_gpus(fields: dict[str, Any]) -> Iterator[Law]:
    """Yield the laws of twice the GPUs."""
    gpus = {**fields, "gpus": 2 * fields["gpus"]}
    apart = math.prod(fields.get(degree, 1) for degree in ("tp", "pp", "cp"))
    if fields.get("method") in _SHARDING and fields["gpus"] > apart:  # alone a GPU shards nothing
        yield Law("twice the GPUs: memory", gpus, 0.0, 1.0, _memory)
    if "tp" in fields:
        more = {**gpus, "tp": 2 * fields["tp"]}
        yield Law("twice the tensor parallelism: memory", more, 0.0, 1.0, _memory)
    # Messages of a node's own are others than those between nodes, and slow computation otherwise.
    # Where a divided model waits for messages, the host's launches count as waits.
    several = fields["gpus"] > fields.get("gpus_per_node", fields["gpus"])
    several = several and not fields.keys() & {"tp", "cp"}
    if fields.get("batch", 1) % 2 == 0 and several:
        half = {**gpus, "batch": fields["batch"] // 2}
        yield Law("half the samples on twice the GPUs: computation", half, 0.0, 1.0, _computed)


def _of_messages(fields: dict[str, Any]) -> Iterator[Law]:
    """Yield the laws of what is sent."""
    method = fields.get("method")
    if method in ("powersgd", "onebit_adam"):
        # What is compressed is fp32, whatever the type in which dense gradients are sent.
        dense, few = ({**fields, "method": one, "reduce_dtype": "fp32"} for one in ("ssgd", method))
        yield Law(f"{method} sends no more", few, 0.0, 1.0, _sent, dense)
    if method in ("topk", "dgc"):
        few, many = ({**fields, "options": {"density": one}} for one in (0.001, 0.01))
        yield Law("a denser choice of values: sent", many, 1.0, _ANY, _sent, few)
        for one in (few, many):
            one["software"] = "torch2"
        yield Law("a denser choice of values", many, 1.0, _ANY, before=few)


def broken(fields: dict[str, Any], session: Session) -> list[str] | None:
    """Return the laws that a scenario breaks; None where it is refused."""
    try:
        answer = predict(make_scenario(fields), session)
    except PerfsimError:
        return None
    low_s, high_s = answer.iteration_s_interval
    found = [] if low_s <= answer.iteration_s <= high_s else ["its iteration is in its interval"]
    for law in variations(fields):
        try:
            before = predict(make_scenario(law.before), session) if law.before else answer
            after = predict(make_scenario(law.after), session)
        except PerfsimError:
            continue
        one, other = law.of(before), law.of(after)
        other -= min(law.allowed(before, after), max(0.0, other - one))
        ratio = other / one if one else 1.0 + other
        if not law.least * (1 - _SLACK) <= ratio <= law.most * (1 + _SLACK):
            found.append(f"{law.name}: {ratio:.3f} times as much")
    return found


def asked_of_the_command_line(fields: dict[str, Any]) -> float:
    """Return the iteration that the command line answers of a scenario in a file [s]."""
    lines = ['schema = "perfsim/scenario/1"', 'title = "one of many"', "[scenario]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "asked.toml")
        path.write_text("\n".join(lines) + "\n")
        with contextlib.redirect_stdout(printed):
            left = code(["predict", str(path), "--json"])
    if left:
        raise ValueError(f"the command line ended with {left}")
    return float(json.loads(printed.getvalue())["iteration_s"])


def main() -> None:
    """Ask random scenarios, and print what breaks a law."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    parser.add_argument("--count", type=int, default=1000, help="scenarios")
    given = parser.parse_args()
    session, asked = Session(), Counter[str]()
    for fields, number in zip(drawn(given.seed), range(given.count), strict=False):
        try:
            laws = broken(fields, session)
            if laws is not None and number % _ASKED_OF_THE_COMMAND_LINE == 0:
                told_s = asked_of_the_command_line(fields)
                if told_s != predict(make_scenario(fields), session).iteration_s:
                    laws.append(f"the command line says {told_s} s")
        except Exception as error:
            laws = [f"an error of perfsim's own: {error!r}"]
        asked["refused" if laws is None else "answered"] += 1
        for law in laws or ():
            asked["broken"] += 1
            print(f"{law}\n    {json.dumps(fields)}")
    print(", ".join(f"{asked[name]} {name}" for name in ("answered", "refused", "broken")))
    sys.exit(1 if asked["broken"] else 0)


if __name__ == "__main__":
    main()
