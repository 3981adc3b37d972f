"""Devices: rates, kernel points, and what a kernel costs with and without them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from builders import hand_device
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.catalog import Catalog, shipped
from perfsim.curve import Curve, read_kernels
from perfsim.device import load_device, read_device
from perfsim.errors import DataError, RequestError
from perfsim.kernel import Kernel, elementwise, gram_schmidt, qr
from perfsim.quantity import Quantity

HEAD = """# schema: perfsim/kernels/1
# gpu: hand
kernel,elements,width,time_us,kind,software,source,note
"""
TOML = """schema = "perfsim/device/1"
name = "hand"
title = "by hand"
memory = "10GB"
[memory_bandwidth]
value = "1 TB/s"
kind = "published"
source = "a data sheet"
[launch]
value = "10 us"
kind = "derived"
source = "by hand"
[rates.fp32]
peak = "20 TFLOP/s"
source = "a data sheet"
achieved = 0.5
achieved_source = "a benchmark"
"""
ROWS = HEAD + "pack,1000,0,50,measured,,one,\nqr,100,2,10,measured,,two,\n"
GPUS = sorted(Catalog().files("devices"))


def points(tmp_path: Path, *rows: str) -> dict[str, tuple[Curve, ...]]:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return read_kernels(path)


# by hand


def test_without_points_bytes_over_bandwidth_plus_launches() -> None:
    cost = hand_device().cost(Kernel("select", 10, moved_bytes=1e9, flops=1e6, launches=3))
    assert math.isclose(cost.seconds, 1e-3 + 3e-5)
    assert math.isclose(cost.latency_s, 3e-5)
    assert [term.term for term in cost.terms] == ["memory bandwidth", "kernel launch"]


def test_without_points_the_spread_is_that_of_the_bound_for_its_share() -> None:
    device = hand_device()
    bandwidth = device.memory_bandwidth._replace(spread=0.2)
    rates = {"fp32": device.rates["fp32"]._replace(spread=0.4)}
    wide = replace(device, memory_bandwidth=bandwidth, rates=rates)
    # 1 ms of memory or 1 ms of products, beside 1 ms of launches: half the spread of the bound.
    moved = Kernel("select", 10, moved_bytes=1e9, launches=100)
    product = Kernel("product", 10, moved_bytes=1e6, flops=1e10, launches=100)
    assert device.cost(moved).spread is None
    assert wide.cost(moved).spread == pytest.approx(0.1)
    assert wide.cost(product).spread == pytest.approx(0.2)
    launch = device.launch_s._replace(spread=0.6)
    assert replace(wide, launch_s=launch).cost(moved).spread == pytest.approx(0.1 + 0.3)
    assert wide.cost(Kernel("nothing", 0, 0.0, launches=0)).spread is None


def test_without_points_operations_over_matrix_rate_where_they_take_longer() -> None:
    cost = hand_device().cost(Kernel("product", 10, moved_bytes=1e6, flops=1e12))
    assert math.isclose(cost.seconds, 0.1 + 1e-5)
    assert cost.terms[0].term == "matrix rate fp32"


def test_lone_point_is_flat_below_and_proportional_above(tmp_path: Path) -> None:
    device = replace(hand_device(), points=points(tmp_path, "pack,1000,0,50,measured,,paper,"))
    for elements, microseconds, outside in (
        (1000, 50, False),
        (250, 50, False),
        (249, 50, True),
        (4000, 200, False),
        (8000, 400, True),
    ):
        cost = device.cost(Kernel("pack", elements, 0.0))
        assert math.isclose(cost.seconds, microseconds * 1e-6)
        assert cost.terms[0].extrapolated is outside
    assert device.cost(Kernel("pack", 1000, 0.0)).terms[0].quantity.kind == "measured"
    assert device.cost(Kernel("pack", 999, 0.0)).terms[0].quantity.kind == "derived"


def test_repeats_become_their_geometric_mean_and_show_the_spread(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,one,", "pack,1000,0,200,measured,,two,")
    cost = replace(hand_device(), points=points(tmp_path, *rows)).cost(Kernel("pack", 1000, 0.0))
    assert math.isclose(cost.seconds, 100e-6)
    assert cost.spread is not None
    assert math.isclose(cost.spread, 1.645 * math.log(4) / math.sqrt(2))
    assert cost.terms[0].quantity.source == "one; two"


def test_width_lies_between_in_logs_and_grows_linearly_beyond(tmp_path: Path) -> None:
    rows = ("qr,100,2,10,measured,,paper,", "qr,100,8,40,measured,,paper,")
    device = replace(hand_device(), points=points(tmp_path, *rows))
    for width, microseconds in ((1, 10), (2, 10), (4, 20), (8, 40), (10, 50)):
        assert math.isclose(
            device.cost(Kernel("qr", 100, 0.0, width=width)).seconds * 1e6, microseconds
        )


def test_past_its_last_point_a_width_grows_as_one_measured_further(tmp_path: Path) -> None:
    rows = (
        "qr,100,2,10,measured,,paper,",
        "qr,1000,2,12,measured,,paper,",
        "qr,100,8,40,measured,,paper,",
    )
    device = replace(hand_device(), points=points(tmp_path, *rows))
    assert math.isclose(device.cost(Kernel("qr", 1000, 0.0, width=8)).seconds, 48e-6)


def test_points_of_a_reference_are_scaled_above_their_flat_part(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,paper,", "pack,2000,0,90,measured,,paper,")
    source = replace(hand_device(), name="source", points=points(tmp_path, *rows))
    half = source.memory_bandwidth._replace(value=source.memory_bandwidth.value / 2)
    slow = replace(hand_device(), memory_bandwidth=half, references=(source,), points={})
    assert math.isclose(slow.cost(Kernel("pack", 1000, 0.0)).seconds, 50e-6)
    cost = slow.cost(Kernel("pack", 2000, 0.0))
    assert math.isclose(cost.seconds, 50e-6 + 2 * 40e-6)
    assert cost.terms[0].quantity.kind == "derived"
    assert "source" in cost.terms[0].quantity.source


def test_device_file_gives_achieved_rate(tmp_path: Path) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML)
    device = read_device(path)
    assert device.matrix_rate("fp32").value == 1e13
    assert device.matrix_rate("fp32").kind == "fitted"
    assert (device.memory_bytes, device.launch_s.value) == (1e10, 1e-5)


# by law


@pytest.mark.parametrize("gpu", ["v100", "p100", "h200", "k80"])
@given(
    small=st.integers(1, 10**9),
    factor=st.floats(1.0, 100.0),
    name=st.sampled_from(["randk_encode", "topk_old", "eigh", "inverse", "cholesky"]),
)
def test_more_elements_never_cost_less(gpu: str, small: int, factor: float, name: str) -> None:
    device = load_device(gpu, Catalog())
    less, more = (
        device.cost(Kernel(name, size, 4.0 * size)).seconds for size in (small, int(small * factor))
    )
    assert more >= less * (1 - 1e-12)


@given(rows=st.integers(1, 10**6), rank=st.integers(1, 128))
def test_more_rows_never_cost_less_at_any_rank(rows: int, rank: int) -> None:
    device = load_device("v100", Catalog())
    for kernel in (qr, gram_schmidt):
        less, more = (device.cost(kernel(size, rank)).seconds for size in (rows, 2 * rows))
        assert more >= less * (1 - 1e-12)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_shipped_device_loads_with_a_source_for_every_number(gpu: str) -> None:
    device = load_device(gpu, Catalog())
    assert device.name == gpu
    quantities = [device.memory_bandwidth, device.launch_s, *device.rates.values()]
    assert all(quantity.source and quantity.value > 0 for quantity in quantities)
    assert "fp32" in device.rates
    assert all(other in GPUS for other in device.reference_names)
    assert device.describe()["gpu"] == gpu
    for alias in device.aliases:
        assert load_device(alias, Catalog()).name == gpu


def test_aliases_name_one_gpu_each() -> None:
    names = [
        name
        for path in Catalog().files("devices").values()
        for name in (path.stem, *read_device(path).aliases)
    ]
    assert len(names) == len(set(names))


# by published value


@pytest.mark.parametrize(
    ("kernel", "elements", "microseconds"),
    [
        # Espresso (Wang et al. 2023), V100, 2^20 elements: encode = total - decode
        ("randk_encode", 2**20, 88 - 34),
        ("efsign_encode", 2**20, 270 - 140),
        ("onebit_encode", 2**20, 620 - 170),
        # DRAGONN (Wang et al. 2022): 512 MB in 35.4 ms by DGC, 13.2 ms by its own hashing
        ("dgc_tight_encode", 2**27, 35400),
        ("dragonn_encode", 2**27, 13200),
        # kfac_pytorch time_breakdown.py: top-k of the whole ResNet-50 gradient
        ("topk_old", 25_557_032, 239_000),
    ],
)
def test_v100_kernels_as_published(kernel: str, elements: int, microseconds: float) -> None:
    cost = load_device("v100", Catalog()).cost(Kernel(kernel, elements, 0.0))
    assert math.isclose(cost.seconds * 1e6, microseconds, rel_tol=1e-9)


def test_gram_schmidt_of_resnet50_as_published() -> None:
    """Vineeth et al. (arXiv 2109.12497): 4.91 and 13.97 ms for 54 matrices at ranks 1 and 2."""
    device = load_device("v100", Catalog())
    for rank, milliseconds in ((1, 4.91), (2, 13.97)):
        total_s = 54 * device.cost(gram_schmidt(512, rank)).seconds
        assert math.isclose(total_s * 1e3, milliseconds, rel_tol=1e-3)


def test_v100_adds_vectors_as_neusight_measured() -> None:
    """NeuSight's elem.csv: adding 134217728 fp32 elements takes 1.95228 ms on a V100 PCIe."""
    cost = load_device("v100-pcie", Catalog()).cost(elementwise(134_217_728, passes=3))
    assert math.isclose(cost.seconds, 1.95228e-3, rel_tol=0.03)


def test_old_topk_on_p100_tells_the_measured_v100_time_within_a_fifth() -> None:
    """12.8 ns an element on P100, times the ratio of bandwidths, against 239 ms on V100."""
    p100, v100 = (load_device(name, Catalog()) for name in ("p100", "v100"))
    alone = replace(v100, points={}, references=(p100,))
    cost = alone.cost(Kernel("topk_old", 25_557_032, 0.0))
    assert math.isclose(cost.seconds, 0.239, rel_tol=0.2)


# bad input


def test_unknown_gpu_gives_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"--gpu: no 'v10O'; did you mean 'v100'\?"):
        load_device("v10O", Catalog())


def test_precision_that_a_gpu_lacks_is_refused() -> None:
    with pytest.raises(
        RequestError, match=r"v100 has no 'tf32' rate; allowed on this GPU: fp32, amp"
    ):
        load_device("v100", Catalog()).matrix_rate("tf32")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("pack,0,0,5,measured,,p,", "column 'elements': '0' is not a whole number above zero"),
        ("pack,1.5,0,5,measured,,p,", "column 'elements': '1.5' is not a whole number"),
        ("pack,1e300,0,5,measured,,p,", "column 'elements': '1e300' is outside 1 to 1e15"),
        ("pack,10,-1,5,measured,,p,", "column 'width': '-1' is not a whole number not below zero"),
        ("pack,10,0,fast,measured,,p,", "column 'time_us': 'fast' is not a number"),
        ("pack,10,0,1e-320,measured,,p,", "'time_us': '1e-320' is outside 1e-15 s to 1e9 s"),
        ("pack,10,0,1e300,measured,,p,", "'time_us': '1e300' is outside 1e-15 s to 1e9 s"),
        ("pack,10,0,5,guessed,,p,", "column 'kind': 'guessed' is no kind; allowed: measured"),
        (",10,0,5,measured,,p,", "column 'kernel': is empty"),
        ("pack,10,0,5,measured,,,", "column 'source': is empty"),
        ("pack,10,0,5", "line 4: 4 cells, the head has 8"),
    ],
)
def test_damaged_kernel_rows_name_the_place(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        points(tmp_path, row)
    assert said in str(caught.value)
    assert f"{tmp_path / 'hand.kernels.csv'}, line 4" in str(caught.value)


def test_rows_with_and_without_a_width_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 5, column 'width': 5 beside 0 further up: either no"):
        points(tmp_path, "qr,10,0,5,measured,,p,", "qr,10,5,5,measured,,p,")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("# gpu: k80\n", r"line 2: the header's gpu is 'k80', .* '# gpu: hand' or '# gpu: any'"),
        ("", r"line 1: the header's gpu is missing, the file's name asks for '# gpu: hand'"),
        ("# gpu: hand\n# gpu: k80\n", "line 3: the header's gpu is there twice"),
    ],
)
def test_kernel_file_of_another_gpu_is_refused(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("# gpu: hand\n", line))
    with pytest.raises(DataError, match=said):
        read_kernels(path)


def test_points_of_any_gpu_may_lie_beside_one(tmp_path: Path) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("hand", "any") + "pack,10,0,5,measured,,p,\n")
    assert set(read_kernels(path)) == {"pack"}


def test_kernel_file_without_a_column_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.kernels.csv"
    path.write_text("# schema: perfsim/kernels/1\n# gpu: x\nkernel,elements,width,kind\n")
    with pytest.raises(DataError, match="column 'time_us': missing column"):
        read_kernels(path)


def test_kernel_file_with_a_column_twice_names_it(tmp_path: Path) -> None:
    path = tmp_path / "hand.kernels.csv"
    path.write_text(HEAD.replace("note", "note,kind"))
    with pytest.raises(DataError, match="line 3, column 'kind': stands twice"):
        read_kernels(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("device/1", "device/9", "schema: found 'perfsim/device/9', this perfsim reads"),
        ('"hand"', '"other"', "name: found 'other', the file's name says 'hand'"),
        ('"by hand"\n', "5\n", "title: found 5, allowed is a text"),
        ('value = "1 TB/s"', 'value = "1"', "memory_bandwidth.value: '1' is not a rate"),
        ("1 TB/s", "1e-320 GB/s", "memory_bandwidth.value: found '1e-320 GB/s', allowed is 1 B/s"),
        ("1 TB/s", "1e290 GB/s", "memory_bandwidth.value: found '1e290 GB/s', allowed is 1 B/s"),
        ('kind = "published"', 'kind = "heard"', "memory_bandwidth.kind: found 'heard', allowed:"),
        ('source = "a data sheet"', "source = 5", "memory_bandwidth.source: found 5, allowed is"),
        ("10 us", "1 h", "launch.value: found '1 h', allowed is 1 ns to 1 s"),
        ("20 TFLOP/s", "20", "rates.fp32.peak: found '20', allowed is such as '15.7 TFLOP/s'"),
        ("20 TFLOP/s", "0 TFLOP/s", "rates.fp32.peak: found '0 TFLOP/s', allowed is 1e6 FLOP/s"),
        ("achieved = 0.5", "achieved = 50", "rates.fp32.achieved: found 50, allowed is a fraction"),
        ("achieved = 0.5", "achieved = true", "rates.fp32.achieved: found True, allowed is a"),
        ("achieved = 0.5\n", "", "rates.fp32.achieved: is missing"),
        ("rates.fp32", "rates.fp31", "rates.fp31: unknown key; did you mean 'fp32'?"),
        ("rates.fp32", "rates.tf32", "rates.fp32: is missing"),
        ("10GB", "0GiB", "memory: found '0GiB', allowed is 1 MB to 1e15 B"),
        ('memory = "10GB"', "", "memory: is missing"),
        ("[launch]", "[launch", "is not TOML"),
        ("[launch]", "[[launch]]", "launch: found [{'value': '10 us'"),
        ("[rates.fp32]", "[rates]", "rates.peak: unknown key"),
        (TOML, "rates", "is not TOML"),
        ("10GB", "\0", "is not TOML"),
        ('"10GB"', "9" * 5000, "is not TOML"),
        ('"10GB"', "[" * 5000, "is not TOML"),
    ],
)
def test_damaged_device_files_say_what_is_wrong(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in TOML
    path = tmp_path / "hand.toml"
    path.write_text(TOML.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_device(path)
    assert str(caught.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("powr_w = 300", "powr_w: unknown key; did you mean 'power_w'?"),
        ('power_w = "x"', "power_w: found 'x', allowed is a number, 1 W to 100000 W"),
        ("power_w = []", "power_w: found [], allowed is a number, 1 W to 100000 W"),
        ("power_w = true", "power_w: found True, allowed is a number, 1 W to 100000 W"),
        ("power_w = -5", "power_w: found -5, allowed is 1 W to 100000 W"),
        ("power_w = nan", "power_w: found nan, allowed is 1 W to 100000 W"),
        ("power_w = inf", "power_w: found inf, allowed is 1 W to 100000 W"),
        ("power_w = " + "9" * 400, f"power_w: found {'9' * 60}..., allowed is 1 W to 100000 W"),
        ("power_w = 0x" + "f" * 9999, "power_w: found a number of thousands of digits, allowed is"),
        ("aliases = 3", "aliases: found 3, allowed is a list of texts"),
        ('aliases = "v100"', "aliases: found 'v100', allowed is a list of texts"),
        ("aliases = [3, {}]", "aliases: found [3, {}], allowed is a list of texts"),
        ("references = 12:00:00", "references: found datetime.time(12, 0), allowed is a list"),
        ('references = "v100"', "references: found 'v100', allowed is a list of texts"),
        ('references = ["hand"]', "references: 'hand' is this GPU itself"),
    ],
)
def test_a_wrong_optional_key_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML.replace("title =", f"{line}\ntitle =", 1))
    with pytest.raises(DataError) as caught:
        read_device(path)
    assert str(caught.value).startswith(f"{path}: {said}")


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
    assert str(caught.value).startswith(f"{path}: {place[1:-1]}.{said}")


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hand.toml"
    path.write_text(TOML, encoding="utf-8-sig")
    assert read_device(path).name == "hand"


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


def test_every_kernel_table_that_ships_reads() -> None:
    paths = sorted((shipped() / "devices").glob("*.kernels.csv"))
    assert paths
    for path in paths:
        for name, curves in read_kernels(path).items():
            assert name and all(time > 0 for curve in curves for time in curve.times_s)


def test_quantity_of_a_cost_states_its_range(tmp_path: Path) -> None:
    rows = ("pack,1000,0,50,measured,,paper,", "pack,2000,0,90,measured,,paper,")
    device = replace(hand_device(), points=points(tmp_path, *rows))
    quantity: Quantity = device.cost(Kernel("pack", 1500, 0.0)).terms[0].quantity
    assert (quantity.low, quantity.high, quantity.range_unit) == (1000, 2000, "elements")


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, len(ROWS)), length=st.integers(0, 12), new=st.text(max_size=6))
def test_any_damage_gives_a_kernel_table_or_a_data_error(
    tmp_path: Path, start: int, length: int, new: str
) -> None:
    path = tmp_path / "hand.kernels.csv"
    text = ROWS[:start] + new + ROWS[start + length :]
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        assert all(
            0 < t < 1e9 for c in read_kernels(path).values() for one in c for t in one.times_s
        )
    except DataError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
