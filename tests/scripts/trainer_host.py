"""Time what Hugging Face's Trainer does on the host beside a model's passes, and where it waits.

``python tests/scripts/trainer_host.py`` prints a line a number of blocks of GPT-Neo: its modules,
the time from one micro-batch to the next of an update [ms], and how often such a micro-batch reads
a number of the GPU, for which the host waits until all before is done. The model has all its
modules, but its forward pass is one product, so that nearly all of the time is Trainer's:
``model.train()``, the number of parameters for its count of operations, Accelerate. Samples are
tensors already. In fp16 each update reads one number more, whether a gradient is infinite (PyTorch
2.13, torch/amp/grad_scaler.py, ``_maybe_opt_step``).
It needs ``pip install torch transformers accelerate``; `trainer_host.txt` has what it printed last,
by one core.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ACCUMULATED, UPDATES, SAMPLES, TOKENS = 16, 24, 2, 1024
BLOCKS = (6, 12, 24, 48)
READ = "_local_scalar_dense"
"""What the dispatcher calls to read a number."""


class Host(NamedTuple):
    """What Trainer takes for a micro-batch [s], and the numbers that it reads."""

    modules: int
    micro_batch_s: float
    reads: float


def run(blocks: int, read: Callable[[], int] = lambda: 0) -> Host:
    """Train a model of which only the output layer works, and return what Trainer takes.

    Parameters
    ----------
    read : how many numbers were read so far
    """
    import torch
    from transformers import GPTNeoConfig, GPTNeoForCausalLM, Trainer, TrainingArguments
    from transformers.modeling_outputs import CausalLMOutput
    from transformers.trainer_callback import PrinterCallback

    model = GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=64,
            num_layers=blocks,
            attention_types=[[["global", "local"], blocks // 2]],
            hidden_size=16,
            num_heads=2,
            max_position_embeddings=16,
        )
    )

    def forward(**_: Any) -> Any:
        return CausalLMOutput(loss=model.lm_head.weight.sum() * 0.0)

    model.forward = forward
    sample = {name: torch.ones(TOKENS, dtype=torch.long) for name in ("input_ids", "labels")}
    starts: list[float] = []
    reads: list[int] = []
    with tempfile.TemporaryDirectory() as place:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=place,
                per_device_train_batch_size=SAMPLES,
                gradient_accumulation_steps=ACCUMULATED,
                num_train_epochs=1,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=[sample] * (SAMPLES * ACCUMULATED * UPDATES),
        )
        trainer.remove_callback(PrinterCallback)
        whole = trainer.training_step

        def step(*given: Any, **named: Any) -> Any:
            starts.append(time.perf_counter())
            reads.append(read())
            return whole(*given, **named)

        trainer.training_step = step
        trainer.train()
    within = [at % ACCUMULATED < ACCUMULATED - 1 for at in range(len(starts) - 1)]
    took, found = (
        statistics.median(
            after - before
            for (before, after), inside in zip(pairwise(each), within, strict=True)
            if inside
        )
        for each in (starts, reads)
    )
    return Host(sum(1 for _ in model.modules()), took, found)


def main() -> None:
    """Print a line a number of blocks."""
    import torch
    import transformers

    from scripts.dispatched_calls import DispatchedCalls

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")
    print("blocks modules  ms a micro-batch  reads")
    with DispatchedCalls() as calls:
        counted = run(BLOCKS[0], lambda: calls.by_operation()[READ])
    for blocks in BLOCKS:
        one = run(blocks)
        print(f"{blocks:6}{one.modules:8}{1e3 * one.micro_batch_s:18.2f}{counted.reads:7.0f}")


if __name__ == "__main__":
    main()
