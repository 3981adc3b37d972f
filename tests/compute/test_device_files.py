"""Files of devices: what they give, what is wrong with a damaged one, and how one is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.compute.device import load_device, read_device
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError
from support.hand_device_files import TOML


def test_device_file_gives_achieved_rate(tmp_path: Path) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML)
    device = read_device(path)
    assert device.matrix_rate("fp32").value == 1e13
    assert device.matrix_rate("fp32").kind == "fitted"
    assert (device.memory_bytes, device.launch_s.value) == (1e10, 1e-5)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('schema = "perfsim/device/1"', "", 0, "schema: is missing, this perfsim reads 'perfsim"),
        ('"perfsim/device/1"', "5", 1, "schema: found 5, this perfsim reads 'perfsim/device/1'"),
        ('"perfsim/device/1"', "0x" + "f" * 9999, 1, "schema: found a number of thousands of dig"),
        ("device/1", "device/9", 1, "schema: found 'perfsim/device/9', this perfsim reads"),
        ('"hand"', '"other"', 2, "name: found 'other', the file's name says 'hand'"),
        ('"by hand"\n', "5\n", 3, "title: found 5, allowed is a text"),
        ('value = "1 TB/s"', 'value = "1"', 6, "memory_bandwidth.value: '1' is not a rate"),
        (
            "1 TB/s",
            "1e-320 GB/s",
            6,
            "memory_bandwidth.value: found '1e-320 GB/s', allowed is 1 B/s",
        ),
        ("1 TB/s", "1e290 GB/s", 6, "memory_bandwidth.value: found '1e290 GB/s', allowed is 1 B/s"),
        (
            'kind = "published"',
            'kind = "heard"',
            7,
            "memory_bandwidth.kind: found 'heard'; did you mean 'measured'? Allowed: measured",
        ),
        (
            'source = "a data sheet"',
            "source = 5",
            8,
            "memory_bandwidth.source: found 5, allowed is",
        ),
        ("10 us", "1 h", 10, "launch.value: found '1 h', allowed is 1 ns to 1 s"),
        ("20 TFLOP/s", "20", 14, "rates.fp32.peak: found '20', allowed is such as '15.7 TFLOP/s'"),
        ('"20 TFLOP/s"', "20", 14, "rates.fp32.peak: found 20, allowed is such as '15.7 TFLOP/s'"),
        (
            "20 TFLOP/s",
            "0 TFLOP/s",
            14,
            "rates.fp32.peak: found '0 TFLOP/s', allowed is 1e6 FLOP/s",
        ),
        (
            "achieved = 0.5",
            "achieved = 50",
            16,
            "rates.fp32.achieved: found 50, allowed is a fraction",
        ),
        (
            "achieved = 0.5",
            "achieved = 7.89e-07",
            16,
            "rates.fp32.achieved: found 7.89e-07, allowed is a fraction of the peak, 0.01 or more",
        ),
        ("achieved = 0.5", "achieved = true", 16, "rates.fp32.achieved: found true, allowed is a"),
        (
            "achieved = 0.5",
            "achieved = 1e-9",
            16,
            "rates.fp32.achieved: found 1e-09, allowed is a fraction of the peak, 0.01 or more",
        ),
        ("achieved = 0.5\n", "", 13, "rates.fp32.achieved: is missing"),
        ('achieved_source = "a benchmark"', "", 13, "rates.fp32.achieved_source: is missing"),
        ("rates.fp32", "rates.fp31", 13, "rates.fp31: unknown key; did you mean 'fp32'?"),
        ("rates.fp32", "rates.tf32", 13, "rates.fp32: is missing"),
        ("10GB", "0GiB", 4, "memory: found '0GiB', allowed is 1 MB to 1e15 B"),
        ('memory = "10GB"', "", 0, "memory: is missing"),
        ("[launch]", "[launch", 0, "is not TOML"),
        ("[launch]", "[[launch]]", 9, "launch: found [{'value': '10 us'"),
        ("[rates.fp32]", "[rates]", 14, "rates.peak: unknown key"),
        (TOML, "rates", 0, "is not TOML"),
        ("10GB", "\0", 0, "is not TOML"),
        ('"10GB"', "9" * 5000, 0, "is not TOML"),
        ('"10GB"', "[" * 5000, 0, "is not TOML"),
    ],
)
def test_damaged_device_files_say_what_is_wrong(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    assert old in TOML
    path = tmp_path / "hand.toml"
    path.write_text(TOML.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_device(path)
    where = f"{path}, line {line}" if line else f"{path}"
    assert str(caught.value).startswith(f"{where}: {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("powr_w = 300", "powr_w: unknown key; did you mean 'power_w'?"),
        ('power_w = "x"', "power_w: found 'x', allowed is a number, 1 W to 100000 W"),
        ("power_w = []", "power_w: found [], allowed is a number, 1 W to 100000 W"),
        ("power_w = true", "power_w: found true, allowed is a number, 1 W to 100000 W"),
        ("power_w = -5", "power_w: found -5, allowed is a number, 1 W to 100000 W"),
        ("power_w = nan", "power_w: found nan, allowed is a number, 1 W to 100000 W"),
        ("power_w = inf", "power_w: found inf, allowed is a number, 1 W to 100000 W"),
        (
            "power_w = " + "9" * 400,
            f"power_w: found {'9' * 60}..., allowed is a number, 1 W to 100000 W",
        ),
        ("power_w = 0x" + "f" * 9999, "power_w: found a number of thousands of digits, allowed is"),
        ("aliases = 3", "aliases: found 3, allowed is a list of texts"),
        ('aliases = "v100"', "aliases: found 'v100', allowed is a list of texts"),
        ("aliases = [3, {}]", "aliases: found [3, {}], allowed is a list of texts"),
        ("references = 12:00:00", "references: found datetime.time(12, 0), allowed is a list"),
        ('references = "v100"', "references: found 'v100', allowed is a list of texts"),
        ('references = ["hand"]', "references: 'hand' is this GPU itself"),
        ("host_gpus = 0", "host_gpus: found 0, allowed is a whole number, 1 to"),
        ("host_gpus = 4.0", "host_gpus: found 4.0, allowed is a whole number, 1 to"),
        ('visible_memory = "9GiB"', "visible_memory: found '9GiB', allowed is a table"),
    ],
)
def test_a_wrong_optional_key_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML.replace("title =", f"{line}\ntitle =", 1))
    with pytest.raises(DataError) as caught:
        read_device(path)
    assert str(caught.value).startswith(f"{path}, line 3: {said}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("9.9 GiB", ""),
        ("11 GiB", "11.81 GB is more than the memory that the data sheet names"),
        ("9", "'9' "),
    ],
)
def test_what_a_driver_shows_of_the_memory(tmp_path: Path, value: str, said: str) -> None:
    """10 GB may be 10 GiB; training may take what is shown, and else 98.3 % of the 10 GB."""
    path = tmp_path / "hand.toml"
    table = f'[visible_memory]\nvalue = "{value}"\nkind = "measured"\nsource = "by hand"\n'
    path.write_text(TOML.replace("[launch]", f"{table}[launch]", 1))
    if said:
        with pytest.raises(DataError) as caught:
            read_device(path)
        assert f"visible_memory.value: {said}" in str(caught.value)
        return
    assert read_device(path).usable_bytes == 9.9 * 2**30
    assert read_device(path).describe()["memory that training may take"].startswith("10.63 GB, mea")
    path.write_text(TOML)
    assert read_device(path).usable_bytes == pytest.approx(9.83e9)


@pytest.mark.parametrize("place", ["[memory_bandwidth]", "[launch]", "[rates.fp32]"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("spred = 0.1", "spred: unknown key; did you mean 'spread'?"),
        ("spread = -1", "spread: '-1.0' is not a fraction"),
        ("spread = nan", "spread: 'nan' is not a fraction"),
        ("spread = inf", "spread: 'inf' is not a fraction"),
        ("spread = true", "spread: 'True' is not a fraction"),
        ("spread = 5", "spread: found 5, allowed is 0 % to 300 %"),
        ("spread = " + "9" * 400, f"spread: found {'9' * 60}..., allowed is 0 % to 300 %"),
    ],
)
def test_a_wrong_spread_is_named(tmp_path: Path, place: str, line: str, said: str) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML.replace(place, f"{place}\n{line}"))
    with pytest.raises(DataError) as caught:
        read_device(path)
    row = TOML.split("\n").index(place) + 2
    assert str(caught.value).startswith(f"{path}, line {row}: {place[1:-1]}.{said}")


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML, encoding="utf-8-sig")
    assert read_device(path).name == "hand"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, len(TOML)), length=st.integers(0, 12), new=st.text(max_size=6))
def test_any_damage_gives_a_device_or_a_data_error(
    tmp_path: Path, start: int, length: int, new: str
) -> None:
    path = tmp_path / "hand.toml"
    text = TOML[:start] + new + TOML[start + length :]
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        assert read_device(path).name == "hand"
    except DataError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)


def with_device(folder: Path, stem: str, lines: str = "") -> Catalog:
    (folder / "devices").mkdir()
    text = TOML.replace('"hand"', f'"{stem}"').replace("title =", f"{lines}\ntitle =", 1)
    (folder / "devices" / f"{stem}.toml").write_text(text)
    return Catalog(folder)


@pytest.mark.parametrize("stem", ["V9", "my_gpu", "My_GPU", "plain"])
def test_a_device_is_found_by_its_name_in_any_case(tmp_path: Path, stem: str) -> None:
    catalog = with_device(tmp_path, stem, 'aliases = ["Other_One"]')
    for name in (stem, stem.lower(), f" {stem.upper()} ", stem.replace("_", "-"), "other-one"):
        assert load_device(name, catalog).name == stem


def test_a_reference_that_is_no_gpu_names_the_file(tmp_path: Path) -> None:
    catalog = with_device(tmp_path, "mine", 'references = ["v10O"]')
    with pytest.raises(DataError, match=r"mine\.toml: references: no 'v10O'; did you mean 'v100'"):
        load_device("mine", catalog)
