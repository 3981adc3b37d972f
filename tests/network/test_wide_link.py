"""What joins a site to others: how it is written, and what TCP reaches over a path."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.network.wide_link import PRESETS, WideLink, cubic_rate, mathis_rate, parse_wide_links


def test_a_link_is_read_with_all_that_it_can_say() -> None:
    (link,) = parse_wide_links(
        "up=200Mbit/s,down=1Gbit/s,30ms,loss=0.04%,flows=4,window=3MiB,per_flow=5Gbit/s"
    )
    assert link == WideLink(25e6, 125e6, 0.03, 0.0004, 4, 3 * 2.0**20, 625e6)


def test_up_or_down_takes_the_place_of_the_rate_in_one_direction() -> None:
    for text in ("1Gbit/s,60ms,up=200Mbit/s", "down=1Gbit/s,up=200Mbit/s,60ms"):
        (link,) = parse_wide_links(text)
        assert (link.up, link.down) == (25e6, 125e6)


def test_presets_are_read_and_may_go_on() -> None:
    for name in PRESETS:
        (link,) = parse_wide_links(f"{name},flows=32")
        assert link.flows == 32
        assert link.up == link.down > 1e8


def test_a_link_may_say_that_it_was_measured() -> None:
    (link,) = parse_wide_links("1Gbit/s,60ms, flows=8, measured")
    assert link == WideLink(125e6, 125e6, 0.06, flows=8, measured=True)
    assert link.words() == "1 Gbit/s, 60 ms, 8 TCP flows, measured"
    preset, plain = parse_wide_links("aws-oregon-tokyo,measured;aws-oregon-tokyo")
    assert (preset.measured, plain.measured) == (True, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1Gbit/s", "no delay"),
        ("60ms", "is not a rate"),
        ("1,60ms", "a bare number has no unit"),
        ("1Gbit/s,60", "a bare number has no unit"),
        ("up=1Gbit/s,60ms", "no rate in one direction"),
        ("1Gbit/s,60ms,up=1Gbit/s,down=1Gbit/s", "more than a rate and a delay"),
        ("rate=1Gbit/s,60ms,up=1Gbit/s,down=1Gbit/s", "leave one out"),
        ("1Gbit/s,measured", "no delay"),
        ("measured", "no 'measured'"),
        ("1Gbit/s,measured,60ms", "more than a rate and a delay"),
        ("1Gbit/s,60ms,measured,measured", "more than a rate and a delay"),
        ("1Gbit/s,60ms,mesured", "or the word measured at the end"),
        ("1Gbit/s,60ms,7", "more than a rate and a delay"),
        ("1Gbit/s,60ms,lost=1%", "did you mean 'loss'"),
        ("1Gbit/s,60ms,loss=50%", "0% to 10%"),
        ("1Gbit/s,60ms,flows=0", "1 to 4096"),
        ("1Gbit/s,60ms,flows=2.5", "1 to 4096"),
        ("1Gbit/s,60ms,flows=²", "1 to 4096"),
        ("1Gbit/s,60ms,window=3", "a bare number has no unit"),
        ("1Gbit/s,60ms,flows=2,flows=3", "has flows twice"),
        ("1Gbit/s,11s", "0 s to 10 s"),
        ("0Gbit/s,60ms", "1 B/s"),
        ("aws-oregon", "did you mean 'aws-oregon-"),
        ("1Gbit/s,60ms;", "is not a rate"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(RequestError, match="wan") as refused:
        parse_wide_links(text)
    assert words in str(refused.value)


def test_a_path_has_the_lower_rate_and_the_sum_of_delays_as_its_ping() -> None:
    one = WideLink(1e9, 4e8, 0.06, loss=2e-4, flows=8, window_bytes=2e6)
    other = WideLink(2e8, 1e9, 0.02, flows=2, per_flow=1e8)
    there, back = one.path(other), other.path(one)
    assert (there.rate, back.rate) == (1e9, 2e8)
    assert there.rtt_s == back.rtt_s == pytest.approx(0.08)
    assert there.one_way_s == pytest.approx(0.04)
    assert there.loss == pytest.approx(1e-4)
    assert (there.flows, there.window_bytes, there.per_flow) == (2, 2e6, 1e8)
    same = one.path(one)
    assert same.one_way_s == pytest.approx(0.06)  # the delay itself, where both links are alike
    assert same.loss == pytest.approx(2e-4)


def test_losses_hold_a_flow_as_mathis_et_al_say() -> None:
    # MSS 1460 B, RTT 100 ms, p = 1e-4: 14,600 B/s x sqrt(1.5) / 0.01
    assert mathis_rate(0.1, 1e-4) == pytest.approx(1460 / 0.1 * math.sqrt(1.5) / 0.01)
    link = WideLink(1e9, 1e9, 0.1, loss=1e-4)
    flow = cubic_rate(0.1 + 0.1, 1e-4)
    assert link.path(link).reached == pytest.approx(flow)
    eight = link._replace(flows=8)
    assert eight.path(eight).reached == pytest.approx(8 * flow)
    many = link._replace(flows=4096)
    assert many.path(many).reached == 1e9  # never above the link


def test_cubic_is_faster_than_reno_over_long_paths_with_few_losses() -> None:
    # RFC 8312 and 9438, section 5.2, table 1: 187 segments at 100 ms and 1e-4 (Reno: 120).
    segments = cubic_rate(0.1, 1e-4) * 0.1 / 1460
    assert segments == pytest.approx(187, abs=0.5)
    assert cubic_rate(0.02, 1e-2) == mathis_rate(0.02, 1e-2)
    # What a link without a path or without losses holds is no flow's business.
    assert cubic_rate(0.1, 0.0) == cubic_rate(0.0, 1e-4) == math.inf


@given(rtt=st.floats(1e-4, 1.0), low=st.floats(1e-7, 0.1), high=st.floats(1e-7, 0.1))
def test_more_losses_hold_a_flow_no_less(rtt: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert cubic_rate(rtt, high) <= cubic_rate(rtt, low)
    assert cubic_rate(rtt, low) >= mathis_rate(rtt, low)


def test_a_window_holds_a_flow_to_one_window_a_round_trip() -> None:
    link = WideLink(1e9, 1e9, 0.01, window_bytes=3.0 * 2**20)
    assert link.path(link).reached == pytest.approx(3.0 * 2**20 / 0.02)
    near = link._replace(delay_s=0.0)
    assert near.path(near).reached == 1e9
