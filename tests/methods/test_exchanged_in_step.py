"""DeMo, CocktailSGD and THC by hand: bytes, passes, launches, order; closed forms and laws."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send
from perfsim.methods.building.tensor_lists import gathered_in_list
from perfsim.methods.cocktailsgd import Cocktailsgd
from perfsim.methods.demo import Demo
from perfsim.methods.thc import Thc
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import bucket, gradient, hand_device, profile, ring_cluster
from support.layered import milliseconds, model, names, plan, start_ms
from support.stages import kernels, moved, sends

WORKERS = st.integers(2, 40)


def demo(**options: Any) -> Demo:
    """Return DeMo with these options."""
    made = load_method("demo", options)
    assert isinstance(made, Demo)
    return made


def cocktail(**options: Any) -> Cocktailsgd:
    """Return CocktailSGD with these options."""
    made = load_method("cocktailsgd", options)
    assert isinstance(made, Cocktailsgd)
    return made


def thc(**options: Any) -> Thc:
    """Return THC with these options."""
    made = load_method("thc", options)
    assert isinstance(made, Thc)
    return made


def launches(found: list[Kernel]) -> int:
    """Return how many kernels are launched."""
    return sum(kernel.launches for kernel in found)


def sent_bytes(method: Method, ranks: int, one: Gradient) -> float:
    """Return what a rank sends in an iteration of a model of one tensor."""
    of = profile([one.shape], [0.01]).sent_in(one.value_bytes)
    [found] = schedule(
        of,
        method,
        lambda gradients, _: [bucket(*gradients)],
        hand_device(),
        ring_cluster(ranks, "1GB/s,1us"),
        algorithm="ring",
    )
    return found.sent_bytes


# DeMo.


def matrix(rows: int, columns: int, width: float = 4.0) -> Gradient:
    """Return a matrix whose values have a width on the wire [B]."""
    return Gradient("w", (rows, columns), 0.0, 0, width)


@pytest.mark.parametrize(
    ("shape", "options", "values"),
    [
        ((256, 512), {}, 32 * 32),  # 32 chunks of 64 x 64, 32 of each
        ((1024,), {}, 16 * 32),  # 16 chunks of 64: half of the values
        ((1000,), {}, 20 * 32),  # chunks of 50, which is the largest divisor up to 64
        ((67, 128), {}, 67 * 2 * 32),  # 67 is prime: chunks of 1 x 64
        ((48,), {}, 32),  # one chunk of 48
        ((16,), {}, 16),  # no more than the chunk has
        ((256, 512), {"topk": 4096}, 256 * 512),  # density 1
        ((64, 64, 3, 3), {}, 9 * 32),  # as 64 x 576
        ((256, 256), {"chunk": 128, "topk": 8}, 4 * 8),
    ],
)
def test_demo_keeps_so_many_of_each_chunk(
    shape: tuple[int, ...], options: dict[str, Any], values: int
) -> None:
    assert demo(**options).sent_values(gradient(shape)) == values


def test_demo_gathers_indices_and_values_of_a_tensor_after_the_other() -> None:
    """Work out 256 x 512 on 4 ranks: 1024 pairs of 8 and 4 bytes; each rank gets 4 times that."""
    stages = demo().step(matrix(256, 512), 4)
    assert sends(stages) == [("all_gather", 4 * 8 * 1024.0), ("all_gather", 4 * 4 * 1024.0)]
    assert {stage.earliest for stage in stages} == {"backward"}
    first, index, copied, value, copied_too, last = stages
    assert isinstance(index, Send) and isinstance(value, Send)
    for copies, size in ((copied, 32768), (copied_too, 16384)):
        assert isinstance(copies, Compute) and copies.stream == "communication"
        assert copies.kernels[0].moved_bytes == 2 * size
        assert copies.kernels[0].launches == 4
    assert isinstance(first, Compute) and first.stream == "compute"
    assert isinstance(last, Compute) and last.stream == "compute"


def test_demo_moves_and_launches_what_its_code_does() -> None:
    """Count the operations of DeMo.step on 256 x 512 fp32 values and 4 ranks.

    Before the gathers, in values of n: decay 2, gradient 3, DCT 2 (2 + 2), magnitude 2; then zeros
    1, counts 1, compare and mask 3 (and 2 truth values), division 3; DCT 8; subtraction 3. Top-k
    counts 7. 15 launches: 2, 4, 1, -, gather 1, put back 9 (5 over all, 4 over pairs), 4, 1, and
    the 8 tensors of the lists. A product reads its side x side basis too. Each of k pairs: gather
    16; put back 3 indices of 8 and 8 values of 4.
    """
    n, k, ranks = 256 * 512, 1024, 4
    stages = demo().step(matrix(256, 512), ranks)
    before, after = kernels(stages, "compress"), kernels(stages, "decompress")[2:]
    basis, pairs, lists = 2 * 2 * 64 * 64 * 4, 16 + 24 + 32, 12 * k * ranks
    dense = 4 * (2 + 3 + 8 + 2 + 7 + 8 + 8 + 3) + 2
    assert moved(before) == dense * n + basis + pairs * k + lists
    assert launches(before) == 2 + 4 + 1 + 7 + 1 + 9 + 4 + 1 + 2 * ranks
    # After: both lists joined, put back, DCT, copied into the gradient and its sign: 2 + 2.
    assert moved(after) == (4 * (8 + 8 + 4) + 2) * n + basis // 2 + 56 * k * ranks + 2 * lists
    assert launches(after) == 2 + 9 + 4 + 2
    # Every product multiplies each value by a row of 64.
    assert sum(kernel.flops for kernel in before + after) == 6 * 2 * 64 * n


def test_demo_transforms_a_vector_by_one_product_without_copies() -> None:
    """A vector's chunks of 64 lie in order: 3 products in all, no reordering."""
    stages = demo().step(gradient(1024), 4)
    found = kernels(stages, "compress") + kernels(stages, "decompress")
    assert [kernel.name for kernel in found].count("gemm") == 3


def test_demo_moves_half_as_much_where_values_have_two_bytes() -> None:
    """Passes over values halve; the truth values (2 bytes in all) and indices do not."""
    (wide, narrow) = (
        kernels(demo().step(matrix(4096, 4096, width), 2), "decompress")[2:] for width in (4.0, 2.0)
    )
    elementwise = [
        moved([one for one in found if one.name == "elementwise" and one.elements > 10**7])
        for found in (wide, narrow)
    ]
    assert elementwise[0] - 2 * 4096**2 == 2 * (elementwise[1] - 2 * 4096**2)


@pytest.mark.parametrize("width", [2.0, 4.0])
@given(ranks=WORKERS)
def test_demo_sends_its_formula(width: float, ranks: int) -> None:
    # k (8 + w) / 4096 a parameter, to each of the others.
    one = matrix(512, 256, width)
    expected = (ranks - 1) * 32 * (8 + width) / 4096 * one.elements
    assert sent_bytes(demo(), ranks, one) == pytest.approx(expected, rel=1e-9)


def test_demo_breaks_even_with_a_ring_of_16_bits_beyond_51_ranks() -> None:
    """(N-1) 32 x 10/4096 against 4 (N-1)/N bytes a parameter: equal at N = 51.2."""
    one, dense = matrix(512, 512, 2.0), load_method("ssgd", {})
    smaller = [sent_bytes(demo(), n, one) < sent_bytes(dense, n, one) for n in (2, 51, 52, 64)]
    assert smaller == [True, True, False, False]


def test_demo_of_density_one_sends_more_than_dense_by_its_indices() -> None:
    """All values with 8 bytes of index: 3 (N-1) times 4 bytes; a ring all-reduce 2 (N-1)/N."""
    one, full = matrix(128, 128), demo(topk=4096)
    ratio = sent_bytes(full, 4, one) / sent_bytes(load_method("ssgd", {}), 4, one)
    assert ratio == pytest.approx(3 * 3 / (2 * 3 / 4))


def test_demo_overlaps_nothing() -> None:
    """Gathers start when the passes of 40 ms are over, and wait for each other's decoding."""
    found = plan(demo(), model([4096, 4096], [5.0, 5.0]))
    begins = [
        float(start) / 1e-3
        for task, start in zip(found.graph.tasks, run(found).starts[0], strict=True)
        if task.name.startswith("all_gather")
    ]
    assert len(begins) == 4 and begins[0] > 40.0 and begins == sorted(begins)
    serial_s = sum(float(task.duration_s) for task in found.graph.tasks)
    assert milliseconds(found) == pytest.approx(1e3 * serial_s, rel=1e-9)


def test_demo_goes_tensor_by_tensor_whatever_the_fusion() -> None:
    two = model([4096, 1024], [5.0, 5.0])
    assert plan(demo(), two).calls == plan(demo(), two, policy="whole").calls == 4


def test_demo_on_one_gpu_runs_its_kernels_and_sends_nothing() -> None:
    alone = plan(demo(), model([4096], [5.0]), cluster=ring_cluster(1, "1GB/s,1us"))
    assert alone.calls == 0 and names(alone, "compress") and names(alone, "decompress")


def test_demo_holds_the_lists_of_one_tensor_at_a_time() -> None:
    """Momentum of 512 x 256 and 64 x 64 values; 32 x 32 pairs of 12 bytes from 8 ranks, twice."""
    gradients = [matrix(512, 256), matrix(64, 64)]
    assert demo().memory_bytes(gradients, 8) == 4 * (512 * 256 + 4096) + 2 * 8 * 12 * 1024
    asked = {"model": "gpt2", "gpu": "a100", "gpus": 64, "net": "ib100"}
    messages = [
        predict(make_scenario(asked | {"method": name})).memory_bytes["messages"]
        for name in ("demo", "topk")
    ]
    assert messages[0] == 0.0 < messages[1]


# CocktailSGD.


@pytest.mark.parametrize(
    ("elements", "ranks", "options", "expected"),
    [
        # 128,000 of a chunk: every tenth; 2560 kept; 4 bits each, 20 scales, 12,800 bits.
        (512_000, 4, {}, (128_000, 12_800, 2_560, (1280.0, 40.0, 1600.0))),
        # 1000 a chunk: 100 sampled would not fill a bucket of 128, so all are; 200 -> 128 kept.
        (4_000, 4, {}, (1_000, 1_000, 128, (64.0, 2.0, 125.0))),
        # A bucket of what there is: 20 kept of 100, one scale.
        (400, 4, {}, (100, 100, 20, (10.0, 2.0, 13.0))),
        # P does not divide 10: the last chunk counts as full.
        (10, 4, {}, (3, 3, 1, (1.0, 2.0, 1.0))),
        # The code's own defaults: half of a half, a byte a value.
        (
            8_192,
            2,
            {"random_ratio": 0.5, "topk_ratio": 0.5, "bits": 8},
            (4_096, 2_048, 1_024, (1024.0, 16.0, 256.0)),
        ),
    ],
)
def test_cocktailsgd_message_by_hand(
    elements: int, ranks: int, options: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    assert tuple(cocktail(**options).message(elements, ranks)) == expected


@given(
    ranks=WORKERS,
    tenths=st.sampled_from([2, 4, 5, 10]),
    fifths=st.sampled_from([0.125, 0.25, 0.5, 1.0]),
    bits=st.integers(2, 8),
)
def test_cocktailsgd_sends_two_phases_of_sampled_bits(
    ranks: int, tenths: int, fifths: float, bits: int
) -> None:
    """2 (P-1)/P r (k q + 1)/8 bytes a parameter, and 2 bytes for each 128 values kept."""
    method = cocktail(random_ratio=1 / tenths, topk_ratio=fifths, bits=bits)
    n = ranks * tenths * 128 * 64  # so that nothing is rounded
    per_parameter = (fifths * bits + 1) / 8 / tenths + 2 * fifths / tenths / 128
    expected = 2 * (ranks - 1) / ranks * per_parameter * n
    assert sent_bytes(method, ranks, gradient(n)) == pytest.approx(expected, rel=1e-9)


def test_cocktailsgd_sends_what_the_survey_derives() -> None:
    """0.1 x (0.2 x 4 + 1 + 0.2 x 16/128)/8 = 0.0228 bytes a parameter and phase."""
    n = 64 * 1280 * 1000
    each = sum(cocktail().message(n, 64).parts_bytes) * 64 / n
    assert each == pytest.approx(0.0228125)


def test_cocktailsgd_moves_and_launches_what_its_code_does() -> None:
    """Count _partial_sync on 512,000 values and 4 ranks: c 128,000, m 12,800, k 2560 a chunk.

    A reading or writing at the mask: 2 bytes of c, 16 + 2 w of m, 5 launches. Drawn: mask rolled
    (2 c), read at w 4 and 2, difference and cast (16 m). Compressed: 10.25 m + 80 k (4 bits: 67 +
    13) and Top-k (28 m). Decoded: 79.5 k + 15.125 m. Taken off: read, 10 m, written, at 4 bytes.
    """
    c, m, k, ranks = 128_000, 12_800, 2_560, 4
    staged, _, server, _, last = cocktail().synchronised(c * ranks, MethodContext(ranks))
    drawn = 2 * c + (2 * c + 24 * m) + (2 * c + 20 * m) + 16 * m
    encoded, decoded = (10.25 + 28) * m + 80 * k, 15.125 * m + 79.5 * k
    taken = 2 * (2 * c + 24 * m) + 10 * m
    message = 1280 + 40 + 1600
    own = drawn + encoded + decoded + taken
    assert isinstance(staged, Compute) and isinstance(server, Compute) and isinstance(last, Compute)
    assert moved(list(staged.kernels)) == pytest.approx(ranks * (own + message))
    of_own = (1 + 5 + 5 + 2) + (9 + 7 + 15) + (10 + 8) + (5 + 1 + 5)
    assert launches(list(staged.kernels)) == ranks * (of_own + 3)
    # Owner: P decoded, divided (4 m) and all but the first added (6 m); its error read, added,
    # the mean encoded and decoded, the difference taken and kept. Copies up, then down for each.
    at_mask = 2 * c + 20 * m
    mean = ranks * decoded + (4 * ranks + 6 * (ranks - 1)) * m + 2 * at_mask + 12 * m
    total = mean + encoded + decoded + 2 * ranks * message
    assert moved(list(server.kernels)) == pytest.approx(total)
    # All: P decoded, added to the own model in fp32 and to the global one in fp16.
    new = decoded + taken + 2 * at_mask + 6 * m
    assert moved(list(last.kernels)) == pytest.approx(ranks * (new + message))
    assert launches(list(last.kernels)) == ranks * (18 + 11 + 11 + 3)


def test_cocktailsgd_copies_every_part_of_every_message_through_the_host() -> None:
    stages = cocktail().synchronised(512_000, MethodContext(4))
    copies = [
        (kernel.name, kernel.elements)
        for stage in stages
        if isinstance(stage, Compute)
        for kernel in stage.kernels
        if kernel.name.startswith("copy")
    ]
    down, up = (
        [(f"copy_to_{where}", part // 4) for part in (1280, 40, 1600)] * 4
        for where in ("host", "gpu")
    )
    assert copies == down + up + down + up
    assert {stage.stream for stage in stages} == {"communication"}
    assert sends(stages) == [("all_to_all", 4 * 2920.0)] * 2


def test_cocktailsgd_runs_beside_the_iteration_and_the_update_waits() -> None:
    """Passes take 40 ms. On a fast network they hide all of it; on a slow one the rest shows."""
    of = model([51_200, 51_200], [5.0, 5.0])
    fast, slow = (
        plan(cocktail(), of, ring_cluster(4, link)) for link in ("100GB/s,1us", "1GB/s,20ms")
    )
    sync_ms = [
        sum(float(task.duration_s) for task in found.graph.tasks if task.stream == "communication")
        / 1e-3
        for found in (fast, slow)
    ]
    late_ms = milliseconds(fast) - 40.0
    assert sync_ms[0] < 40.0 < sync_ms[1]
    # The update: 2 ms, as its 2 tensors' launches take less.
    assert late_ms == pytest.approx(2.0)
    assert milliseconds(slow) == pytest.approx(sync_ms[1] + 2.0, rel=1e-9)
    assert start_ms(slow, names(slow, "compress")[0]) == 0.0


def test_cocktailsgd_runs_beside_the_last_micro_batch() -> None:
    """Of 4 micro-batches of 40 ms the first three go by before the thread starts."""
    of = model([51_200, 51_200], [5.0, 5.0])
    found = plan(cocktail(), of, micro_batches=4)
    assert start_ms(found, names(found, "compress")[0]) == pytest.approx(120.0)


def test_cocktailsgd_keeps_a_global_model_masks_and_its_error() -> None:
    """1000 parameters on 4 ranks: 2 bytes and 1 byte each, 2 for each of 250 that it owns."""
    assert cocktail().memory_bytes([gradient(1000)], 4) == 3500
    state = cocktail().state(MethodContext(4), each=True)
    assert cocktail().keeps_half and state.gradient_bytes == 6.0


# THC.


def test_thc_pads_its_last_slice_to_a_power_of_two() -> None:
    assert thc().slices(2**21 + 5) == [2**20, 2**20, 8]
    assert thc().slices(3 * 2**20) == [2**20] * 3
    assert thc(slice_values=1024).slices(1500) == [1024, 512]


def test_thc_pushes_half_a_byte_and_pulls_a_byte() -> None:
    """A slice of 1 Mi values on 4 nodes of 2: each GPU half of it, servers 1/4 of 4 times 1 MiB."""
    stages = thc().way(2**20, MethodContext(8, 4, 2))
    assert sends(stages) == [
        ("push", 2**20 / 4),
        ("pull", 2**20 / 2),
        ("all_gather", float(2**20)),
    ]
    work = [
        (kernel.name, kernel.elements)
        for stage in stages[1:]
        if isinstance(stage, Compute)
        for kernel in stage.kernels
    ]
    assert work == [("copy_to_host", 2**17), ("cpu_sum", 2**18), ("copy_to_gpu", 2**17)]


def test_thc_on_one_node_only_gathers_inside() -> None:
    stages = thc().way(2**20, MethodContext(4, 1, 4))
    assert sends(stages) == [("all_gather", float(2**20))]


def thc_kernels(gpus_per_node: int) -> list[Kernel]:
    """Return THC's kernels on two slices of 1 Mi values and 2 nodes, in order of the jobs."""
    world = MethodContext(2 * gpus_per_node, 2, gpus_per_node)
    stages: list[JobStage] = []
    for job in thc().jobs([bucket(gradient(2**21 - 3))], world, 0):
        stages += job.stages
    return [
        kernel
        for stage in stages
        if isinstance(stage, Compute) and stage.stream == "compute"
        for kernel in stage.kernels
    ]


def test_thc_moves_and_launches_what_its_code_does() -> None:
    """Two slices: joined and padded (4 passes), norm (6), rotation (9), compression (285 bytes).

    Decoding: 77 bytes, and 2 passes to join. Launches a slice: 4, 4, 33, 9; where a node has two
    GPUs decoding has 6 more, as the norms of both count.
    """
    n = 2**21
    of = {count: thc_kernels(count) for count in (1, 2)}
    chosen_bytes = 8 * 4
    assert moved(of[1]) == (4 * (4 + 6 + 9) + 285 + 77 + 8) * n + chosen_bytes
    assert launches(of[1]) == 2 + 2 * (4 + 4 + 33 + 9) + 1 + 7 * 2
    assert launches(of[2]) - launches(of[1]) == 2 * 6 + 2 * 7


def test_thc_slices_follow_each_other_and_decoding_waits_for_all() -> None:
    """Three slices: each push begins when its compression is over, whatever pulls wait for."""
    of = model([3 * 2**20], [5.0])
    found = plan(thc(), of, policy="whole")
    pushes, pulls = (names(found, each) for each in ("push 0.", "pull 0."))
    assert pushes == ["push 0.norms", "push 0.0", "push 0.1", "push 0.2"]
    assert start_ms(found, "push 0.1") < start_ms(found, "pull 0.1")
    last_ms = max(start_ms(found, name) for name in pulls)
    assert start_ms(found, "decompress 0.gradients") > last_ms
    # The rotation runs while the norms are on their way.
    assert start_ms(found, "compress 0.rotation") < start_ms(found, "pull 0.norms")
    assert start_ms(found, "compress 0.0") > start_ms(found, "pull 0.norms")


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_thc_sends_its_formula(nodes: int) -> None:
    """(P-1)/P of half a byte and of a byte a value, and of 72 fp32 norms a slice both ways."""
    expected = (nodes - 1) / nodes * (1.5 * 2**20 + 2 * 288)
    assert sent_bytes(thc(), nodes, gradient(2**20 - 7)) == pytest.approx(expected, rel=1e-9)


def test_thc_adds_up_bytes_on_eight_nodes_at_most() -> None:
    # 8 x 30 = 240 fits a byte, 9 x 30 does not.
    assert thc().refusal(MethodContext(64, 8, 8)) == ""
    assert "8 nodes at most, not on 9" in thc().refusal(MethodContext(9))


@pytest.mark.parametrize("value", ["1000", "0", "1536"])
def test_thc_slices_are_powers_of_two(value: str) -> None:
    with pytest.raises(RequestError, match="slice_values"):
        load_method("thc", {"slice_values": value})


def test_thc_refuses_too_many_slices() -> None:
    of = model([25_000 * 1024], [5.0])
    assert "slice_values" in thc(slice_values=1024).refusal(MethodContext(4, profile=of))


def test_thc_keeps_errors_a_copy_indices_and_signs() -> None:
    """1000 values are padded to 1024: 4 + 4 + 1 bytes each, and 4 of signs."""
    assert thc().memory_bytes([gradient(1000)], 4) == 1024 * (9 + 4)
    # Signs are kept for 8 Mi values at most.
    assert thc().memory_bytes([gradient(2**24)], 4) == 9 * 2**24 + 4 * 2**23


# All.


@pytest.mark.parametrize("name", ["demo", "cocktailsgd", "thc"])
def test_more_workers_never_send_less(name: str) -> None:
    n = 2**20
    sent = [sent_bytes(load_method(name, {}), ranks, gradient((1024, 1024))) for ranks in (2, 4, 8)]
    # Cocktail rounds each owner's chunk down to whole buckets: up to 128 sampled values an owner.
    slack = 2 * 8 * (128 / 8 + 128 * 4 / 8) if name == "cocktailsgd" else 0.0
    assert all(more >= less - slack for less, more in pairwise(sent))
    assert sent[0] < n * 4  # less than a ring all-reduce of fp32 values


@pytest.mark.parametrize("name", ["demo", "cocktailsgd", "thc"])
def test_the_step_exchanges_once_an_iteration(name: str) -> None:
    of = model([51_200, 51_200], [5.0, 5.0])
    method = load_method(name, {})
    once, four = (plan(method, of, micro_batches=count) for count in (1, 4))
    assert once.calls == four.calls
    with pytest.raises(RequestError, match="in the optimizer's step"):
        method.exchanges_each(asked=True)


def test_a_list_is_gathered_and_copied_tensor_by_tensor() -> None:
    stages = gathered_in_list(1000.0, 8, "update")
    assert [stage.earliest for stage in stages] == ["update", "update"]
    assert sends(stages) == [("all_gather", 8000.0)]


@pytest.mark.parametrize(
    ("name", "optimizers"),
    [
        ("demo", ["sgd"]),
        ("onebit_adam", ["adam", "adamw"]),
        ("zero_one_adam", ["adam", "adamw"]),
        ("onebit_lamb", ["lamb"]),
        ("cocktailsgd", ["sgd", "adamw", "lamb"]),
    ],
)
def test_another_optimizer_than_that_of_the_step_is_told(name: str, optimizers: list[str]) -> None:
    asked = {"model": "resnet50", "gpus": 8, "net": "10gbe", "method": name}

    def told(**more: Any) -> bool:
        notes = predict(make_scenario(asked | more)).notes
        return any(f"steps as {optimizers[0]} does" in note for note in notes)

    # The profile's is SGD with momentum, which profiles call sgd.
    assert told() == (name != "cocktailsgd")
    assert not any(told(optimizer=optimizer) for optimizer in optimizers)
    assert not told(gpus=1)
