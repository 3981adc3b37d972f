"""Hold adapters against PEFT: parameters, operations and what the backward pass waits for.

``python tests/scripts/lora_against_peft.py`` prints a line a kind of model and choice of layers:
trained parameters, floating-point operations of a forward and a backward pass, and bytes kept for
the backward pass in bf16 and fp32, each as perfsim counts it over what PyTorch counts for the same
model with PEFT's LoRA (``FlopCounterMode``, saved-tensor hooks), `BATCH` x `TOKENS` tokens on the
CPU, with the output layer for operations and without for memory. Adapters have the type of the
model (``autocast_adapter_dtype=False``) and no dropout. Attention keeps what its kernel on a GPU
keeps (`memory_against_pytorch`); its operations are left out on both sides. What stands
before the first adapter needs no gradient; perfsim counts it as in all other blocks. It needs
``pip install torch 'transformers>=5.24,<6' peft``. `lora_against_peft.txt` has what it printed
last.
"""

from __future__ import annotations

from typing import Any

from against_transformers import Config, layers_of
from memory_against_pytorch import BATCH, OUTPUT, TOKENS, as_on_a_gpu, proportioned

from perfsim.compute.execution import execution_of
from perfsim.compute.memory import activation_bytes
from perfsim.compute.work import work_of
from perfsim.models.adapters import Adapters, with_adapters

RANK, LAYERS = 16, 12
SOFTWARE = "torch2"
CHOICES = (
    ("llama", "all"),
    ("llama", "q_proj,v_proj"),
    ("qwen3", "all"),
    ("qwen3", "attention"),
    ("mistral", "mlp"),
    ("gpt2", "all"),
    ("phi", "all"),
    ("olmo2", "q_proj,k_proj,v_proj,o_proj"),
    ("gemma2", "all"),
    ("cohere", "all"),
    ("qwen3_moe", "attention"),
    ("bert", "query,value"),
)
"""Kinds of models, and the layers that have adapters."""
_TARGETS: dict[str, Any] = {
    "all": "all-linear",
    "attention": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "mlp": ["gate_proj", "up_proj", "down_proj"],
}
"""The words of `lora_layers` as PEFT has them (target_modules)."""


class Counted:
    """Trained parameters, operations, and bytes kept for the backward pass by precision."""

    def __init__(self, parameters: int, flops: float, kept: dict[str, float]) -> None:
        self.parameters, self.flops, self.kept = parameters, flops, kept


def by_peft(config: Config, which: str) -> Counted:
    """Return what PyTorch counts."""
    import peft
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    transformers.logging.set_verbosity_error()
    made = transformers.AutoConfig.for_model(**config)
    targets = _TARGETS.get(which, which.split(","))
    if config["model_type"] == "gpt2" and which == "all":  # PEFT looks for the body in the whole
        targets = ["c_attn", "c_proj", "c_fc"]
    lora = peft.LoraConfig(r=RANK, target_modules=targets, lora_dropout=0.0)
    words = torch.randint(0, 512, (BATCH, TOKENS))
    usual = {} if config["model_type"] == "bert" else {"use_cache": False}

    def adapted(kind: Any, dtype: Any) -> Any:
        model = kind.from_config(made).to(dtype).train()
        return peft.get_peft_model(model, lora, autocast_adapter_dtype=False)

    whole = transformers.AutoModelForCausalLM
    if config["model_type"] == "bert":
        whole = transformers.AutoModel
    model = adapted(whole, torch.float32)
    parameters = sum(one.numel() for one in model.parameters() if one.requires_grad)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=words, **usual)[0].sum().backward()
    kept = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        body = adapted(transformers.AutoModel, dtype)
        own = {one.untyped_storage().data_ptr() for one in (*body.parameters(), *body.buffers())}
        found: dict[int, Any] = {}

        def keep(tensor: Any, own: set[int] = own, found: dict[int, Any] = found) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            body(input_ids=words, **usual)
        kept[name] = float(sum(storage.nbytes() for storage in found.values()))
    return Counted(parameters, float(counter.get_total_flops()), kept)


def by_perfsim(config: Config, which: str) -> Counted:
    """Return what perfsim counts for the same layers."""
    layers = with_adapters(layers_of(config, TOKENS), Adapters(RANK, which))
    body = [one for one in layers if not one.name.startswith(OUTPUT)]
    of = body if config["model_type"] == "bert" else layers
    work = work_of(of, SOFTWARE)
    flops = sum(one.flops * count for one, count in work.counted if one.kind == "product")
    execution = execution_of(SOFTWARE)
    kept = {
        name: activation_bytes(body, BATCH, name, execution, loss=False).kept
        for name in ("bf16", "fp32")
    }
    return Counted(sum(one.trained_elements for one in of), BATCH * flops, kept)


def main() -> None:
    """Print a line a kind and choice: perfsim's figures over PyTorch's."""
    as_on_a_gpu()
    import peft
    import torch
    import transformers

    print(f"peft {peft.__version__}, transformers {transformers.__version__}, PyTorch", end=" ")
    print(torch.__version__)
    print(
        f"{'model_type':12}{'layers':30}{'parameters':>11}{'operations':>11}{'bf16':>7}{'fp32':>7}"
    )
    for kind, which in CHOICES:
        config = proportioned(kind)
        config |= {key: LAYERS for key in ("num_hidden_layers", "n_layer") if key in config}
        ours, theirs = by_perfsim(config, which), by_peft(config, which)
        shares = [ours.kept[name] / theirs.kept[name] for name in ("bf16", "fp32")]
        print(
            f"{kind:12}{which:30}{ours.parameters / theirs.parameters:11.3f}"
            f"{ours.flops / theirs.flops:11.3f}" + "".join(f"{share:7.3f}" for share in shares),
            flush=True,
        )


if __name__ == "__main__":
    main()
