"""The scenario: the one list of its fields, their checks, and the files that hold them.

`ScenarioFields` is the list. Everything that shows a field follows from it: the flag with its
`--help` and completion, the key of a TOML file, `--vary`, the JSON of a resolved scenario, the
columns of CSV tables and the documentation. To add a field, add it to the list and read it where
its physics is.

The list itself is plain data: `--help` reads it without loading pydantic. `Scenario`, the checked
model, is made of it when it is first asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from operator import attrgetter
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from perfsim.compute.node_load import INPUTS
from perfsim.compute.software import (
    ATTENTION_SINCE,
    BLOCKS,
    CHANNELS_LAST,
    DTENSOR,
    EFFICIENT,
    ERAS,
    LIGER,
    LOOP,
    MULTIHEAD,
    NEWEST,
    WITH,
    software_named,
)
from perfsim.errors import RequestError, own_name, rule, shown, unknown, unknown_option

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = [
    "DEFAULT_GPU",
    "DEFAULT_INTRA_NET",
    "OPTION_GROUPS",
    "SCENARIO_FIELDS",
    "SCHEDULE_FIELDS",
    "SHOWS_FIELDS",
    "Scenario",
    "ScenarioField",
    "ScenarioFields",
    "as_scenario",
    "fields_read_by",
    "given_fields",
    "gpu_words",
    "is_field",
    "make_scenario",
    "own_values",
    "parse_types",
    "python_value",
    "table_columns",
    "values_read_by",
    "with_checked",
]

DEFAULT_GPU = "v100"
"""The GPU where neither the scenario nor the network's file nor the model's profiles name one."""

DEFAULT_INTRA_NET = "pcie3"
"""The network inside a node where neither scenario, network file nor the GPU's file names one."""

OPTION_GROUPS = ("options", "fusion_options")
"""Fields that hold other fields, which are named ``options.density``."""

MAX_GPUS = 1_000_000
MAX_BATCH = 1_000_000
MAX_SEQUENCE = 2**24
"""Tokens a sample: above the longest context that a model is published with, the 10 million of
Llama 4 Scout (Meta, 2025-04-05)."""
MAX_MICRO_BATCHES = 4096
"""Micro-batches of an iteration. No source: chosen, above those of public runs (up to 512)."""
MAX_DEGREE = 65_536
"""Ranks of one kind of parallelism. No source: chosen, above those of any cluster of today."""
MAX_RANK = 65_536
"""Rank of adapters. No source: chosen, above the widths of the models here."""
MAX_NICS = 1024
"""NICs of a node. No source: chosen, above those of any rack of today."""
MAX_SITES = 256
"""Sites of a job. No source: chosen, far above those of any run so far (some 30)."""
MAX_BACKGROUND = 0.99
MAX_SEED = 2**32 - 1

MAX_JITTERED_GPUS = 16_384
"""GPUs whose computation can vary one by one: the draws of all their tasks are held in memory."""


class ScenarioField(NamedTuple):
    """What is known of a field besides its type and its default value.

    Parameters
    ----------
    help : what it is, as ``--help`` and the documentation say it
    read_by : the rooms (folders or modules of perfsim) that read it
    metavar : how its value is written in ``--help``
    default : its default in words, where no fixed value is the default
    flag : False where only scenario files have it
    complete : the things whose names complete it: models, gpus, networks, nodes, methods,
        fusions, scenarios
    min, max : the limits of a number
    nonempty : True where an empty text is refused
    read : makes the field's value of what was given, before its type is checked
    words : returns the words that it may be, one of which is taken in any case and with or
        without dashes
    check : returns the value, or refuses it, after its type and its words were checked
    vary : an example of a range of it, where a number means nothing without a unit
    lists : True where one value has commas itself, so that semicolons separate several
    mixed : False where it cannot be asked of GPUs of several types
    resolved : its key in a resolved scenario (JSON), where that is not its own name
    always : False where JSON leaves it out when it has its default
    column : False where tables (CSV, pandas) leave it out
    kind, value : its type and its default value, as the list has them; None in the list itself
    """

    help: str
    read_by: tuple[str, ...]
    metavar: str = ""
    default: str = ""
    flag: bool = True
    complete: str = ""
    min: float | None = None
    max: float | None = None
    nonempty: bool = False
    read: Callable[[Any, str], Any] | None = None
    words: Callable[[], Collection[str]] | None = None
    check: Callable[[Any, str], Any] | None = None
    vary: str = ""
    lists: bool = False
    mixed: bool = True
    resolved: str = ""
    always: bool = True
    column: bool = True
    kind: Any = None
    value: Any = None

    @property
    def repeated(self) -> bool:
        """Whether it holds several texts, each of which a flag gives."""
        return get_origin(self.kind) is tuple and str in get_args(self.kind)

    @property
    def switch(self) -> bool:
        """Whether it is true or false."""
        return bool in (self.kind, *get_args(self.kind))

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        """Return how pydantic checks: `read`, then type and limits, then `words` and `check`."""
        import pydantic
        from pydantic_core import core_schema

        ratio = self.max is not None and float in (kind, *get_args(kind))
        limits: dict[str, Any] = {
            "ge": self.min,
            "le": self.max,
            "min_length": 1 if self.nonempty else None,
            "allow_inf_nan": False if ratio else None,
        }
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        limited = Annotated[kind, pydantic.Field(**limits)] if limits else kind
        schema = handler.generate_schema(limited)
        field = handler.field_name
        if self.read is not None:
            read = partial(_with_field, self.read, field)
            schema = core_schema.no_info_before_validator_function(read, schema)
        for of_value in (partial(_one_of, self.words) if self.words else None, self.check):
            if of_value is None:
                continue
            check = partial(_unless_none, of_value, field)
            schema = core_schema.no_info_after_validator_function(check, schema)
        return schema


def _with_field(read: Callable[[Any, str], Any], field: str, value: Any) -> Any:
    return read(value, field)


def _unless_none(check: Callable[[Any, str], Any], field: str, value: Any) -> Any:
    return None if value is None else check(value, field)


def _one_of(words: Callable[[], Collection[str]], value: str, field: str) -> str:
    """Return the one of some words that a value is, in any case, with or without dashes."""
    allowed = words()
    if (word := own_name(value, allowed)) not in allowed:
        raise unknown(field, value, allowed)
    return word


_LAYER_NAMES = re.compile(r"\w{1,40}(,\w{1,40}){0,7}")
"""Names of layers, or words for several."""


def _layer_names(value: str, field: str) -> str:
    names = value.replace(" ", "")
    if not _LAYER_NAMES.fullmatch(names):
        why = "is no list of up to 8 names such as q_proj,v_proj."
        raise RequestError(field, why, value=value)
    return names


@dataclass_transform(kw_only_default=True)
def _has_fields(listed: type[Any]) -> type[Any]:
    """Tell type checkers that the class's annotations are arguments of the model made of it."""
    return listed


_dividing = partial(ScenarioField, read_by=("resolve",), mixed=False, always=False, column=False)
"""A field that says how the model is divided."""
_degree = partial(_dividing, metavar="N", min=1, max=MAX_DEGREE)
"""By how many ranks it is divided."""


@_has_fields
class ScenarioFields:
    """A model, a cluster, a method and its options: everything that a prediction depends on.

    A field that is None takes its default from the profile, the network file or the method;
    ``perfsim.resolve`` fills it in, and the prediction's notes say so.

    Examples
    --------
    >>> from perfsim import Scenario
    >>> asked = Scenario(model="resnet50", gpus=64, net="1gbe", bucket="4MiB")
    >>> asked.method, asked.overlap, asked.batch
    ('ssgd', True, None)
    >>> Scenario(model="resnet50", gpu="v100:16,p100:16", net="1gbe").gpus
    32
    """

    __slots__ = ()  # so that reading a field of the model is as fast as of any other

    model: Annotated[
        str,
        ScenarioField(
            "Model: a name such as resnet50 or llama3-8b (`perfsim list models`), that of its"
            " weights (Qwen/Qwen3-8B), a profile CSV, a Hugging Face config.json, transformer:"
            "layers=32,hidden=4096,heads=32,... or generic:params=350M,layers=48,flops=12GFLOP (one"
            " sample's forward pass).",
            read_by=("compute",),
            metavar="NAME|FILE|NUMBERS",
            complete="models",
            nonempty=True,
            read=_read_path,
        ),
    ]
    gpus: Annotated[
        int,
        ScenarioField(
            "GPUs in all.",
            read_by=("network", "schedule"),
            metavar="N",
            default="those of `gpu`, if counted",
            min=1,
            max=MAX_GPUS,
        ),
    ]
    gpus_per_node: Annotated[
        int | None,
        ScenarioField(
            "GPUs of a node; must divide `gpus`.",
            read_by=("network",),
            metavar="N",
            default="what node type, network or the links inside a node state, or 4",
            min=1,
        ),
    ] = None
    placement: Annotated[
        tuple[int, ...] | None,
        ScenarioField(
            "GPUs on each node when nodes are uneven, such as 3,5.",
            read_by=("network",),
            metavar="N,N,...",
            read=_read_placement,
            lists=True,
            column=False,
        ),
    ] = None
    net: Annotated[
        str,
        ScenarioField(
            "Network between nodes: a name such as 1gbe, 10gbe, ib100 (`perfsim list networks`) or"
            " rate,latency of one NIC such as 10Gbit/s,50us (between nodes only).",
            read_by=("network",),
            metavar="NETWORK",
            default="that of `node`, else of the nodes that the GPU usually is in, else 10gbe",
            complete="networks",
            nonempty=True,
            vary="1Gbit/s..100Gbit/s",
            read=_read_path,
        ),
    ] = "10gbe"
    intra_net: Annotated[
        str | None,
        ScenarioField(
            "Network inside a node: pcie3, nvlink, ... or rate,latency.",
            read_by=("network",),
            metavar="NETWORK",
            default="the network's own, else the GPU's: NVLink or PCIe",
            complete="networks",
            nonempty=True,
            vary="4GB/s..32GB/s",
            read=_read_path,
        ),
    ] = None
    node: Annotated[
        str | None,
        ScenarioField(
            "Node type: a name such as dgx-h100, p5 or a3-mega (`perfsim list nodes`), a cloud's"
            " (p5.48xlarge), or a file: GPU, GPUs a node, links inside and NICs in one.",
            read_by=("network",),
            metavar="NODE|FILE",
            complete="nodes",
            nonempty=True,
            read=_read_path,
            vary="dgx-a100,dgx-h100",
            always=False,
            column=False,
        ),
    ] = None
    nics_per_node: Annotated[
        int | None,
        ScenarioField(
            "NICs of a node that serve its GPUs.",
            read_by=("network",),
            metavar="N",
            default="what the node type or network states, or 1",
            min=1,
            max=MAX_NICS,
            always=False,
            column=False,
        ),
    ] = None
    nic: Annotated[
        str | None,
        ScenarioField(
            "Rate of each NIC of a node type, such as 400Gbit/s.",
            read_by=("network",),
            metavar="RATE",
            default="what the node type states",
            nonempty=True,
            check=_check_nic,
            vary="100Gbit/s,400Gbit/s",
            always=False,
            column=False,
        ),
    ] = None
    site: Annotated[
        tuple[int, ...] | None,
        ScenarioField(
            "GPUs at each site, such as 8,8,16, where a wide area network joins several (`wan`), in"
            " this order. Inside a site the cluster is what the other fields say.",
            read_by=("network",),
            metavar="N,N,...",
            default="one site",
            read=_read_site,
            lists=True,
            always=False,
            column=False,
        ),
    ] = None
    wan: Annotated[
        str | None,
        ScenarioField(
            "Link of a site to the others: rate,delay such as 1Gbit/s,60ms, or a measured pair of"
            " regions (aws-oregon-virginia, -tokyo, -frankfurt). The rate is that of the site's"
            " line, the delay one way between two sites with such links (half their ping);"
            " of unlike sites the ping is the sum of both delays. May go on with up=RATE,"
            "down=RATE (in place of the rate), loss=0.01% (packets lost between two such sites),"
            " flows=8 (parallel TCP flows of a connection), window=3MiB (in flight of a flow),"
            " per_flow=5Gbit/s (allowed a flow), and end with measured (rate and delay were"
            " measured between these sites: the interval is narrower). One link for all sites, or"
            " one a site with semicolons between.",
            read_by=("network",),
            metavar="RATE,DELAY[,...]",
            read=_read_wan,
            check=_check_wan,
            vary="1Gbit/s,60ms;10Gbit/s,60ms",
            lists=True,
            nonempty=True,
            always=False,
            column=False,
        ),
    ] = None
    gpu: Annotated[
        str | None,
        ScenarioField(
            "GPU (`perfsim list gpus`); of several types in one job how many of each, whole nodes"
            " in that order: v100:16,p100:16.",
            read_by=("compute", "network"),
            metavar="GPU",
            default="that of node type or network, else of the model's only profile, else v100",
            complete="gpus",
            nonempty=True,
            check=_write_types,
        ),
    ] = None
    batch: Annotated[
        int | None,
        ScenarioField(
            "Samples a GPU, of a micro-batch if `accumulate` has several.",
            read_by=("compute",),
            metavar="N",
            default="that of the profile; 1 for models without one",
            min=1,
            max=MAX_BATCH,
        ),
    ] = None
    seq: Annotated[
        int | None,
        ScenarioField(
            "Tokens a sample, of models over text.",
            read_by=("compute",),
            metavar="N",
            default="that of the profile or the model",
            min=1,
            max=MAX_SEQUENCE,
        ),
    ] = None
    document_tokens: Annotated[
        int | None,
        ScenarioField(
            "Tokens of a document, where a sample packs several and attention stays within each"
            " (padding-free and varlen kernels, thd, block masks: NeMo, ms-swift, trl, axolotl,"
            " torchtune). Of documents of several lengths the mean over tokens, sum(d^2) / sum(d),"
            " which is above the mean document; of 100, 200 and 900 tokens 717.",
            read_by=("compute",),
            metavar="N",
            default="attention goes over the whole sample",
            min=1,
            max=MAX_SEQUENCE,
            vary="256,1024,4096",
            always=False,
            column=False,
        ),
    ] = None
    precision: Annotated[
        str | None,
        ScenarioField(
            "fp32, tf32, amp-fp16 (or fp16), amp-bf16 (or bf16), fp8, nvfp4. fp8 stands for all"
            " recipes (delayed, current and blockwise scaling, MXFP8): their products and casts are"
            " priced alike; left out are the scales of blocks (MXFP8: 1 byte for 32 values) and the"
            " pass for the largest value that current scaling makes before it casts.",
            read_by=("compute",),
            metavar="WORD",
            default="that of the profile; bf16 for models without one, where the GPU has it",
            check=_check_precision,
        ),
    ] = None
    software: Annotated[
        str | None,
        ScenarioField(
            "Software era whose kernels and launches are priced, the model's and the method's: "
            + ", ".join(ERAS)
            + f". A kernel of attention may follow, as in megatron{WITH}flash2: "
            + ", ".join(ATTENTION_SINCE)
            + f". {NEWEST}{WITH}{EFFICIENT} says that attention in 16 bits gets a mask, as padded"
            " batches of transformers do, packed ones whose mask keeps documents apart, and T5 in"
            " transformers after 5.0, whose bias it is: PyTorch's FlashAttention refuses one, and"
            " its memory-efficient kernel computes all scores (on Hopper and the B200 PyTorch 2.9"
            " and 2.11 or newer takes cuDNN's)."
            f" {NEWEST}{WITH}{LOOP} runs experts one by one, as transformers did before 5.0;"
            f" {NEWEST}{WITH}{LIGER} has Liger's kernels for norms, positions and gates;"
            f" {NEWEST}{WITH}{DTENSOR} runs tensor parallelism (`tp`) by DTensor, uncompiled;"
            f" torch2-compiled{WITH}{BLOCKS} compiles blocks alone, not output layer and loss;"
            f" {NEWEST}{WITH}{CHANNELS_LAST} keeps the channels of a point together (PyTorch's"
            " memory format), as convolutions on tensor cores want them;"
            f" {NEWEST}{WITH}{MULTIHEAD} has attention in nn.MultiheadAttention, as torchvision's"
            " ViT.",
            read_by=("compute", "methods"),
            metavar="ERA",
            default=f"{NEWEST}; an iteration measured on this GPU stands as it was measured",
            check=_check_software,
            vary=f"torch1.8,{NEWEST}",
        ),
    ] = None
    input: Annotated[
        str | None,
        ScenarioField(
            "Where samples come from, by which the GPUs of a node slow each other: "
            + "; ".join(f"{name} ({load.words})" for name, load in INPUTS.items())
            + ".",
            read_by=("resolve",),
            metavar="WORD",
            default="tokens for models over text, else storage",
            words=lambda: INPUTS,
            vary=",".join(INPUTS),
        ),
    ] = None
    accumulate: Annotated[
        int,
        ScenarioField(
            "Micro-batches of `batch` samples whose gradients are added up before the update.",
            read_by=("schedule",),
            metavar="N",
            min=1,
            max=MAX_MICRO_BATCHES,
        ),
    ] = 1
    exchange_each: Annotated[
        bool | None,
        ScenarioField(
            "Whether gradients are exchanged after each micro-batch, or after the last alone.",
            read_by=("schedule",),
            default="as the method's code does: each for fsdp, zero stages 2 and 3; else the last",
        ),
    ] = None
    autocast: Annotated[
        bool | None,
        ScenarioField(
            "In amp-fp16 and amp-bf16, whether PyTorch's autocast casts the values of an fp32 model"
            " at each operation; else the model has 16 bits itself. In fp8 and nvfp4 values have 16"
            " bits either way, and only false may be said: parameters have them too.",
            read_by=("compute",),
            default="as the method's code does: not where parameters are kept or gathered in 16"
            " bits (zero, fsdp, ...), nor with tp, pp, cp or ep",
            always=False,
            column=False,
        ),
    ] = None
    master_weights: Annotated[
        bool,
        ScenarioField(
            "Whether the optimizer updates parameters in fp32; else parameters, gradients and the"
            " optimizer's state all have the 16 bits of bf16, as after model.to(torch.bfloat16).",
            read_by=("compute",),
            always=False,
            column=False,
        ),
    ] = True
    chunked_loss: Annotated[
        bool,
        ScenarioField(
            "Whether output layer and loss run for a part of the tokens at a time, so that outputs"
            " of all are never held (Liger's fused linear cross-entropy, chunked losses).",
            read_by=("memory",),
            always=False,
            column=False,
        ),
    ] = False
    lora: Annotated[
        int | None,
        ScenarioField(
            "Rank of the adapters that are trained while the model itself is frozen (LoRA).",
            read_by=("compute",),
            metavar="RANK",
            min=1,
            max=MAX_RANK,
            default="none: the whole model is trained",
            vary="8,16,64",
            always=False,
            column=False,
        ),
    ] = None
    lora_layers: Annotated[
        str,
        ScenarioField(
            "Dense layers that have an adapter: all (but the output layer), attention, mlp, or"
            " their names as q_proj,v_proj.",
            read_by=("compute",),
            metavar="NAMES",
            nonempty=True,
            check=_layer_names,
            vary="attention;all",
            lists=True,
            always=False,
            column=False,
        ),
    ] = "all"
    lora_base: Annotated[
        str,
        ScenarioField(
            "What the frozen model is packed in: none; nf4 (its dense layers but the output layer"
            " in 4 bits, as QLoRA by bitsandbytes, which makes them as wide as `precision` says in"
            " each pass: fp32 where bnb_4bit_compute_dtype is left out, and without autocast before"
            " bitsandbytes 0.47).",
            read_by=("compute",),
            metavar="WORD",
            words=_lora_base_words,
            vary="none,nf4",
            always=False,
            column=False,
        ),
    ] = "none"
    lora_dtype: Annotated[
        str,
        ScenarioField(
            "Type of adapters: auto (that of values); fp32, as PEFT makes them since 0.12 beside a"
            " model of 16 bits: each casts what it reads and what it adds to.",
            read_by=("compute",),
            metavar="TYPE",
            words=_lora_dtype_words,
            vary="auto,fp32",
            always=False,
            column=False,
        ),
    ] = "auto"
    lora_dropout: Annotated[
        float,
        ScenarioField(
            "Share of what adapters read that is dropped; any share takes as long.",
            read_by=("compute",),
            metavar="SHARE",
            min=0.0,
            max=0.99,
            vary="0,0.1",
            always=False,
            column=False,
        ),
    ] = 0.0
    residual_dtype: Annotated[
        str,
        ScenarioField(
            "Type of the values between packed layers: auto (as `precision` and `autocast` say);"
            " fp32, as PEFT's prepare_model_for_kbit_training and so trl make it: all that is not"
            " packed is fp32, and packed layers cast what they read and write; without `autocast`"
            " attention, adapters and output layer compute in fp32 too.",
            read_by=("compute",),
            metavar="TYPE",
            words=_residual_words,
            vary="auto,fp32",
            always=False,
            column=False,
        ),
    ] = "auto"
    recompute: Annotated[
        str,
        ScenarioField(
            "What the backward pass computes again: none; selective (attention in Megatron-LM's"
            " software and where its scores are stored; else element-wise work and every second"
            " product, as torchtitan); full (the forward pass); full:5 (that of the first 5 blocks"
            " of each chunk of a stage, as Megatron-LM's recompute_num_layers by the method block);"
            " or parts of each block such as layernorm+moe_act, as Megatron-LM's"
            " recompute_modules: core_attn, layernorm, mla_up_proj, mlp, moe, moe_act,"
            " shared_experts.",
            read_by=("compute",),
            metavar="WORD|PARTS",
            nonempty=True,
            check=_recompute,
            vary="none,full,full:5,layernorm+moe_act",
        ),
    ] = "none"
    offload: Annotated[
        str,
        _dividing(
            "What is in the memory of the host, over PCIe or NVLink-C2C: checkpoints (the inputs of"
            " blocks that `recompute` full computes again); activations, such as activations:20"
            " (all that the first 20 blocks keep, as Megatron-LM's cpu_offloading_num_layers; of"
            " all but the last without a number); optimizer (its state and the update, as"
            " DeepSpeed's ZeRO-Offload, with `method` zero); parameters (their shards: with"
            " `method` fsdp all state and the update as well, as CPUOffload does; with zero of"
            " stage 3, as offload_param); several, such as checkpoints+optimizer; none.",
            metavar="WORDS",
            nonempty=True,
            check=_check_offload,
            vary="none,checkpoints,activations:20,checkpoints+optimizer",
        ),
    ] = "none"
    optimizer: Annotated[
        str | None,
        ScenarioField(
            "sgd, momentum, adam, adamw, adam-fused, adamw-fused (one kernel, as fused=True of"
            " PyTorch), lamb, adafactor, muon.",
            read_by=("compute",),
            metavar="NAME",
            default="that of the profile; adamw for models without one",
            words=_optimizer_words,
            vary="sgd,adamw",
        ),
    ] = None
    reduce_dtype: Annotated[
        str,
        ScenarioField(
            "Type in which whole gradients are sent: fp32, bf16, fp16.",
            read_by=("compute",),
            metavar="TYPE",
            words=_reduce_dtype_words,
            vary="fp32,bf16",
        ),
    ] = "fp32"
    tp: Annotated[
        int,
        _degree(
            "Tensor-parallel ranks, which divide every layer.",
        ),
    ] = 1
    pp: Annotated[
        int,
        _degree(
            "Stages of a pipeline, each with a part of the layers.",
        ),
    ] = 1
    cp: Annotated[
        int,
        _degree(
            "Context-parallel ranks, which divide the tokens of a sample.",
        ),
    ] = 1
    cp_comm: Annotated[
        str,
        _dividing(
            "How these exchange keys and values: ring (p2p), all_gather, ulysses (a2a, by heads).",
            metavar="NAME",
            words=_context_words,
            vary="ring,all_gather,ulysses",
        ),
    ] = "ring"
    ep: Annotated[
        int,
        _degree(
            "Expert-parallel ranks, which divide the experts; they are data-parallel ranks too.",
        ),
    ] = 1
    etp: Annotated[
        int | None,
        _dividing(
            "Ranks that divide each expert: as many as `tp`, or 1: then tensor-parallel ranks hold"
            " whole experts, and `ep` goes over them too.",
            metavar="N",
            default="as tp",
            min=1,
            max=MAX_DEGREE,
        ),
    ] = None
    schedule: Annotated[
        str,
        _dividing(
            "Order of micro-batches in a pipeline: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zbv,"
            " dualpipev.",
            metavar="NAME",
            words=_schedule_words,
            vary="1f1b,interleaved",
        ),
    ] = "1f1b"
    virtual_stages: Annotated[
        int | None,
        _dividing(
            "Chunks of the model on each stage of an interleaved pipeline.",
            metavar="N",
            default="2 where the schedule needs several, else 1",
            min=1,
            max=MAX_DEGREE,
        ),
    ] = None
    stage_layers: Annotated[
        tuple[int, ...] | None,
        _dividing(
            "Blocks of each stage (of each chunk, in the order of the model), such as 7,8,8,7.",
            metavar="N,N,...",
            default="as equal as can be, the first and last stage the smallest",
            read=_read_stage_layers,
            lists=True,
        ),
    ] = None
    layout: Annotated[
        str | None,
        _dividing(
            "Which ranks stand nearest to each other: the kinds of parallelism, nearest first.",
            metavar="ORDER",
            default="tp-cp-ep-dp-pp",
            check=_check_layout,
            vary="tp-cp-ep-dp-pp,tp-cp-ep-pp-dp",
        ),
    ] = None
    sequence_parallel: Annotated[
        bool,
        _dividing(
            "Whether tensor-parallel ranks divide the tokens of normalisations and dropout too.",
        ),
    ] = True
    tp_overlap: Annotated[
        bool,
        _dividing(
            "Whether tensor-parallel messages are cut up to run beside their products (user"
            " buffers, asynchronous TP).",
        ),
    ] = False
    imbalance: Annotated[
        float,
        _dividing(
            "Tokens of the fullest expert-parallel rank, over the mean of all.",
            metavar="RATIO",
            min=1,
            max=1000,
        ),
    ] = 1.0
    dispatcher: Annotated[
        str,
        _dividing(
            "What takes tokens to experts on other ranks: alltoall; deepep or hybridep (one copy a"
            " node).",
            metavar="NAME",
            words=_dispatcher_words,
            vary="alltoall,deepep,hybridep",
        ),
    ] = "alltoall"
    ep_overlap: Annotated[
        bool,
        _dividing(
            "Whether tokens go to their experts and back beside another micro-batch's computation.",
        ),
    ] = False
    method: Annotated[
        str,
        ScenarioField(
            "Training method (`perfsim list methods`); auto ranks all that apply.",
            read_by=("methods",),
            metavar="METHOD",
            complete="methods",
            nonempty=True,
        ),
    ] = "ssgd"
    options: Annotated[
        dict[str, str | int | float | bool],
        ScenarioField(
            "Option of the method, such as density=0.01 or 1%; fusion.NAME=VALUE for the fusion"
            " policy's. May be repeated.",
            read_by=("methods",),
            metavar="NAME=VALUE",
            check=_check_options,
        ),
    ] = {}  # noqa: RUF012 - each scenario gets a dict of its own
    fusion: Annotated[
        str | None,
        ScenarioField(
            "How gradients are fused into messages (`perfsim list fusion`).",
            read_by=("fusion",),
            metavar="POLICY",
            default="the method's own, or size",
            complete="fusions",
            words=_fusion_words,
        ),
    ] = None
    fusion_options: Annotated[
        dict[str, str],
        ScenarioField(
            "Options of the fusion policy.",
            read_by=("fusion",),
            metavar="NAME=VALUE",
            flag=False,
            column=False,
        ),
    ] = {}  # noqa: RUF012
    bucket: Annotated[
        str | None,
        ScenarioField(
            "Bucket size, such as 25MiB.",
            read_by=("fusion",),
            metavar="SIZE",
            default="the policy's own; size: 25MiB after a first bucket of 1MiB",
            check=_check_bucket,
            vary="1MiB..32MiB",
            resolved="bucket_bytes",
        ),
    ] = None
    algorithm: Annotated[
        str,
        ScenarioField(
            "All-reduce algorithm: auto, ring, tree, hierarchical, ... (`perfsim list"
            " collectives`).",
            read_by=("schedule",),
            metavar="NAME",
            words=_algorithm_words,
            column=False,
        ),
    ] = "auto"
    protocol: Annotated[
        str,
        ScenarioField(
            "NCCL's protocol, as NCCL_PROTO fixes it: auto, ll, ll128, simple.",
            read_by=("schedule",),
            metavar="WORD",
            words=_protocol_words,
            column=False,
        ),
    ] = "auto"
    library: Annotated[
        str | None,
        ScenarioField(
            "Communication library: nccl, rccl, gloo, mpi.",
            read_by=("network",),
            metavar="NAME",
            default="the one that the network was measured with",
            words=_library_words,
            column=False,
        ),
    ] = None
    oversubscription: Annotated[
        float | None,
        ScenarioField(
            "How many times narrower the uplinks are than the NICs below them, with every node a"
            " leaf of its own: the worst case of that ratio.",
            read_by=("network",),
            metavar="RATIO",
            min=1,
            max=1000,
            column=False,
        ),
    ] = None
    straggler: Annotated[
        tuple[str, ...],
        ScenarioField(
            "Slow GPUs: how many, and how many times slower they compute, such as 1:1.5. May be"
            " repeated.",
            read_by=("conditions",),
            metavar="GPUS:FACTOR",
            read=_read_stragglers,
            mixed=False,
            column=False,
        ),
    ] = ()
    jitter: Annotated[
        float | str,
        ScenarioField(
            "How much computation varies from iteration to iteration: each GPU's by a relative"
            " standard deviation, 5%; or each replica's passes as production traces show them"
            " (ByteDance-Seed/StragglerAnalysis): sequence-lengths (12%), steady (0.4%, lengths"
            " alike), or so many times that: sequence-lengths:0.5.",
            read_by=("conditions",),
            metavar="SHARE|NAME",
            default="0%",
            read=_read_jitter,
            mixed=False,
            column=False,
        ),
    ] = 0.0
    background: Annotated[
        float,
        ScenarioField(
            "Share of the network between nodes that other traffic takes: 30%.",
            read_by=("network",),
            metavar="SHARE",
            default="0%",
            read=_read_background,
            column=False,
        ),
    ] = 0.0
    beside: Annotated[
        tuple[str, ...],
        ScenarioField(
            "Another job that sends over the same links between nodes: its scenario file, or a"
            " shipped one. Says how much each slows down: bert.toml. May be repeated.",
            read_by=("conditions",),
            metavar="SCENARIO",
            complete="scenarios",
            read=_read_beside,
            mixed=False,
            always=False,
            column=False,
        ),
    ] = ()
    seed: Annotated[
        int,
        ScenarioField(
            "Seed of the draws of `jitter`.",
            read_by=("conditions",),
            metavar="N",
            min=0,
            max=MAX_SEED,
            column=False,
        ),
    ] = 0
    overlap: Annotated[
        bool,
        ScenarioField(
            "Whether communication runs beside the backward pass.",
            read_by=("schedule",),
            column=False,
        ),
    ] = True
    overlap_slowdown: Annotated[
        float,
        ScenarioField(
            "How many times slower the backward pass computes while messages are under way, as"
            " `perfsim calibrate kernels --beside` measures it; 1: messages over NVLink and xGMI"
            " slow both passes by what they take of the GPU's multiprocessors and memory, others do"
            " not.",
            read_by=("schedule",),
            metavar="FACTOR",
            flag=False,
            min=1,
            max=10,
            column=False,
        ),
    ] = 1.0
    single_gpu: Annotated[
        str | None,
        ScenarioField(
            "Iteration on one GPU as you measured it, with a unit: 253ms, or 126samples/s; of one"
            " micro-batch where `accumulate` adds up several.",
            read_by=("resolve",),
            metavar="TIME|RATE",
            default="what profile and measured iterations say",
            check=_check_iteration,
            vary="100ms..400ms",
            mixed=False,
            resolved="single_gpu_s",
            column=False,
        ),
    ] = None
    single_gpu_kernels: Annotated[
        str | None,
        ScenarioField(
            "What the method's kernels add to an iteration on one GPU, as you measured it: 10ms.",
            read_by=("schedule",),
            metavar="TIME",
            default="what device files say",
            check=_check_time,
            vary="1ms..8ms",
            mixed=False,
            resolved="single_gpu_kernels_s",
            column=False,
        ),
    ] = None


# Checks of single fields, in the order of the list.


def _read_path(value: Any, field: str) -> Any:
    """Return the path of a file as text."""
    return str(value) if isinstance(value, PurePath) else value


def _read_placement(value: Any, field: str) -> Any:
    """Return a placement such as "3,5" as whole numbers; refuse what is no such list."""
    return _whole_numbers(value, field, "GPUs on each node", "3,5", least=1)


def _read_site(value: Any, field: str) -> Any:
    """Return the GPUs at each site as whole numbers; refuse what is no such list."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    sites = _whole_numbers(value, field, "GPUs at each site", "8,8,16", least=1)
    if isinstance(sites, list | tuple) and len(sites) > MAX_SITES:
        why = f"{len(sites)} sites are not allowed: it must be 1 to {MAX_SITES}."
        raise RequestError(field, why, value=len(sites))
    return sites


def _read_wan(value: Any, field: str) -> Any:
    """Return the links of several sites as one text."""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ";".join(value)
    return value


def _check_wan(value: str, field: str) -> str:
    from perfsim.network.wide_link import parse_wide_links

    parse_wide_links(value, field)
    return value


def _read_stage_layers(value: Any, field: str) -> Any:
    """Return blocks of stages as whole numbers; a stage of none has the embedding or the head."""
    return _whole_numbers(value, field, "blocks of each stage", "7,8,8,7", least=0)


def _whole_numbers(value: Any, field: str, what: str, example: str, *, least: int) -> Any:
    """Return numbers separated by commas as a tuple; refuse what is no such list."""
    if isinstance(value, str):
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) >= least for part in parts):
            why = f"{shown(value)} is not a list of {what} such as {example}."
            raise RequestError(field, why, value=value)
        return tuple(int(part) for part in parts)
    if isinstance(value, list | tuple) and any(isinstance(part, bool) for part in value):
        why = f"a list of whole numbers such as [{example.replace(',', ', ')}] is needed."
        raise RequestError(field, why, value=value)
    return value


def parse_types(text: str | None, field: str = "gpu") -> tuple[tuple[str, int], ...]:
    """Return the types of GPU and how many there are of each; () where none has a number.

    Types are separated by commas or by plus signs (in a list of values, where a comma ends one).

    Raises
    ------
    RequestError
        If it is not said how many there are of a type, or the number is longer than ``MAX_GPUS``.

    Examples
    --------
    >>> parse_types("v100:16,p100:8"), parse_types("v100:16+p100:8"), parse_types("v100")
    ((('v100', 16), ('p100', 8)), (('v100', 16), ('p100', 8)), ())
    """
    if text is None or not any(sign in text for sign in ",+:"):
        return ()
    types = []
    for part in text.replace("+", ",").split(","):
        name, _, count = (piece.strip() for piece in part.partition(":"))
        if count.isdecimal() and len(count) > len(str(MAX_GPUS)):
            why = f"{shown(count)} GPUs of a type are too many; {MAX_GPUS} is the most."
            raise RequestError(field, why, value=text)
        if not name or not count.isdecimal() or int(count) < 1:
            raise RequestError(
                field,
                f"{shown(text)} does not say how many there are of each type; write"
                " TYPE:GPUS,TYPE:GPUS such as v100:16,p100:16.",
                value=text,
            )
        types.append((name, int(count)))
    return tuple(types)


def _write_types(value: str, field: str) -> str:
    """Return several types of GPU as they are written with commas; one name as it is."""
    types = parse_types(value, field)
    return ",".join(f"{name}:{count}" for name, count in types) if types else value


def _sends_tokens_again(recompute: str) -> bool:
    from perfsim.compute.recompute import named_modules

    return recompute == "full" or "moe" in named_modules(recompute)


def _residual_words() -> Collection[str]:
    from perfsim.models.adapters import RESIDUAL_DTYPES

    return RESIDUAL_DTYPES


def _lora_dtype_words() -> Collection[str]:
    from perfsim.models.adapters import LORA_DTYPES

    return LORA_DTYPES


def _lora_base_words() -> Collection[str]:
    from perfsim.models.adapters import LORA_BASES

    return LORA_BASES


def _recompute(value: str, field: str) -> str:
    from perfsim.compute.recompute import checked_recompute

    return checked_recompute(value, field)


def _check_offload(value: str, field: str) -> str:
    """Return what is on the host, each word once and in one order."""
    from perfsim.compute.host_offload import ACTIVATIONS, CHECKPOINTS, NOTHING, OFFLOADED

    allowed = (NOTHING, *OFFLOADED)
    words: dict[str, str] = {}
    for part in _PLUS.split(value):
        name, colon, number = part.strip().partition(":")
        word = _one_of(lambda: allowed, name.strip(), field)
        if colon and (word != ACTIVATIONS or not _BLOCKS.fullmatch(number)):
            why = "says how many blocks after activations alone, such as activations:20."
            raise RequestError(field, why, value=value)
        words[word] = f"{word}:{int(number)}" if colon else word
    if NOTHING in words and len(words) > 1:
        raise RequestError(field, "none stands beside another word.", value=value)
    if {ACTIVATIONS, CHECKPOINTS} <= words.keys():
        why = "checkpoints and activations exclude each other; leave one of them out."
        raise RequestError(field, why, value=value)
    return "+".join(words[word] for word in allowed if word in words)


_BLOCKS = re.compile("[1-9][0-9]{0,5}")
"""A number of blocks."""

_PLUS = re.compile("[+,]")
"""What may stand between words of which several hold."""


def _optimizer_words() -> Collection[str]:
    from perfsim.compute.kernel_time import UPDATES

    return UPDATES


def _reduce_dtype_words() -> Collection[str]:
    from perfsim.compute.transfer import REDUCE_BYTES

    return REDUCE_BYTES


def _schedule_words() -> Collection[str]:
    from perfsim.models.split import SCHEDULES

    return SCHEDULES


def _context_words() -> Collection[str]:
    from perfsim.models.split import CONTEXT_EXCHANGES

    return CONTEXT_EXCHANGES


def _dispatcher_words() -> Collection[str]:
    from perfsim.models.split import DISPATCHERS

    return DISPATCHERS


def _check_layout(value: str, field: str) -> str:
    from perfsim.network.layout import parse_layout

    parse_layout(value, field)
    return value


def _check_precision(value: str, field: str) -> str:
    from perfsim.compute.profile import precision_named

    return precision_named(value, field)


def _check_software(value: str, field: str) -> str:
    return software_named(value)


def _algorithm_words() -> Collection[str]:
    from perfsim.collectives import algorithms

    return ("auto", *algorithms()["all_reduce"])


def _protocol_words() -> Collection[str]:
    from perfsim.libraries.nccl_versions import PROTOCOLS

    return ("auto", *PROTOCOLS)


def _library_words() -> Collection[str]:
    from perfsim.libraries import libraries

    return libraries()


def _fusion_words() -> Collection[str]:
    from perfsim.fusion import policy_names

    return policy_names()


def _check_options(value: dict[str, Any], field: str) -> dict[str, Any]:
    for name, option in value.items():
        if isinstance(option, float) and not math.isfinite(option):
            raise RequestError(
                f"{field}.{name}",
                f"{option} is not allowed: it must be a finite number.",
                value=option,
            )
    return value


def _check_bucket(value: str, field: str) -> str:
    from perfsim.units import parse_bytes

    if parse_bytes(value, field, zero=False) <= 0:
        raise RequestError(
            field,
            f"{value!r} is not allowed: it must be above 0. For one message a tensor use `fusion`"
            " none.",
            value=value,
        )
    return value


def _read_stragglers(value: Any, field: str) -> tuple[str, ...]:
    from perfsim.conditions.spec import parse_straggler

    listed = value if isinstance(value, list | tuple) else (value,)
    return tuple(str(one) for one in listed if parse_straggler(one, field))


def _read_jitter(value: Any, field: str) -> float | str:
    """Return a share, or the name of a measured distribution."""
    if isinstance(value, str) and value.strip()[:1].isalpha():
        from perfsim.conditions.measured import read_jitter

        return read_jitter(value, field)
    from perfsim.conditions.spec import MAX_JITTER

    return _read_share(value, field, MAX_JITTER)


def _read_background(value: Any, field: str) -> float:
    return _read_share(value, field, MAX_BACKGROUND)


def _read_share(value: Any, field: str, most: float) -> float:
    """Return a fraction such as "5%" or 0.05; refuse one above ``most``."""
    from perfsim.units import parse_fraction

    try:
        share = parse_fraction(value, field)
    except OverflowError:  # a whole number of hundreds of digits
        share = math.inf
    if share > most:
        why = f"{shown(value)} is not allowed: it must be 0% to {most:.0%}."
        raise RequestError(field, why, value=value)
    return share


def _read_beside(value: Any, field: str) -> tuple[str, ...]:
    from perfsim.conditions.spec import checked_names

    return checked_names(value)


def _check_iteration(value: str, field: str) -> str:
    from perfsim.units import parse_iteration

    return _check_duration(value, field, parse_iteration(value, 1, field))


def _check_nic(value: str, field: str) -> str:
    from perfsim.quantity import RATE_LIMIT
    from perfsim.units import parse_rate

    if not RATE_LIMIT.holds(parse_rate(value, field)):
        why = f"{shown(value)} is not allowed: it must be {RATE_LIMIT.words}."
        raise RequestError(field, why, value=value)
    return value


def _check_time(value: str, field: str) -> str:
    from perfsim.units import parse_seconds

    return _check_duration(value, field, parse_seconds(value, field, zero=False))


def _check_duration(value: str, field: str, seconds: float) -> str:
    from perfsim.quantity import TIME_LIMIT

    if not TIME_LIMIT.holds(seconds):
        why = f"{shown(value)} is not allowed: it must be {TIME_LIMIT.words}."
        raise RequestError(field, why, value=value)
    return value


# What follows from the list.


def _described() -> dict[str, ScenarioField]:
    kinds = get_type_hints(ScenarioFields, globals(), include_extras=True)
    ScenarioFields.__annotations__ = kinds  # pydantic would read them as texts once more
    return {
        name: kind.__metadata__[0]._replace(
            kind=kind.__origin__, value=getattr(ScenarioFields, name, None)
        )
        for name, kind in kinds.items()
    }


SCENARIO_FIELDS: Mapping[str, ScenarioField] = _described()
"""What is known of each field, by its name, in the order of the list."""


SCHEDULE_FIELDS = frozenset(
    name
    for name, field in SCENARIO_FIELDS.items()
    if {"methods", "schedule"}.issuperset(field.read_by)
)
"""Fields that methods and the schedule alone read: model, GPU and cluster depend on none."""


def is_field(name: str) -> bool:
    """Tell whether a name is a field that takes one value: itself, or one of a group.

    Examples
    --------
    >>> [is_field(name) for name in ("gpus", "options.density", "options", "gpus.x", "options.")]
    [True, True, False, False, False]
    """
    group, dot, option = name.partition(".")
    return group in SCENARIO_FIELDS and (group in OPTION_GROUPS) == bool(dot) == bool(option)


@cache
def fields_read_by(room: str) -> tuple[str, ...]:
    """Return the fields that a room reads: what it keeps of a scenario depends on them.

    Examples
    --------
    >>> fields_read_by("compute")[:6]
    ('model', 'gpu', 'batch', 'seq', 'document_tokens', 'precision')
    """
    return tuple(name for name, field in SCENARIO_FIELDS.items() if room in field.read_by)


def values_read_by(room: str, scenario: Scenario, without: str = "") -> tuple[Any, ...]:
    """Return what a scenario says in the fields that a room reads, or all of these but one.

    Examples
    --------
    >>> asked = make_scenario({"model": "resnet50", "gpus": 8, "gpu": "v100"})
    >>> values_read_by("compute", asked)[:2], values_read_by("compute", asked, without="gpu")[:2]
    (('resnet50', 'v100'), ('resnet50', None))
    """
    values: tuple[Any, ...] = _reader(room, without)(scenario)
    return values


@cache
def _reader(room: str, without: str) -> Callable[[Scenario], Any]:
    return attrgetter(*[name for name in fields_read_by(room) if name != without])


def given_fields(scenario: Scenario) -> dict[str, Any]:
    """Return the fields that were given, with their values: they make the same scenario again.

    A default that was given is one of them: it may stand in place of what `node` or the method
    says, and a search keeps it.

    Examples
    --------
    >>> given_fields(make_scenario({"model": "resnet50", "gpus": 8, "node": "p5"}))
    {'model': 'resnet50', 'gpus': 8, 'node': 'p5'}
    >>> given_fields(make_scenario({"model": "resnet50", "gpus": 8, "node": "p5", "net": "10gbe"}))
    {'model': 'resnet50', 'gpus': 8, 'net': '10gbe', 'node': 'p5'}
    """
    given = {}
    for name, field in SCENARIO_FIELDS.items():
        value = getattr(scenario, name)
        stated = name in scenario.model_fields_set and value not in (None, (), {})
        if stated or value != field.value:
            given[name] = value
    if scenario.net == scenario.node:  # taken from the node type
        given.pop("net", None)
    return given


def own_values(scenario: Scenario, resolved: frozenset[str]) -> dict[str, Any]:
    """Return the fields that a resolved scenario lacks, with the scenario's own values, for JSON.

    Parameters
    ----------
    resolved : the keys that it has already, filled in from profile, network and method

    Examples
    --------
    >>> resolved = frozenset(one.resolved or name for name, one in SCENARIO_FIELDS.items())
    >>> own_values(make_scenario({"model": "resnet50", "gpus": 8}), resolved - {"seed", "beside"})
    {'seed': 0}
    """
    values = {
        key: value
        for key, name, usual in _fields_beside(resolved)
        if (value := getattr(scenario, name)) not in usual
    }
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }


@cache
def _fields_beside(resolved: frozenset[str]) -> tuple[tuple[str, str, tuple[Any, ...]], ...]:
    """Return the fields that a resolved scenario lacks: key, name, and values that are left out."""
    return tuple(
        (field.resolved or name, name, () if field.always else (field.value, (), None))
        for name, field in SCENARIO_FIELDS.items()
        if (field.resolved or name) not in resolved
    )


@cache
def table_columns() -> tuple[str, ...]:
    """Return the keys of a resolved scenario that tables (CSV, pandas) show, in order."""
    columns = []
    for name, field in SCENARIO_FIELDS.items():
        if field.column:
            columns.append(field.resolved or name)
        if name == "gpus_per_node":
            columns.append("nodes")  # counted when GPUs are put on nodes
    return tuple(columns)


def gpu_words(gpus: int, gpu: str) -> str:
    """Say how many GPUs of which types there are.

    Examples
    --------
    >>> gpu_words(8, "v100"), gpu_words(8, "v100:4,p100:4")
    ('8 x v100', '4 x v100 + 4 x p100')
    """
    types = parse_types(gpu)
    return " + ".join(f"{count} x {name}" for name, count in types) or f"{gpus} x {gpu}"


def unknown_field(name: str) -> RequestError:
    """Return the refusal of a field that no scenario has."""
    return unknown_option("a scenario", name, SCENARIO_FIELDS, shown_by=SHOWS_FIELDS)


SHOWS_FIELDS = "`perfsim predict --help`"
"""What shows all fields of a scenario."""


# The fields together: the checked model.


if TYPE_CHECKING:

    class Scenario(ScenarioFields, BaseModel):
        """A checked scenario: the fields of the list, frozen."""

else:

    def __getattr__(name: str) -> Any:
        """Make `Scenario` when it is first asked for, so that ``--help`` needs no pydantic."""
        if name != "Scenario":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = made = _model()
        return made


@cache
def _model() -> type[Any]:
    """Return the pydantic model of the list's fields, with the checks that need several of them."""
    from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

    from perfsim.methods.base import truth_for_number

    class Scenario(ScenarioFields, BaseModel):
        __qualname__ = "Scenario"
        __doc__ = ScenarioFields.__doc__
        model_config = ConfigDict(extra="forbid", frozen=True)

        def __init__(self, **fields: Any) -> None:
            """Check the fields; a wrong one is a `RequestError` that names it."""
            for field in fields:
                if field not in SCENARIO_FIELDS:
                    raise unknown_field(field)
            try:
                super().__init__(**python_value(fields))
            except ValidationError as error:
                raise _refusal(error) from None

        def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Any:
            """Return a copy with some fields as they are given; their values are not checked."""
            for field in update or ():
                if field not in SCENARIO_FIELDS:
                    raise unknown_field(field)
            return super().model_copy(update=update, deep=deep)

        def __repr_args__(self: Any) -> Iterator[tuple[str, Any]]:
            """Yield the fields that were given."""
            yield from given_fields(self).items()

        @model_validator(mode="before")
        @classmethod
        def _before_types(cls, values: Any) -> Any:
            values = _node_as_network(_counted_gpus(_counted_at_sites(values)))
            wrong = truth_for_number(cls, values)
            if wrong:
                given = str(values[wrong]).lower()
                raise RequestError(
                    wrong, f"{given} is not allowed: it must be a number.", value=values[wrong]
                )
            return values

        @model_validator(mode="after")
        def _together(self) -> Any:
            _check_together(self)
            return self

    return Scenario


def _counted_gpus(values: Any) -> Any:
    """Take the number of GPUs from those of each type where it is not given."""
    if isinstance(values, dict) and "gpus" not in values and isinstance(values.get("gpu"), str):
        types = parse_types(values["gpu"])
        return values | {"gpus": sum(count for _, count in types)} if types else values
    return values


def _counted_at_sites(values: Any) -> Any:
    """Take the number of GPUs from those at each site where it is not given."""
    if isinstance(values, dict) and "gpus" not in values and values.get("site") is not None:
        sites = _read_site(values["site"], "site")
        if isinstance(sites, list | tuple) and all(type(one) is int for one in sites):
            return values | {"gpus": sum(sites)}
    if isinstance(values, dict) and values.get("wan") is not None and values.get("site") is None:
        raise RequestError("wan", _NO_SITE, value=values["wan"])
    return values


_NO_SITE = "needs `site`, the GPUs at each site that it joins, such as 8,8,16."


def _node_as_network(values: Any) -> Any:
    """Take the network between nodes from the node type where it is not given."""
    if isinstance(values, dict) and isinstance(values.get("node"), str) and "net" not in values:
        return values | {"net": values["node"]}
    return values


def _check_together(scenario: ScenarioFields) -> None:
    """Refuse fields that contradict each other."""
    _check_library(scenario)
    _check_overlap(scenario)
    _check_base(scenario)
    _check_types(scenario)
    _check_conditions(scenario)
    _check_node(scenario)
    _check_sites(scenario)


def _check_library(scenario: ScenarioFields) -> None:
    """Refuse a protocol or an algorithm that the communication library does not have."""
    from perfsim.libraries import AUTO, DEFAULT_LIBRARY, library

    used = library(scenario.library or DEFAULT_LIBRARY)
    if scenario.protocol != AUTO:
        from perfsim.libraries.nccl import check_protocol

        check_protocol(scenario.protocol, used.name, used.protocols)
    if scenario.algorithm != AUTO:
        used.algorithm("all_reduce", scenario.algorithm)


def _check_overlap(scenario: ScenarioFields) -> None:
    """Refuse an overlap of what cannot overlap, and jitter beside other jobs."""
    if scenario.beside and scenario.jitter:
        raise RequestError("beside", "not with `jitter`, whose draws have no other job in them.")
    if not scenario.overlap and scenario.overlap_slowdown > 1:
        raise RequestError(
            "overlap_slowdown",
            f"{scenario.overlap_slowdown} needs `overlap` to be true.",
            value=scenario.overlap_slowdown,
        )
    if scenario.tp_overlap and not scenario.sequence_parallel:
        why = "needs sequence parallelism: user buffers cut up its all-gathers and reduce-scatters."
        raise RequestError("tp_overlap", why, value=scenario.tp_overlap)
    if scenario.ep_overlap and scenario.ep > 1:
        _check_beside_micro_batch(scenario)
    if scenario.etp is not None:
        _check_whole_experts(scenario.etp, scenario)


def _check_whole_experts(etp: int, scenario: ScenarioFields) -> None:
    """Refuse experts that are divided in part, and whole ones whose tokens no rank divides.

    torchtitan takes 1 and the tensor-parallel degree too (expert_tensor_parallel_degree).
    Megatron-LM says that sequence parallelism must be used where experts stand beside tensor
    parallelism (NVIDIA/Megatron-LM@d98e8a64 megatron/core/model_parallel_config.py).
    """
    if etp not in (1, scenario.tp):
        why = (
            f"{etp} is neither 1 nor `tp` {scenario.tp}: experts are whole, or divided as the rest;"
            f" set `tp` {etp}, or leave `etp` out."
        )
        raise RequestError("etp", why, value=etp, nearest=str(scenario.tp))
    if etp < scenario.tp and not scenario.sequence_parallel:
        why = "1 needs sequence parallelism: tensor-parallel ranks divide the tokens."
        raise RequestError("etp", why, value=etp)


def _check_beside_micro_batch(scenario: ScenarioFields) -> None:
    """Refuse to send the tokens of experts beside another micro-batch where none is at hand.

    In a pipeline, Megatron-LM has that for stages of several chunks only (NVIDIA/Megatron-LM
    @002526d8 megatron/core/transformer/transformer_config.py). DualPipeV was made for it
    (deepseek-ai/DualPipe@3da1bbea).
    """
    from perfsim.models.split import BESIDE_MICRO_BATCH

    if scenario.accumulate == 1:
        why = "needs `accumulate` above 1: another micro-batch to run beside."
    elif _sends_tokens_again(scenario.recompute):
        why = (
            "not with `recompute` full or moe, which sends tokens to their experts again in the"
            " backward pass: Megatron-LM refuses both together."
        )
    elif scenario.pp > 1 and scenario.schedule not in BESIDE_MICRO_BATCH:
        why = (
            "needs `schedule` interleaved or dualpipev where `pp` is above 1: no other pipeline"
            " runs micro-batches side by side."
        )
    else:
        return
    raise RequestError("ep_overlap", why, value=scenario.ep_overlap)


def _check_base(scenario: ScenarioFields) -> None:
    """Refuse to divide matrices that are kept in 4 bits."""
    if scenario.lora_base != "none" and scenario.tp > 1:
        why = "is divided by no code that is known here; leave out `tp`."
        raise RequestError("lora_base", why, value=scenario.lora_base)


def _check_types(scenario: ScenarioFields) -> None:
    """Refuse types of GPU that do not add up, and fields that hold for one type only."""
    types = parse_types(scenario.gpu)
    if not types:
        return
    total = sum(count for _, count in types)
    if total != scenario.gpus:
        raise RequestError(
            "gpu",
            f"{shown(scenario.gpu)} is {total} GPUs, `gpus` says {scenario.gpus}; the two must"
            " agree.",
            value=scenario.gpu,
        )
    for name, field in SCENARIO_FIELDS.items():
        if len(types) > 1 and not field.mixed and getattr(scenario, name) != field.value:
            raise RequestError(
                name,
                f"not with GPUs of several types ({scenario.gpu}): it does not say for which type"
                " it holds.",
                value=getattr(scenario, name),
            )


def _check_node(scenario: ScenarioFields) -> None:
    """Refuse the rate of a NIC where nothing says what else the nodes are."""
    if scenario.nic is not None and scenario.node is None:
        why = "needs `node`, whose NICs it is the rate of; for a link of your own give `net`"
        raise RequestError("nic", f"{why} as rate,latency.", value=scenario.nic)


def _check_sites(scenario: ScenarioFields) -> None:
    """Refuse sites without what joins them, and numbers that contradict each other."""
    site, wan = scenario.site, scenario.wan
    if site is None:
        if wan is not None:
            raise RequestError("wan", _NO_SITE, value=wan)
        return
    if wan is None:
        why = "needs `wan`, what joins the sites: rate,delay such as 1Gbit/s,60ms."
        raise RequestError("site", why, value=list(site))
    if not site or min(site) < 1:
        why = f"{shown(list(site))} has a site without a GPU; give at least 1 for every site."
        raise RequestError("site", why, value=list(site))
    if sum(site) != scenario.gpus:
        why = f"{sum(site)} GPUs at {len(site)} sites, `gpus` says {scenario.gpus}; the two must"
        raise RequestError("site", f"{why} agree.", value=list(site))
    links = wan.count(";") + 1
    if links not in (1, len(site)):
        why = f"{links} links for {len(site)} sites; give one for all, or one for each."
        raise RequestError("wan", why, value=wan)


def _check_conditions(scenario: ScenarioFields) -> None:
    """Refuse more slow GPUs than there are, and more GPUs than jitter can be drawn for."""
    if scenario.straggler:
        from perfsim.conditions.spec import parse_straggler

        slow = sum(parse_straggler(text)[0] for text in scenario.straggler)
        if slow > scenario.gpus:
            raise RequestError(
                "straggler",
                f"{shown(slow)} slow GPUs of {scenario.gpus} are too many.",
                value=scenario.straggler,
            )
    if scenario.jitter and scenario.gpus > MAX_JITTERED_GPUS:
        raise RequestError(
            "jitter",
            f"each GPU's computation is drawn by itself, for at most {MAX_JITTERED_GPUS:,} GPUs;"
            f" here are {scenario.gpus:,}.",
            value=scenario.jitter,
        )


def make_scenario(fields: Mapping[str, Any], source: str = "") -> Scenario:
    """Return the scenario that ``fields`` describe.

    Raises
    ------
    RequestError
        If a field is unknown, missing or not allowed; ``source`` names the file it came from.
    """
    from perfsim.data.files import forbidden

    for field, value in fields.items():
        if field in SCENARIO_FIELDS and isinstance(value, str) and forbidden(value):
            why = f"{shown(value)} holds a control character."
            raise _of_source(RequestError(field, why, value=value), source)
    try:
        made: Scenario = _model()(**fields)
    except RequestError as error:
        raise _of_source(error, source) from None
    return made


def as_scenario(given: Scenario | Mapping[str, Any], field: str = "scenario") -> Scenario:
    """Return a scenario as it is; of a table of fields, such as a dict, the one that it describes.

    Raises
    ------
    RequestError
        If it is neither, or the fields make no scenario; ``field`` is the argument's name.

    Examples
    --------
    >>> as_scenario({"model": "resnet50", "gpus": 16})
    Scenario(model='resnet50', gpus=16)
    """
    if isinstance(given, _model()):
        made: Scenario = given
        return made
    if isinstance(given, Mapping):
        return make_scenario(given)
    why = f"{shown(given)} is no scenario; give Scenario(model=..., gpus=...) or a dict of its"
    raise RequestError(field, f"{why} fields.", value=given)


def python_value(value: Any) -> Any:
    """Return a number of NumPy's as Python's, also where a dict holds it; all else as it is."""
    if isinstance(value, dict):
        return {name: python_value(one) for name, one in value.items()}
    of_numpy = type(value).__module__ == "numpy" and not getattr(value, "shape", None)
    return value.item() if of_numpy else value


def _of_source(error: RequestError, source: str) -> RequestError:
    """Return a refusal of the file that the fields came from, "" where they came from none."""
    return error.of_file(source) if source else error


def with_checked(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """Return a scenario with values of other scenarios in place of its own.

    Each value is checked by itself already; here they are checked together.

    Raises
    ------
    RequestError
        If they contradict each other.

    Examples
    --------
    >>> ring = make_scenario({"model": "resnet50", "gpus": 8, "algorithm": "ring"})
    >>> with_checked(ring, {"overlap": False}).overlap
    False
    """
    made = scenario.model_copy(update=values)
    _check_together(made)
    return made


_NEEDED = {
    "model": "is needed: a name such as resnet50 (`perfsim list models`), a profile CSV, a"
    " config.json, transformer:... or generic:...; `perfsim init` asks for what is needed.",
    "gpus": "is needed: how many GPUs in all, such as 64.",
}


def _refusal(error: ValidationError) -> RequestError:
    """Return the first thing that pydantic found wrong, as a sentence."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][:2])
    if first["type"] == "missing":
        return RequestError(field, _NEEDED.get(field, "is needed."))
    given = first["input"]
    return RequestError(field, f"{shown(given)} is not allowed: {rule(first)}.", value=given)
