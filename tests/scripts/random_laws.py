"""Ask random scenarios of today's training, and hold the answers to laws.

``python tests/scripts/random_laws.py [--seed N] [--count N]`` draws scenarios of models, nodes,
GPUs, parallelism, methods, precisions and software. One that is refused says why and counts for
nothing. Of each other it asks that

- nothing but an error of perfsim's own ends it, and its iteration lies in its interval;
- a faster link, no straggler, no other traffic, no imbalance, a newer board are no slower;
- more samples, a longer sample, more micro-batches, recomputation, a copy to the host are no
  quicker, and twice the samples or micro-batches take at most twice as long.

It prints each scenario that breaks a law by more than 1 % (`_SLACK`), and how many were asked. It
ends with 1 if there was any. `random_laws.txt` has what it printed last.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfsim.errors import PerfsimError
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session

__all__ = ["broken", "drawn", "variations"]

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


def variations(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Yield what is asked beside a scenario: its law, its fields, the least and greatest ratio."""

    def without(field: str) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name != field}

    if fields.get("net") in ("1gbe", "10gbe"):
        yield "a faster link", {**fields, "net": "100Gbit/s,5us"}, 0.0, 1.0
    for field in ("straggler", "background", "imbalance", "oversubscription", "offload"):
        if field in fields:
            yield f"without {field}", without(field), 0.0, 1.0
    if fields.get("gpu") in _NEWER:
        yield "a newer board", {**fields, "gpu": _NEWER[fields["gpu"]]}, 0.0, 1.0
    if "batch" in fields:
        yield "twice the samples", {**fields, "batch": 2 * fields["batch"]}, 1.0, 2.0
    if "seq" in fields:
        yield "longer samples", {**fields, "seq": 2 * fields["seq"]}, 1.0, float("inf")
    more = 2 * fields.get("accumulate", 1)
    # Gradients of several are added up besides.
    yield "twice the micro-batches", {**fields, "accumulate": more}, 1.0, 2.05
    if "recompute" not in fields:
        yield "recomputation", {**fields, "recompute": "full"}, 1.0, float("inf")


def broken(fields: dict[str, Any], session: Session) -> list[str] | None:
    """Return the laws that a scenario breaks; None where it is refused."""
    try:
        answer = predict(make_scenario(fields), session)
    except PerfsimError:
        return None
    low_s, high_s = answer.iteration_s_interval
    found = [] if low_s <= answer.iteration_s <= high_s else ["its iteration is in its interval"]
    for law, other, least, most in variations(fields):
        try:
            ratio = predict(make_scenario(other), session).iteration_s / answer.iteration_s
        except PerfsimError:
            continue
        if not least * (1 - _SLACK) <= ratio <= most * (1 + _SLACK):
            found.append(f"{law}: {ratio:.3f} times as long")
    return found


def main() -> None:
    """Ask random scenarios, and print what breaks a law."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    parser.add_argument("--count", type=int, default=1000, help="scenarios")
    given = parser.parse_args()
    session, asked = Session(), Counter[str]()
    for fields, _ in zip(drawn(given.seed), range(given.count), strict=False):
        try:
            laws = broken(fields, session)
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
