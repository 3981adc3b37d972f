"""The HTML reports as a browser shows them: drawn, without a complaint, their numbers on hover."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

FIGURES = {
    "predict": ["timeline", "breakdown", "scaling", "efficiency", "breakeven", "worth"],
    "compare": ["ranked", "breakdown", "scaling", "efficiency"],
    "explain": ["path1", "exposed", "sensitivity", "crossing-bandwidth", "crossing-gpus"],
    "tune": ["tuned-bucket", "tuned-density", "tuned-algorithm"],
    "sweep": ["rows-samples_per_s", "rows-scaling_efficiency", "rows-iteration_s"],
    "full": [
        *("rows-samples_per_s", "rows-scaling_efficiency", "rows-iteration_s", "rows-speedup")
    ],
    "many": ["rows-samples_per_s", "rows-scaling_efficiency", "rows-iteration_s"],
    "plan": ["time-and-cost"],
    "show": [
        *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
    ],
}
"""What each command's page draws."""

COMMANDS = {
    "predict": "predict --model resnet18 --gpus 8 --net ib100 --method dgc",
    "compare": "compare --model resnet18 --gpus 16 --net 1gbe --methods ssgd,topk,powersgd,qsgd",
    "explain": "explain --model resnet18 --gpus 16 --net 1gbe --method dgc",
    "tune": "tune --model resnet18 --gpus 16 --net 1gbe --method dgc",
    "sweep": "sweep --model resnet18 --vary gpus=8..32 --vary net=1gbe,10gbe",
    "full": "sweep --model resnet18 --net 1gbe --vary gpus=8..32 --vary method=ssgd,dgc --full",
    "many": "sweep --model resnet18 --net 10gbe --vary gpus=2..64 --vary bucket=1MiB..64MiB:log60",
    "plan": "plan --model resnet18 --dataset imagenet --epochs 90 --counts 8,16 --nets 10gbe"
    " --methods ssgd,dgc",
    "show": "show node dgx-h100",
    "network": "show net 10gbe",
    "validate": "validate measurements --cluster bag",
}

MOST_BYTES = 1_500_000
"""Of a page."""

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return each command's page, as a file."""
    pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip)")
    folder = tmp_path_factory.mktemp("reports")
    found = {name: folder / f"{name}.html" for name in COMMANDS}
    for name, command in COMMANDS.items():
        assert code([*command.split(), "--html", str(found[name])]) == 0
    return found


@pytest.fixture(scope="module")
def opened(reports: dict[str, Path]) -> Iterator[dict[str, tuple[Any, list[str]]]]:
    """Return each page in one browser that can be pointed with, and what its console says."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip)")
    found: dict[str, tuple[Any, list[str]]] = {}
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for name, path in reports.items():
            said: list[str] = []
            page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="dark")
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.on("request", lambda asked, said=said: said.append(f"asks for {asked.url[:80]}"))
            page.goto(path.as_uri())
            if name in FIGURES:
                page.wait_for_selector(f'html[data-drawn="{len(FIGURES[name])}"]')
            found[name] = page, said
        yield found
        browser.close()


def result(page: Any, kind: str) -> Any:
    """Return the result that stands in a page, as ``--json`` prints it."""
    return json.loads(page.locator(f"#{kind}").text_content())


def hovered(page: Any, figure: str, mark: str) -> str:
    """Return what a figure shows where its first bar or point is pointed at."""
    first = page.locator(f"#{figure} {mark}").first
    first.scroll_into_view_if_needed()
    first.hover(force=True)
    shown = page.locator(f"#{figure} .hoverlayer .hovertext")
    shown.first.wait_for(timeout=5000)
    return " ".join(shown.all_text_contents())


BAR, POINT = ".trace.bars .point path", ".scatterlayer .points path"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_without_a_complaint_or_a_request(
    opened: dict[str, tuple[Any, list[str]]], reports: dict[str, Path], name: str
) -> None:
    page, said = opened[name]
    told = result(page, "figures")
    assert [figure["name"] for figure in told] == FIGURES[name]
    for figure in told:
        assert page.locator(f"#{figure['name']} .main-svg").count() >= 1
        script = "name => document.getElementById(name).data.map(t => [t.x, t.y])"
        drawn = page.evaluate(script, figure["name"])
        assert drawn == [[trace["x"], trace["y"]] for trace in figure["data"]]
    # Icons that the page itself holds are all that is asked for besides the page.
    asked = f"asks for {reports[name].as_uri()}"[:89]
    assert [line for line in said if line != asked and not line.startswith("asks for data:")] == []


def test_hovering_shows_the_numbers_of_the_json(
    opened: dict[str, tuple[Any, list[str]]],
) -> None:
    page = opened["predict"][0]
    told = result(page, "prediction")
    text = hovered(page, "breakdown", BAR)
    assert f"forward {told['breakdown_s']['forward'] * 1e3:.4g} ms" in text

    page = opened["compare"][0]
    first = result(page, "comparison")["rows"][0]
    text = hovered(page, "ranked", POINT)
    assert f"{first['scenario']['method']}, rank 1" in text
    assert f"iteration {first['iteration_s'] * 1e3:.4g} ms" in text
    assert f"90 % interval {first['iteration_s_interval'][0] * 1e3:.4g} to " in text

    page = opened["explain"][0]
    best = result(page, "explanation")["sensitivity"][0]
    text = hovered(page, "sensitivity", BAR)
    assert f"saves {best['saved'] * 100:.3g} % of the iteration" in text
    assert f"then {best['iteration_s'] * 1e3:.4g} ms, elasticity {best['elasticity']:.3f}" in text

    page = opened["tune"][0]
    curve = result(page, "tuning")["tuned"][0]["curve"]
    assert f"{curve[0]['iteration_s'] * 1e3:.4g} ms" in hovered(page, "tuned-bucket", POINT)

    page = opened["sweep"][0]
    row = result(page, "sweep")["rows"][0]
    text = hovered(page, "rows-iteration_s", POINT)
    asked = row["scenario"]
    assert f"network {asked['net']}{asked['gpus']} GPUs{row['iteration_s'] * 1e3:.4g} ms" in text

    page = opened["full"][0]
    row = result(page, "sweep")["rows"][0]
    text = hovered(page, "rows-iteration_s", POINT)
    assert f"90 % interval {row['iteration_s_interval'][0] * 1e3:,.4g} to " in text


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_reached_by_tab_and_read_by_arrow_keys(
    opened: dict[str, tuple[Any, list[str]]], name: str
) -> None:
    page, _ = opened[name]
    reached = set()
    page.locator("h1").click()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
        if set(FIGURES[name]) <= reached:
            break
    assert set(FIGURES[name]) <= reached
    for figure in FIGURES[name]:
        page.locator(f"#{figure}").focus()
        page.keyboard.press("ArrowRight")
        said = page.locator(f"#{figure}-said").text_content()
        row = page.locator(f"#{figure}-table tbody tr").first.locator("td").all_text_contents()
        heads = page.locator(f"#{figure}-table th").all_text_contents()
        pairs = zip(heads, row, strict=True)
        assert said == ", ".join(f"{head} {cell}" for head, cell in pairs if cell)


@pytest.mark.parametrize("name", FIGURES)
def test_dark_mode_and_print_have_their_own_colours_and_paper_its_own_size(
    opened: dict[str, tuple[Any, list[str]]], name: str
) -> None:
    page, _ = opened[name]
    figure = FIGURES[name][-1]
    ink = "getComputedStyle(document.body).color"
    drawn = f"document.getElementById('{figure}')._fullLayout.font.color"
    assert page.evaluate(drawn) == "#e4e9ee"
    dark = page.evaluate(ink)
    page.emulate_media(color_scheme="light")
    for _ in range(50):  # wait_for_function needs eval, which the page's policy forbids
        if page.evaluate(drawn) == "#1d2733":
            break
        page.wait_for_timeout(50)
    assert page.evaluate(drawn) == "#1d2733"
    assert page.evaluate(ink) != dark
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(f"#{figure}-table").is_visible()
    for one in FIGURES[name]:
        size = page.locator(f"#{one} .main-svg").first.bounding_box()
        assert size["width"] <= 690 and size["height"] <= 930
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator(f"#{figure}-table").is_visible()


@pytest.mark.parametrize("name", FIGURES)
def test_a_narrow_window_is_not_scrolled_sideways(
    opened: dict[str, tuple[Any, list[str]]], name: str
) -> None:
    page, _ = opened[name]
    page.set_viewport_size({"width": 480, "height": 800})
    wide = "document.documentElement.scrollWidth"
    for _ in range(100):  # figures follow the window's width a moment later
        if page.evaluate(wide) <= 480:
            break
        page.wait_for_timeout(50)
    assert page.evaluate(wide) <= 480
    for figure in json.loads(page.locator("#figures").text_content()):
        held = page.locator(f"#{figure['name']}").bounding_box()["height"]
        high = f"document.getElementById('{figure['name']}')._fullLayout.height"
        assert held == page.evaluate(high)  # or it would lie over what follows it
        assert held >= figure["layout"]["height"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_light_and_holds_all_that_it_needs(reports: dict[str, Path], name: str) -> None:
    data = reports[name].read_bytes()
    assert len(data) < MOST_BYTES
    assert b"default-src 'none'" in data and b'src="' not in data
    assert (b"script-src" in data) == (b"<script" in data) == (name in FIGURES)


def test_a_long_result_is_compressed_in_the_file_and_json_in_the_browser(
    opened: dict[str, tuple[Any, list[str]]], reports: dict[str, Path]
) -> None:
    assert '<script type="application/gzip" id="sweep">' in reports["many"].read_text()
    assert len(result(opened["many"][0], "sweep")["rows"]) == 6 * 60


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", FIGURES)
def test_no_title_no_label_and_no_legend_is_cut_off(
    opened: dict[str, tuple[Any, list[str]]], name: str, width: int
) -> None:
    page, _ = opened[name]
    page.set_viewport_size({"width": width, "height": 900})
    script = """(slack) => [...document.querySelectorAll(".plot")].flatMap((plot) => {
        const frame = plot.getBoundingClientRect();
        const words = ".xtitle, .ytitle, .xtick text, .ytick text, .legendtext, .annotation-text";
        return [...plot.querySelectorAll(words)].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.left < frame.left - slack || box.right > frame.right + slack
                || box.top < frame.top - slack || box.bottom > frame.bottom + slack;
        }).map((one) => plot.id + ": " + one.textContent);
    })"""
    cut = ["not looked at"]
    for _ in range(100):  # figures follow the window's width a moment later
        cut = page.evaluate(script, 2)
        if not cut:
            break
        page.wait_for_timeout(50)
    assert cut == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", COMMANDS)
def test_axe_finds_nothing_serious(
    opened: dict[str, tuple[Any, list[str]]], name: str, scheme: str
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe (pip install 'perfsim[dev]')"
    )
    page, _ = opened[name]
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(200)
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == []


SERIOUS = ("serious", "critical")


def test_a_browser_that_cannot_inflate_says_so_and_shows_the_numbers(
    opened: dict[str, tuple[Any, list[str]]], reports: dict[str, Path]
) -> None:
    page = opened["tune"][0].context.browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(reports["tune"].as_uri())
    assert "too old to draw" in page.locator("#undrawn").inner_text()
    assert page.locator("#tuned-bucket-table").is_visible()
    assert not page.locator("#tuned-bucket").is_visible()
    page.close()


@pytest.mark.parametrize("width", [400, 1200])
def test_an_arrow_at_the_edge_says_how_far_an_interval_goes(
    opened: dict[str, tuple[Any, list[str]]], width: int
) -> None:
    page = opened["predict"][0]
    page.set_viewport_size({"width": width, "height": 900})
    figure = page.locator("#breakdown")
    told = result(page, "figures")
    [totals, arrows] = [one for one in told[1]["data"] if one["type"] == "scatter"]
    edge_ms = 1.6 * max(totals["x"])
    drawn = "document.getElementById('breakdown')._fullLayout.xaxis.range"
    assert page.evaluate(drawn) == pytest.approx([0, edge_ms], rel=1e-12)
    written = figure.locator(".textpoint")
    assert written.all_text_contents() == arrows["text"] != []

    def outside() -> list[str]:
        left, wide = (figure.bounding_box()[key] for key in ("x", "width"))
        boxes = [(one.text_content(), one.bounding_box()) for one in written.all()]
        return [
            text
            for text, box in boxes
            if not left <= box["x"] <= box["x"] + box["width"] <= left + wide
        ]

    for _ in range(100):  # figures follow the window's width a moment later
        if not outside():
            break
        page.wait_for_timeout(50)
    assert outside() == []


def test_the_picture_is_a_png_of_the_timeline(tmp_path: Path) -> None:
    pytest.importorskip("kaleido", reason="needs Kaleido (pip install 'perfsim[png]')")
    path = tmp_path / "timeline.png"
    asked = ["predict", "--model", "resnet50", "--gpus", "8", "--png", str(path)]
    assert code(asked) == 0
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height > 300) == (2000, True)
