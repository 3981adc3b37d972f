"""Power-SGD's variants and ACP-SGD: kernels, bytes and waiting, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.device import KernelCurve
from perfsim.compute.kernel import Kernel, elementwise, gemm, gram_schmidt, qr
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, Method, MethodContext, Send
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import bucket, gradient, hand_device, profile, ring_cluster

MIXED = bucket(gradient((64, 128)), gradient(64))
"""A matrix of 8192 values, P of 64 and Q of 128 rows, and a vector of 64."""


def kernels(method: Method, iteration: int = 0) -> list[list[Kernel]]:
    """Return the kernels of each stage of computation on the mixed bucket."""
    stages = method.stages(MIXED, MethodContext(4), iteration)
    return [list(stage.kernels) for stage in stages if isinstance(stage, Compute)]


def sends(method: Method, iteration: int = 0) -> list[float]:
    """Return the bytes of each all-reduce on the mixed bucket."""
    stages = method.stages(MIXED, MethodContext(4), iteration)
    return [stage.size_bytes for stage in stages if isinstance(stage, Send)]


def low_rank(name: str, rows: int, columns: int, rank: int) -> Kernel:
    """Return a product of a matrix and its factors: its sizes' cost, its points by the matrix."""
    sizes = {
        "lowrank_p": (rows, columns, rank),
        "lowrank_q": (columns, rows, rank),
        "lowrank_rebuilt": (rows, rank, columns),
    }
    return gemm(*sizes[name])._replace(name=name, elements=rows * columns, width=rank)


def plan(method: Method, *shapes: int | tuple[int, ...], ranks: int = 4) -> CostedGraph:
    """Return the plan for gradients ready every 10 ms, on a ring of 1 ms and 1 ns/B a hop."""
    ready_s = [0.010 * (place + 1) for place in range(len(shapes))]
    [made] = schedule(
        profile(list(shapes), ready_s, forward_s=0.005, optimizer_s=0.001),
        method,
        fusion.load_policy(method.default_fusion() if len(shapes) == 1 else "none").fuse,
        hand_device(),
        ring_cluster(ranks, "1GB/s,1ms"),
        algorithm="ring",
    )
    return made


def test_the_hooks_kernels() -> None:
    # 8256 values: residual 3 passes, copy 2, difference 3; the vector packed 2, divided and
    # unpacked 4 (a launch for each tensor); Q divided 2.
    assert kernels(load_method("powersgd", {"rank": 2})) == [
        [
            elementwise(8256, 5, 2),
            elementwise(64, 2),
            gram_schmidt(128, 2),
            low_rank("lowrank_p", 64, 128, 2),
        ],
        [elementwise(64, 4, 2)],
        [gram_schmidt(64, 2), low_rank("lowrank_q", 64, 128, 2)],
        [low_rank("lowrank_rebuilt", 64, 128, 2), elementwise(256, 2), elementwise(8256, 3)],
    ]


def test_products_cost_their_sizes_until_low_rank_points_are_measured() -> None:
    device = hand_device()
    by_sizes = device.cost(gemm(64, 128, 4))
    product = low_rank("lowrank_p", 64, 128, 4)
    assert device.cost(product) == by_sizes
    # Points at 4096 and 16384 values of M: 8192 is half way between by logarithms.
    about = ("measured",) * 2, ("by hand",) * 2, (None,) * 2
    curve = KernelCurve(4, (4096.0, 16384.0), (1e-3, 4e-3), *about)
    measured = replace(device, points={"lowrank_p": (curve,)}).cost(product)
    assert measured.seconds == pytest.approx(2e-3) and measured.grade == "measured"


def test_the_hook_takes_qr_above_rank_2() -> None:
    made = kernels(load_method("powersgd", {"rank": 3}))
    assert qr(128, 3) in made[0] and qr(64, 3) in made[2]
    forced = kernels(load_method("powersgd", {"rank": 3, "orthogonalisation": "gram_schmidt"}))
    assert gram_schmidt(128, 3) in forced[0]


def test_a_bucket_of_vectors_only_still_feeds_its_residual_back() -> None:
    method = load_method("powersgd", {})
    stages = method.stages(bucket(gradient(64), gradient(36)), MethodContext(4), 0)
    assert [stage.size_bytes for stage in stages if isinstance(stage, Send)] == [400.0]
    assert [list(stage.kernels) for stage in stages if isinstance(stage, Compute)] == [
        [elementwise(100, 5, 2), elementwise(100, 2)],
        [elementwise(100, 4, 3)],
        [elementwise(100, 3)],
    ]


@pytest.mark.parametrize(("rate", "factored"), [(1, True), (5, True), (11, False)])
def test_a_matrix_is_compressed_if_it_shrinks_enough(rate: float, factored: bool) -> None:
    # 8192 values against 4 x (64 + 128) = 768: 10.7 times smaller.
    method = load_method("powersgd", {"min_compression_rate": rate})
    assert sends(method) == ([256.0, 1024.0, 2048.0] if factored else [33024.0])


def test_the_package_counts_one_factor_as_sent() -> None:
    # 8 x 16 at rank 4: both factors are 96 values of 128; one is 48 on average.
    one = gradient((8, 16))
    assert load_method("powersgd", {}).message_bytes(one, 0) == 512.0
    assert load_method("powersgd", {"variant": "package"}).message_bytes(one, 0) == 256.0


def test_same_shape_stacks_matrices_in_the_hook() -> None:
    two = bucket(gradient((64, 128)), gradient((64, 128)))
    method = load_method("powersgd", {"same_shape": "true"})
    stages = method.stages(two, MethodContext(4), 0)
    first, second, last = (list(one.kernels) for one in stages if isinstance(one, Compute))
    # Copied into a stack (one launch) and out of it (two); one product for both; QR one by one.
    assert first[:2] == [elementwise(16384, 5, 2), elementwise(16384, 2)]
    assert [kernel.name for kernel in first[2:]] == ["qr", "qr", "lowrank_p"]
    assert [kernel.name for kernel in second] == ["qr", "qr", "lowrank_q"]
    assert last[1] == elementwise(16384, 2, 2)
    apart = load_method("powersgd", {}).stages(two, MethodContext(4), 0)
    assert [stage for stage in stages if isinstance(stage, Send)] == [
        stage for stage in apart if isinstance(stage, Send)
    ]


def test_the_batched_hook_makes_a_square_of_the_bucket() -> None:
    # 8256 values fit a square of 91 (8281), which is moved and filled up; P and Q are 91 x 1.
    method = load_method("powersgd", {"variant": "batched_hook", "rank": 1})
    assert sends(method) == [364.0, 364.0]
    assert kernels(method) == [
        [
            elementwise(8281, 2, 2),
            elementwise(8281, 5, 2),
            gram_schmidt(91, 1),
            low_rank("lowrank_p", 91, 91, 1),
        ],
        [gram_schmidt(91, 1), low_rank("lowrank_q", 91, 91, 1)],
        [elementwise(91, 2), low_rank("lowrank_rebuilt", 91, 91, 1), elementwise(8281, 3)],
    ]
    exact = method.stages(bucket(gradient(100)), MethodContext(4), 0)[0]
    assert isinstance(exact, Compute) and exact.kernels[0] == elementwise(100, 5, 2)


def test_the_papers_code_runs_after_the_backward_pass() -> None:
    method = load_method("powersgd", {"variant": "after_backward", "rank": 2})
    # Gram-Schmidt at any rank, of P alone; the copies go a tensor at a time.
    assert kernels(method) == [
        [elementwise(8256, 5, 4), elementwise(64, 2), low_rank("lowrank_p", 64, 128, 2)],
        [gram_schmidt(64, 2), low_rank("lowrank_q", 64, 128, 2)],
        [
            elementwise(64, 4, 2),
            low_rank("lowrank_rebuilt", 64, 128, 2),
            elementwise(256, 2),
            elementwise(8192, 5, 2),
        ],
    ]
    assert sends(method) == [512.0, 256.0, 1024.0]
    assert all(stage.earliest == "backward" for stage in method.stages(MIXED, MethodContext(4), 0))


@pytest.mark.parametrize("variant", ["hook", "after_backward", "package"])
def test_a_bucket_of_vectors_only_is_sent_dense_and_waits_as_its_variant_does(variant: str) -> None:
    method = load_method("powersgd", {"variant": variant})
    stages = method.stages(bucket(gradient(64), gradient(36)), MethodContext(4), 0)
    assert [type(stage) for stage in stages[:2]] == [Compute, Send]
    assert [stage.size_bytes for stage in stages if isinstance(stage, Send)] == [400.0]


def test_the_papers_code_packs_and_unpacks_vectors_a_tensor_at_a_time() -> None:
    # Residual 5 passes with 2 launches a tensor; packed 2; divided and unpacked 4 with 1 + 2.
    method = load_method("powersgd", {"variant": "after_backward"})
    first, sent, last = method.stages(bucket(gradient(64), gradient(36)), MethodContext(4), 0)
    assert isinstance(first, Compute) and isinstance(last, Compute) and isinstance(sent, Send)
    assert list(first.kernels) == [elementwise(100, 5, 4), elementwise(100, 2)]
    assert list(last.kernels) == [elementwise(100, 4, 3)]
    assert sent.size_bytes == 400.0 and not sent.awaited
    assert {first.earliest, sent.earliest, last.earliest} == {"backward"}


def test_without_a_warm_start_q_is_drawn_and_copied() -> None:
    cold = load_method("powersgd", {"variant": "after_backward", "rank": 2, "warm_start": "false"})
    warm = load_method("powersgd", {"variant": "after_backward", "rank": 2})
    added = [kernel for kernel in kernels(cold)[0] if kernel not in kernels(warm)[0]]
    assert added == [elementwise(256, 3, 2)]


def test_the_package_sends_q_and_p_in_turn() -> None:
    method = load_method("powersgd", {"variant": "package", "rank": 4})
    assert sends(method, 0) == [4.0 * 128 * 4, 256.0]
    assert sends(method, 1) == [4.0 * 64 * 4, 256.0]
    stacked, finish, zeroed = kernels(method, 0)
    # P is orthonormalised, and copied back, to make Q.
    assert stacked[:3] == [elementwise(8192, 3, 2), qr(64, 4), elementwise(256, 2)]
    assert stacked[3] == low_rank("lowrank_q", 64, 128, 4)
    assert finish[1:] == [elementwise(8192, 4, 2), elementwise(64, 4, 2)]
    assert zeroed == [elementwise(64, 1)]
    assert method.default_fusion() == "whole"


def test_the_package_only_divides_by_the_norm_at_rank_1() -> None:
    method = load_method("powersgd", {"variant": "package", "rank": 1})
    assert kernels(method, 1)[0][1] == elementwise(128, 3, 3)
    forced = load_method("powersgd", {"variant": "package", "rank": 1, "orthogonalisation": "qr"})
    assert kernels(forced, 1)[0][1:3] == [qr(128, 1), elementwise(128, 2)]


def test_the_package_with_nothing_to_compress_sends_it_dense() -> None:
    method = load_method("powersgd", {"variant": "package"})
    stages = method.stages(bucket(gradient(64)), MethodContext(4), 0)
    assert [type(stage) for stage in stages] == [Compute, Send, Compute]


@pytest.mark.parametrize(
    ("variant", "expected"),
    # Residual 33024; P 512 and Q 1024 at rank 2; squares of 91 and 8 have factors of 1456 and 128.
    [
        ("hook", 33024 + 1536),
        ("after_backward", 2 * 33024 + 1536),
        ("package", 1536),
        ("batched_hook", 33024 + 1456 + 128),
    ],
)
def test_memory_of_powersgd(variant: str, expected: int) -> None:
    method = load_method("powersgd", {"variant": variant, "rank": 2})
    assert method.memory_bytes(MIXED.gradients, 4) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variant": "package", "same_shape": "true"}, ["same_shape", "variant hook"]),
        ({"warm_start": "false"}, ["warm_start", "variant after_backward"]),
        (
            {"variant": "batched_hook", "min_compression_rate": 3},
            ["min_compression_rate", "hook or package"],
        ),
        ({"variant": "hok"}, ["options.variant", "'hok'"]),
        ({"min_compression_rate": 0.5}, ["options.min_compression_rate", "1.0 or more"]),
    ],
)
def test_an_option_of_another_variant_is_refused(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        load_method("powersgd", options)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_acpsgds_kernels() -> None:
    method = load_method("acpsgd", {"rank": 2})
    # M + E, M - P Q^T and E += in 3 launches and 9 passes; both factors and the vector are copied.
    assert kernels(method, 0) == [
        [
            qr(128, 2),
            low_rank("lowrank_p", 64, 128, 2),
            low_rank("lowrank_rebuilt", 64, 128, 2),
            elementwise(8192, 9, 3),
            elementwise(64 + 128 + 256, 2, 3),
        ]
    ]
    assert kernels(method, 1)[0][:2] == [qr(64, 2), low_rank("lowrank_q", 64, 128, 2)]
    # Residual of the matrix, P, Q, and the vector in the buffers of both.
    assert method.memory_bytes(MIXED.gradients, 4) == 4 * 8192 + 512 + 1024 + 2 * 256


def test_acpsgd_rebuilds_nothing_before_the_last_all_reduce() -> None:
    # Two matrices of 500 x 500 at rank 4: each all-reduce takes 6 hops of 1 ms and more.
    made = plan(load_method("acpsgd", {}), (500, 500), (500, 500))
    names = [task.name for task in made.graph.tasks]
    timeline = run(made)
    rebuild, first, last = (
        names.index(name) for name in ("decompress 0.rebuild", "all_reduce 0.0", "all_reduce 0.1")
    )
    starts, ends = timeline.starts[0], timeline.ends[0]
    assert ends[first] < starts[last]
    assert starts[rebuild] == ends[last]
    assert names.count("decompress 0.rebuild") == names.count("decompress 1.rebuild") == 1


def test_the_hook_exposes_what_acpsgd_hides() -> None:
    # An iteration: all but the last all-reduce is hidden; P and Q of both matrices are not.
    exposed = {
        name: run(plan(load_method(name, {"rank": 4}), (500, 500), (500, 500))).breakdown()[
            "communication_exposed"
        ]
        for name in ("acpsgd", "powersgd")
    }
    hop_s, byte_s = 6e-3, 1.5e-9
    assert exposed["acpsgd"] == pytest.approx(hop_s + 8000 * byte_s)
    assert exposed["powersgd"] == pytest.approx(4 * (hop_s + 8000 * byte_s))


@given(
    rows=st.integers(2, 300),
    columns=st.integers(2, 300),
    rank=st.integers(1, 8),
    ranks=st.integers(2, 16),
)
def test_bytes_on_the_wire_by_variant(rows: int, columns: int, rank: int, ranks: int) -> None:
    r = min(rank, rows, columns)
    share = 2 * (ranks - 1) / ranks * 4
    made = plan(
        load_method("powersgd", {"variant": "after_backward", "rank": rank}),
        (rows, columns),
        ranks=ranks,
    )
    assert made.sent_bytes == pytest.approx(share * (rows + columns) * r)
    package = load_method("powersgd", {"variant": "package", "rank": rank})
    two = plan(package, (rows, columns), ranks=ranks)
    each = (rows + columns) * r if (rows + columns) * r < rows * columns else 2 * rows * columns
    # Two iterations a period: Q in one and P in the other, or all of it in both.
    assert two.iterations == 2 and two.sent_bytes == pytest.approx(share * each)
    square = load_method("powersgd", {"variant": "batched_hook", "rank": rank})
    side = int((rows * columns - 1) ** 0.5) + 1
    assert plan(square, (rows, columns), ranks=ranks).sent_bytes == pytest.approx(
        share * 2 * side * min(rank, side)
    )


def test_the_hooks_start_dense() -> None:
    """Each bucket is divided (2 passes) and all-reduced; weights are those of the shares."""
    dense, both, compressed = (
        schedule(
            profile([(64, 128)], [0.01]),
            load_method("powersgd", {"rank": 1, "dense_share": share}),
            fusion.load_policy("size").fuse,
            hand_device(),
            ring_cluster(4, "1GB/s,1ms"),
        )
        for share in (1, 0.25, 0)
    )
    assert [one.count for one in both] == [0.25, 0.75]
    assert [one.graph.tasks for one in both] == [one.graph.tasks for one in (*dense, *compressed)]
    assert [one.sent_bytes for one in dense] == [pytest.approx(2 * 3 / 4 * 4 * 8192)]
    method = load_method("powersgd", {"dense_share": 1})
    assert (kernels(method, 2), sends(method, 2)) == ([[elementwise(8256, 2)]], [4 * 8256])


def test_only_hooks_start_dense() -> None:
    with pytest.raises(RequestError, match="is only for variant hook or batched_hook"):
        load_method("powersgd", {"variant": "package", "dense_share": 0.1})


def test_hooks_of_pytorch_before_qr_have_gram_schmidt_at_any_rank() -> None:
    """pytorch/pytorch pull request 72043 of January 2022; the paper's code has it always."""

    def orthogonalised(software: str, **options: object) -> set[str]:
        method = load_method("powersgd", {"rank": 16, **options})
        stages = method.stages(MIXED, MethodContext(4, software=software), 0)
        kernels = [k.name for stage in stages if isinstance(stage, Compute) for k in stage.kernels]
        return {"qr", "gram_schmidt"} & set(kernels)

    for variant in ("hook", "batched_hook"):
        assert orthogonalised("torch1.8", variant=variant) == {"gram_schmidt"}
        assert orthogonalised("torch1.12", variant=variant) == {"qr"}
    assert orthogonalised("torch1.8", orthogonalisation="qr") == {"qr"}
    assert orthogonalised("torch1.8", variant="package") == {"qr"}
