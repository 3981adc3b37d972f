"""Pipelines over links of different speed: by hand, by law, and the file that describes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.cli.main import code
from perfsim.errors import DataError
from perfsim.methods import method_names
from perfsim.pipeline import (
    PipelineLink,
    PipelineStage,
    adaptive_ratios,
    iteration_s,
    masked_bytes,
    masked_iteration_s,
    pass_s,
    read_pipeline,
    top_k_bytes,
)

TIMES = st.floats(0.001, 10.0)
STAGES = st.builds(PipelineStage, TIMES, TIMES)
LINKS = st.builds(PipelineLink, st.floats(0.0, 1.0), st.floats(1e-9, 1e-3), st.integers(1, 10**6))

FILE = """\
schema = "perfsim/pipeline/1"
micro_batches = 3
reduction = 10

[[stage]]
forward = "1s"
backward = "2s"

[[stage]]
forward = "2s"
backward = "4s"

[[link]]
rate = "1kB/s"
latency = "100ms"
activation = "12000B"
"""


def walked(steps_s: list[tuple[float, float]], micro_batches: int) -> float:
    """Return the end of the last micro-batch, each step with its latency walked one by one."""
    free_s, end_s = [0.0] * len(steps_s), 0.0
    for _ in range(micro_batches):
        end_s = 0.0
        for place, (time_s, latency_s) in enumerate(steps_s):
            free_s[place] = max(end_s, free_s[place]) + time_s
            end_s = free_s[place] + latency_s
    return end_s


@given(
    steps_s=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=7),
    micro_batches=st.integers(1, 9),
)
def test_a_pass_takes_what_walking_through_it_takes(
    steps_s: list[tuple[float, float]], micro_batches: int
) -> None:
    times_s, latencies_s = zip(*steps_s, strict=True)
    found = pass_s(times_s, micro_batches, latencies_s)
    assert found == pytest.approx(walked(steps_s, micro_batches))


def test_an_iteration_by_hand() -> None:
    # A message of 1000 values takes 0.5 + 4000 x 0.001 = 4.5 s; the next follows after 4 s, the
    # slowest. Forward 1 + 4.5 + 2 + 2 x 4 = 15.5, backward 3 + 4.5 + 1 + 2 x 4 = 16.5.
    stages, links = (
        [PipelineStage(1.0, 3.0), PipelineStage(2.0, 1.0)],
        [PipelineLink(0.5, 0.001, 1000)],
    )
    assert iteration_s(stages, links, 3) == pytest.approx(32.0)
    # A tenth of the values: 100 x 12 B, 0.5 + 1.2 = 1.7 s. Now the stages are slower:
    # forward 1 + 1.7 + 2 + 2 x 2 = 8.7, backward 3 + 1.7 + 1 + 2 x 3 = 11.7.
    assert iteration_s(stages, links, 3, [10.0]) == pytest.approx(20.4)


def test_a_thresholded_iteration_by_hand() -> None:
    # 100 of 1000 values and 125 bytes of mask forward, the values alone backward: messages take
    # 0.5 + 0.525 and 0.5 + 0.4 s. Forward 1 + 1.025 + 2 + 2 x 2, backward 3 + 0.9 + 1 + 2 x 3.
    stages, links = (
        [PipelineStage(1.0, 3.0), PipelineStage(2.0, 1.0)],
        [PipelineLink(0.5, 0.001, 1000)],
    )
    assert links[0].masked_s(0.1) == pytest.approx((1.025, 0.9))
    assert masked_iteration_s(stages, links, 3, 0.1) == pytest.approx(8.025 + 10.9)


def test_masked_messages_are_dense_where_the_mask_would_not_pay() -> None:
    # Of 64 values in 256 bytes, 61 and a mask of 8 bytes are 252, 62 and the mask 256.
    assert masked_bytes(64, 61 / 64) == (252, 244)
    assert masked_bytes(64, 62 / 64) == (256, 256)
    for share in (0.0, 1.1):
        with pytest.raises(ValueError, match="share"):
            masked_bytes(64, share)


@given(elements=st.integers(1, 10**6), share=st.floats(1e-4, 1.0))
def test_masked_messages_never_beat_their_values_nor_exceed_dense(
    elements: int, share: float
) -> None:
    there, back = masked_bytes(elements, share)
    assert 4 * elements * share <= back * (1 + 1e-12)
    assert back <= there <= 4 * elements


@given(stages=st.lists(STAGES, min_size=2, max_size=5), data=st.data())
def test_all_kept_is_a_dense_iteration(stages: list[PipelineStage], data: st.DataObject) -> None:
    count = len(stages) - 1
    links = data.draw(st.lists(LINKS, min_size=count, max_size=count))
    dense = iteration_s(stages, links, 4)
    assert masked_iteration_s(stages, links, 4, 1.0) == pytest.approx(dense)
    share = data.draw(st.floats(0.001, 1.0))
    assert masked_iteration_s(stages, links, 4, share) <= dense * (1 + 1e-12)


def test_one_stage_only_computes() -> None:
    assert iteration_s([PipelineStage(1.0, 2.0)], [], 5) == 15.0


@given(times=st.tuples(TIMES, TIMES), count=st.integers(1, 6), micro_batches=st.integers(1, 20))
def test_equal_stages_on_free_links_have_gpipes_bubble(
    times: tuple[float, float], count: int, micro_batches: int
) -> None:
    stages, links = [PipelineStage(*times)] * count, [PipelineLink(0.0, 0.0, 10)] * (count - 1)
    found = iteration_s(stages, links, micro_batches)
    assert found == pytest.approx((micro_batches + count - 1) * sum(times))
    busy = micro_batches * sum(times) / found
    assert 1 - busy == pytest.approx((count - 1) / (micro_batches + count - 1))


@given(elements=st.integers(1, 10**6), ratio=st.floats(1.0, 1e5))
def test_top_k_never_sends_more_than_dense(elements: int, ratio: float) -> None:
    assert 0 < top_k_bytes(elements, ratio) <= 4 * elements
    assert top_k_bytes(elements, 2 * ratio) <= top_k_bytes(elements, ratio)


def test_places_weigh_as_torch_sends_them() -> None:
    # 12 bytes a pair: 300 of 1000 values are 3600 bytes, 334 would be more than all 4000.
    assert top_k_bytes(1000, 1000 / 300) == 3600
    assert top_k_bytes(1000, 3) == 4000
    with pytest.raises(ValueError, match="ratio"):
        top_k_bytes(1000, 0.5)


@given(dense_s=st.lists(TIMES, min_size=1, max_size=6), reduction=st.floats(1.0, 1000.0))
def test_ratios_follow_the_links_times(dense_s: list[float], reduction: float) -> None:
    ratios = adaptive_ratios(dense_s, reduction)
    by_time = [ratio for _, ratio in sorted(zip(dense_s, ratios, strict=True))]
    assert by_time == sorted(by_time)
    assert all(ratio >= 1 for ratio in ratios)
    assert max(ratios) == pytest.approx(3 * reduction if reduction > 1 else 1.0)


@given(reduction=st.integers(2, 100), elements=st.integers(10**5, 10**6))
def test_the_slowest_link_sends_as_many_times_fewer_bytes(reduction: int, elements: int) -> None:
    links = [PipelineLink(0.0, 1e-6, elements), PipelineLink(0.0, 1e-9, elements)]
    slow, fast = adaptive_ratios([link.dense_s for link in links], reduction)
    assert top_k_bytes(elements, slow) == pytest.approx(4 * elements / reduction, rel=0.01)
    # A thousandth of the time: 3 x reduction / 1000 is below 1 for any of these.
    assert fast == 1.0


def test_no_time_no_compression() -> None:
    assert adaptive_ratios([0.0, 0.0], 100) == [1.0, 1.0]
    assert adaptive_ratios([], 100) == []
    assert adaptive_ratios([1.0, 2.0], 1) == [1.0, 1.0]
    with pytest.raises(ValueError, match="reduction"):
        adaptive_ratios([1.0], 0.9)


@given(stages=st.lists(STAGES, min_size=2, max_size=5), data=st.data())
def test_compressing_never_slows_the_model_and_adaptive_lies_between(
    stages: list[PipelineStage], data: st.DataObject
) -> None:
    count = len(stages) - 1
    links = data.draw(st.lists(LINKS, min_size=count, max_size=count))
    reduction = data.draw(st.floats(1.0, 1000.0))
    ratios = adaptive_ratios([link.dense_s for link in links], reduction)
    dense = iteration_s(stages, links, 4)
    adaptive = iteration_s(stages, links, 4, ratios)
    equal = iteration_s(stages, links, 4, [max(ratios)] * count)
    assert equal <= adaptive * (1 + 1e-12)
    assert adaptive <= dense * (1 + 1e-12)


def test_links_must_fit_the_stages() -> None:
    stages = [PipelineStage(1.0, 1.0)] * 3
    with pytest.raises(ValueError, match="3 stages need 2 links"):
        iteration_s(stages, [PipelineLink(0.0, 0.0, 1)], 1)
    with pytest.raises(ValueError, match="micro_batches"):
        iteration_s(stages[:1], [], 0)
    with pytest.raises(ValueError, match="3 stages need 2 links"):
        masked_iteration_s(stages, [PipelineLink(0.0, 0.0, 1)], 1, 0.5)
    with pytest.raises(ValueError, match="2 links need as many ratios"):
        iteration_s(stages, [PipelineLink(0.0, 0.0, 1)] * 2, 1, [1.0])


def test_a_file_is_read_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.toml"
    path.write_text(FILE)
    pipeline = read_pipeline(path)
    assert pipeline.stages == (PipelineStage(1.0, 2.0), PipelineStage(2.0, 4.0))
    assert pipeline.links == (PipelineLink(0.1, 0.001, 3000),)
    assert code(["pipeline", str(path)]) == 0
    told = capsys.readouterr().out
    # 0.1 + 12 s dense; 100 of 3000 values are 1200 B: 0.1 + 1.2 s.
    assert "link 1: dense 12.1 s, 1 of 30 values kept, then 1.3 s a message" in told
    assert "a kept value takes 12 bytes with its index, a dense one 4" in told
    # Dense: 3 + 12.1 + 2 x 12, and 6 + 12.1 + 2 x 12.
    # Adaptive: 3 + 1.3 + 2 x 2, and 6 + 1.3 + 2 x 4.
    assert "iteration, dense: 81.2 s" in told
    assert "iteration, adaptive ratios: 23.6 s" in told
    assert "DCT-MP" not in told


def test_a_file_may_ask_for_thresholded_activations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.toml"
    path.write_text(FILE.replace("reduction = 10", "reduction = 10\nkept = 0.1"))
    assert code(["pipeline", str(path)]) == 0
    # 300 of 3000 values and 375 bytes of mask: 0.1 + 1.575 and 0.1 + 1.2 s.
    # Forward 3 + 1.675 + 2 x 2, backward 6 + 1.3 + 2 x 4: 23.975 s.
    assert "iteration, 0.1 kept (DCT-MP): 23.98 s" in capsys.readouterr().out
    assert code(["pipeline", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sent = ["dense", "equal_ratios", "adaptive_ratios", "thresholded"]
    assert list(found["iteration_s"]) == sent and found["kept_ratio"] == 0.1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pipeline/1", "pipeline/2", "schema"),
        ("reduction = 10", "reduction = 0.5", "reduction"),
        ("reduction = 10", 'reduction = "10"', "reduction"),
        ("reduction = 10", "reduction = 10\nkept = 0", "kept"),
        ("reduction = 10", "reduction = 10\nkept = true", "kept"),
        ("micro_batches = 3", "micro_batches = 0", "micro_batches"),
        ('latency = "100ms"', 'latncy = "100ms"', "did you mean 'latency'"),
        ('forward = "2s"', 'forward = "2"', "forward"),
        ('activation = "12000B"', 'activation = "0B"', "allowed is 1 B to 1e18 B"),
        ('[[link]]\nrate = "1kB/s"\nlatency = "100ms"\nactivation = "12000B"\n', "", "link"),
        ("[[link]]", '[[stage]]\nforward = "1s"\nbackward = "1s"\n\n[[link]]', "3 stages need 2"),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_pipeline(path)
    assert code(["pipeline", str(path)]) == DataError.exit_code
    assert message in capsys.readouterr().err


def test_a_pipeline_is_no_data_parallel_method() -> None:
    assert not {"pipeline", "fusionllm", "adatopk"} & set(method_names())
