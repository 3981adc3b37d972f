"""Count what XLA compiles a block of a transformer to for an H100: passes over memory, and sums.

``python tests/scripts/xla_blocks.py`` compiles forward and backward passes of three and of five
blocks of width 4,096 and prints what two of them differ in: kernels, products, and what kernels
that are no products read and write, in multiples of the values between blocks (weights' casts
apart); with attention that is one kernel, which stands as a call that XLA cannot see into, and with
attention in products. Then, with 8 GPUs, in what type gradients are summed, and how many products
and attentions lie between the start of each transfer and where it is waited for. ``--scheduler``
turns the latency-hiding scheduler on.

It needs no GPU, but jax with its CUDA plugin: ``pip install --no-deps jax jaxlib
jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12 numpy scipy opt_einsum ml_dtypes``, all four
of jax of one version, 0.5 or newer. `xla_blocks.txt` has what it printed last.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

GPU = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""An H100 as XLA describes it (openxla/xla xla/backends/gpu/target_config/specs/h100_sxm.txtpb)."""
WIDTH, HEADS, INNER, TOKENS, GPUS = 4096, 32, 16384, 2048, 8
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4}
UNSEEN = "cu_threefry2x32_ffi"
"""A call that XLA knows by its name alone, in place of attention in one kernel."""
FREE = {"parameter", "bitcast", "get-tuple-element", "tuple", "constant", "iota", "after-all"}
LINE = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)")

Line = tuple[str, str, str, str]
"""Name, type, operation, and the rest."""


def loss_of(kind: str, *, one_kernel: bool) -> Callable[[Any, Any], Any]:
    """Return the loss of a stack of blocks, of their parameters and the values that they read."""
    import jax
    from jax import numpy as jnp

    half, full = jnp.bfloat16, jnp.float32

    @jax.custom_vjp
    def unseen(*operands: Any) -> Any:
        return _call(operands)

    def _call(operands: Any, count: int = 1) -> Any:
        result = [jax.ShapeDtypeStruct(operands[0].shape, half)] * count
        return jax.ffi.ffi_call(UNSEEN, result if count > 1 else result[0])(*operands)

    unseen.defvjp(
        lambda *operands: (_call(operands), operands),
        lambda operands, gradient: tuple(_call((*operands, gradient), 3)),
    )

    def norm(values: Any, p: Any, at: str) -> Any:
        wide = values.astype(full)
        square = (wide * wide).mean(-1, keepdims=True)
        if kind == "llama":
            return (wide * jax.lax.rsqrt(square + 1e-5) * p["g" + at]).astype(half)
        mean = wide.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.maximum(square - mean * mean, 0) + 1e-5)
        return ((wide - mean) * scale * p["g" + at] + p["b" + at]).astype(half)

    def dense(values: Any, p: Any, at: str) -> Any:
        made = jnp.dot(values, p[at].astype(half))
        return made + p[at + "b"].astype(half) if kind == "gpt" else made

    def rotated(values: Any) -> Any:
        low, high = jnp.split(values.astype(full), 2, -1)
        at = jnp.arange(TOKENS, dtype=full)[:, None, None] * 1e4 ** (
            -jnp.arange(low.shape[-1], dtype=full) / low.shape[-1]
        )
        cos, sin = jnp.cos(at)[None], jnp.sin(at)[None]
        return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1).astype(half)

    def attention(q: Any, k: Any, v: Any) -> Any:
        if one_kernel:
            return unseen(q, k, v)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores.astype(full), -1e9), -1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(half), v)

    def block(values: Any, p: Any) -> Any:
        read = norm(values, p, "1")
        heads = (*values.shape[:2], HEADS, -1)
        q, k, v = (dense(read, p, at).reshape(heads) for at in ("wq", "wk", "wv"))
        if kind == "llama":
            q, k = rotated(q), rotated(k)
        values += dense(attention(q, k, v).reshape(values.shape), p, "wo")
        read = norm(values, p, "2")
        if kind == "llama":
            return values + dense(jax.nn.silu(dense(read, p, "w1")) * dense(read, p, "w3"), p, "w2")
        return values + dense(jax.nn.gelu(dense(read, p, "w1")), p, "w2")

    def loss(parameters: Any, values: Any) -> Any:
        for p in parameters:
            values = block(values, p)
        return values.astype(full).mean()

    return loss


def compiled(kind: str, blocks: int, one_kernel: bool, gpus: str, dump: Path) -> list[Line]:
    """Return the scheduled instructions of the gradient of a stack of blocks, once compiled."""
    import jax
    import numpy as np
    from jax import numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as Split

    shapes = {"g1": (WIDTH,), "g2": (WIDTH,), "w1": (WIDTH, INNER), "w2": (INNER, WIDTH)}
    shapes |= {at: (WIDTH, WIDTH) for at in ("wq", "wk", "wv", "wo")}
    if kind == "llama":
        shapes["w3"] = (WIDTH, INNER)
    else:
        shapes |= {"b1": (WIDTH,), "b2": (WIDTH,)}
        shapes |= {at + "b": each[-1:] for at, each in shapes.items() if at[0] == "w"}
    many = GPUS if gpus else 1
    described = topologies.get_topology_desc("", "cuda", topology=f"1x1x{many}", target_config=GPU)
    mesh = Mesh(np.array(described.devices), ("gpus",))

    def given(shape: tuple[int, ...], dtype: Any, split: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, split))

    split = Split("gpus") if gpus == "fsdp" else Split()
    parameters = [
        {
            at: given(each, jnp.float32, split if len(each) > 1 else Split())
            for at, each in shapes.items()
        }
    ] * blocks
    values = given((2 * many, TOKENS, WIDTH), jnp.bfloat16, Split("gpus"))
    for file in dump.iterdir():
        file.unlink()
    placed = jax.tree.map(lambda one: one.sharding, parameters)
    loss = loss_of(kind, one_kernel=one_kernel)
    jax.jit(jax.grad(loss), out_shardings=placed).lower(parameters, values).compile()
    text = max((one.read_text() for one in dump.glob("*after_optimizations.txt")), key=len)
    text = re.sub(r"/\*index=\d+\*/", "", text[text.index("\nENTRY") :])
    found = [LINE.match(line) for line in text.splitlines()]
    return [(one[1], one[2], one[3], one[4]) for one in found if one]


def size(shapes: str) -> int:
    """Return the bytes of all arrays in a type."""
    total = 0
    for dtype, sides in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
        each = BYTES.get(dtype, 0)
        for side in filter(None, sides.split(",")):
            each *= int(side)
        total += each
    return total


def widths(shapes: Iterable[str]) -> Iterator[str]:
    """Yield the types of the arrays in types."""
    for shape in shapes:
        yield from re.findall(r"(\w+)\[", shape)


_CAST = [{"bf16"}, {"f32"}]
"""Types that a cast reads and writes, and its gradient."""


def is_product(rest: str) -> bool:
    """Tell whether an instruction calls cuBLAS."""
    return "__cublas" in rest


def passes(lines: list[Line]) -> Counter[str]:
    """Return kernels, products, and what the others move in multiples of the values of a block."""
    types = {name: shape for name, shape, _, _ in lines}
    found: Counter[str] = Counter()
    for _, shape, kind, rest in lines:
        if kind in FREE:
            continue
        if is_product(rest) or UNSEEN in rest:
            found["products" if is_product(rest) else "attentions"] += 1
            continue
        read = {one for one in re.findall(r"%?([\w.\-]+)", rest.split("), ")[0]) if one in types}
        reads, writes = sum(size(types[one]) for one in read), size(shape)
        found["kernels"] += 1
        of = [{*widths(types[one] for one in read)}, {*widths([shape])}]
        if sorted(of, key=str) == _CAST and reads in (2 * writes, writes / 2):
            continue
        found["moved"] += round(100 * (reads + writes) / (2 * 2 * TOKENS * WIDTH))
    return found


def sums(lines: list[Line]) -> None:
    """Print each kind of transfer by its type: how many products lie between start and end."""
    began: dict[str, tuple[int, str]] = {}
    behind: dict[str, list[int]] = {}
    for at, (name, shape, kind, rest) in enumerate(lines):
        if kind.endswith("-start"):
            what = re.search(r"reduce-scatter|all-to-all", name + rest)
            label = what[0] if what else kind.removesuffix("-start")
            began[name] = at, f"{label} {'fp32' if 'bf16' not in shape else 'bf16'}"
        ended = re.match(r"%?([\w.\-]+)", rest)
        if kind.endswith("-done") and ended and ended[1] in began:
            start, label = began.pop(ended[1])
            between = lines[start:at]
            hidden = sum(is_product(one[3]) or UNSEEN in one[3] for one in between)
            behind.setdefault(label, []).append(hidden)
    for label, found in sorted(behind.items()):
        print(f"    {label}: {' '.join(map(str, found))}")


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description="Count what XLA compiles a block to.")
    parser.add_argument("--scheduler", action="store_true", help="hide transfers' latencies")
    on = str(parser.parse_args().scheduler).lower()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
        os.environ["XLA_FLAGS"] = (
            "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
            f" --xla_gpu_enable_latency_hiding_scheduler={on}"
            f" --xla_dump_to={folder} --xla_dump_hlo_as_text"
        )
        import jax

        dump = Path(folder)
        print(f"jax {jax.__version__}, scheduler {on}; of one block")
        for kind in ("gpt", "llama"):
            for one_kernel in (True, False):
                few, many = (
                    passes(compiled(kind, blocks, one_kernel, "", dump)) for blocks in (3, 5)
                )
                words = {at: (many[at] - few[at]) / 2 for at in many}
                words["moved"] /= 100
                how = "one kernel" if one_kernel else "products"
                print(f"{kind}, attention in {how}: ", end="")
                print(", ".join(f"{at} {words[at]:g}" for at in sorted(words)))
        for gpus in ("dp", "fsdp"):
            print(f"gpt of 3 blocks, {GPUS} GPUs, {gpus}, products behind which each is hidden:")
            sums(compiled("gpt", 3, False, gpus, dump))


if __name__ == "__main__":
    main()
