"""Units: known words, round trips, and refusals that say what is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import units
from perfsim.errors import RequestError

PARSERS = [
    units.parse_seconds,
    units.parse_bytes,
    units.parse_rate,
    units.parse_seconds_per_byte,
    units.parse_fraction,
]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50us", 5e-5), ("50 µs", 5e-5), ("1.5 ms", 1.5e-3), ("3ns", 3e-9), ("2h", 7200.0),
     ("1min", 60.0), ("0s", 0.0), ("1e-3s", 1e-3), (".5s", 0.5), (" 7s ", 7.0), ("+2s", 2.0)],
)  # fmt: skip
def test_seconds(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("64 samples/s", 0.5), ("128images/s", 0.25), ("32sequences/s", 1.0)],
)
def test_an_iteration_is_a_time_or_a_rate_of_samples(text: str, seconds: float) -> None:
    assert units.parse_iteration(text, 32) == seconds


@pytest.mark.parametrize("text", ["", "253", "5GB/s", "-3ms", "infsamples/s", "3 samples"])
def test_what_is_no_iteration(text: str) -> None:
    with pytest.raises(RequestError, match=r"^x: .*time of an iteration or a rate"):
        units.parse_iteration(text, 32, "x")


@pytest.mark.parametrize(
    ("text", "size"),
    [("25MiB", 25 * 2**20), ("25MB", 25e6), ("1GB", 1e9), ("1GiB", 2**30), ("4kB", 4000),
     ("4KB", 4000), ("4KiB", 4096), ("3B", 3), ("1TB", 1e12), ("1TiB", 2**40)],
)  # fmt: skip
def test_bytes_know_gb_from_gib(text: str, size: float) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10Gbit/s", 1.25e9), ("1GB/s", 1e9), ("1GiB/s", 2**30), ("100Mbit/s", 12.5e6),
     ("8bit/s", 1.0), ("56Gbit/s", 7e9)],
)  # fmt: skip
def test_rates_know_bits_from_bytes(text: str, rate: float) -> None:
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "value"),
    [("5%", 0.05), ("0.05", 0.05), (0.25, 0.25), (1, 1.0), ("120 %", 1.2), (1e-12, 1e-12)],
)
def test_fractions(text: object, value: float) -> None:
    assert units.parse_fraction(text) == pytest.approx(value, rel=1e-15)


def test_seconds_per_byte_are_the_inverse_of_a_rate() -> None:
    assert units.parse_seconds_per_byte("0.8ns/B") == 0.8e-9
    assert units.parse_seconds_per_byte("1s/GB") == pytest.approx(1 / units.parse_rate("1GB/s"))


@pytest.mark.parametrize("text", ["25", "25 ", "0", "1e3"])
@pytest.mark.parametrize("parse", PARSERS[:4])
def test_a_bare_number_is_refused(parse: object, text: str) -> None:
    with pytest.raises(RequestError, match="a bare number has no unit"):
        parse(text, "bucket")  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "25 mib", "25Mib", "25M", "1,5MB", "twoMB", "1 2MB", "0x10B", "nanB", "infB",
     "1_0B", "25MiB!", "-", "--5B", "5B5B"],
)  # fmt: skip
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"^bucket: ") as caught:
        units.parse_bytes(text, "bucket")
    assert "MiB" in str(caught.value) and "GB" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("value", [None, 25, 2.5, True, b"25MiB", ["25MiB"]])
def test_what_is_not_text_is_refused_as_a_size(value: object) -> None:
    with pytest.raises(RequestError, match="is not a size"):
        units.parse_bytes(value)


@pytest.mark.parametrize("text", ["-1s", "1e400s", "-1e400s", "9e999999999s"])
def test_negative_and_infinite_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="finite and 0 or more"):
        units.parse_seconds(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, "nan", "-5%", True, "5%%"])
def test_what_is_no_fraction_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="straggler: "):
        units.parse_fraction(value, "straggler")


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(max_size=12))
def test_any_text_gives_a_number_or_a_request_error(parse: object, text: str) -> None:
    try:
        value = parse(text)  # type: ignore[operator]
    except RequestError:
        return
    assert 0 <= value < float("inf")


@given(st.floats(1e-12, 1e4), st.sampled_from(list(units.TIME_UNITS)))
def test_seconds_round_trip_exactly_in_their_unit(number: float, unit: str) -> None:
    seconds = units.parse_seconds(f"{number!r}{unit}")
    assert seconds == pytest.approx(number * units.TIME_UNITS[unit], rel=1e-15)


@given(st.floats(1e-9, 900))
def test_formatted_seconds_read_back(seconds: float) -> None:
    assert units.parse_seconds(units.format_seconds(seconds)) == pytest.approx(seconds, rel=6e-4)


@given(st.floats(1, 9e14))
def test_formatted_bytes_and_rates_read_back(size: float) -> None:
    assert units.parse_bytes(units.format_bytes(size)) == pytest.approx(size, rel=6e-4)
    assert units.parse_rate(units.format_rate(size)) == pytest.approx(size, rel=6e-4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ns"), (1.0, "1 s"), (0.0123, "12.3 ms"), (0.99996, "1 s"), (5e-6, "5 us"),
     (12345.0, "12345 s"), (1e-12, "0.001 ns")],
)  # fmt: skip
def test_seconds_are_shown_in_a_unit_that_suits(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (512, "512 B"), (102_228_128, "102.2 MB"), (999_999, "1 MB"), (5e15, "5000 TB")],
)
def test_bytes_are_shown_in_decimal_units(size: float, text: str) -> None:
    assert units.format_bytes(size) == text


def test_counts_are_shown_with_thousands_apart() -> None:
    assert units.format_count(25_557_032) == "25,557,032"
