"""The HTML report as a browser shows it: drawn, without a complaint, with its numbers on hover."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsim.catalog import Catalog
from perfsim.cli.main import code
from perfsim.planning.around import around
from perfsim.prediction import Prediction, predict
from perfsim.report.page.prediction_page import prediction_page
from perfsim.scenario import make_scenario

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FIGURES = 5

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict(make_scenario({"model": "resnet50", "gpus": 64, "net": "1gbe"}), Catalog())


@pytest.fixture(scope="module")
def report(prediction: Prediction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("plotly", reason="needs Plotly (pip install 'perfsim[report]')")
    scenario = make_scenario({"model": "resnet50", "gpus": 64, "net": "1gbe"})
    path = tmp_path_factory.mktemp("report") / "report.html"
    near = around(scenario, prediction, Catalog(), ["powersgd"])
    path.write_text(prediction_page(prediction, near), encoding="utf-8")
    return path


def test_chromium_draws_every_figure_without_an_error(report: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
            report.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f'data-drawn="{FIGURES}"' in done.stdout
    assert done.stdout.count('class="main-svg"') >= FIGURES
    assert not re.findall(r"CONSOLE.*", done.stderr)


@pytest.fixture(scope="module")
def opened(report: Path) -> Iterator[tuple[Any, list[str]]]:
    """Return the page in a browser that can be pointed with, and what its console says."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip)")
    said: list[str] = []
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="dark")
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda asked: said.append(asked.url) if "http" in asked.url else None)
        page.goto(report.as_uri())
        page.wait_for_selector(f'html[data-drawn="{FIGURES}"]')
        yield page, said
        browser.close()


def test_hovering_a_bar_shows_its_numbers(
    opened: tuple[Any, list[str]], prediction: Prediction
) -> None:
    page, said = opened
    bar = page.locator("#breakdown .trace.bars .point").first
    bar.scroll_into_view_if_needed()
    bar.hover(force=True)
    text = page.locator("#breakdown .hoverlayer .hovertext").first.text_content(timeout=5000)
    assert f"forward {prediction.breakdown_s['forward'] * 1e3:.4f} ms" in text
    assert said == []


def test_arrow_keys_read_a_figure_row_by_row(
    opened: tuple[Any, list[str]], prediction: Prediction
) -> None:
    page, _ = opened
    page.locator("#worth").focus()
    page.keyboard.press("ArrowRight")
    text = page.locator("#worth-said").text_content()
    assert text.startswith("change bandwidth doubled, iteration saved [%] ")
    assert f"{prediction.worth['bandwidth'] * 100:.6g}" in text


def test_dark_mode_and_print_have_their_own_colours(opened: tuple[Any, list[str]]) -> None:
    page, _ = opened
    ink = "getComputedStyle(document.body).color"
    drawn = "document.getElementById('worth')._fullLayout.font.color"
    assert page.evaluate(drawn) == "#e4e9ee"
    dark = page.evaluate(ink)
    page.emulate_media(color_scheme="light")
    for _ in range(50):  # wait_for_function needs eval, which the page's policy forbids
        if page.evaluate(drawn) == "#1d2733":
            break
        page.wait_for_timeout(100)
    assert page.evaluate(drawn) == "#1d2733"
    assert page.evaluate(ink) != dark
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#worth-table").is_visible()
    assert page.locator("#worth .main-svg").first.bounding_box()["width"] <= 690
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator("#worth-table").is_visible()


def test_figures_drawn_are_the_numbers_of_the_page(opened: tuple[Any, list[str]]) -> None:
    page, _ = opened
    told = json.loads(page.locator("#figures").text_content())
    for figure in told:
        script = "name => document.getElementById(name).data.map(t => [t.x, t.y])"
        drawn = page.evaluate(script, figure["name"])
        assert drawn == [[trace["x"], trace["y"]] for trace in figure["data"]]


def test_the_picture_is_a_png_of_the_timeline(tmp_path: Path) -> None:
    pytest.importorskip("kaleido", reason="needs Kaleido (pip install 'perfsim[png]')")
    path = tmp_path / "timeline.png"
    asked = ["predict", "--model", "resnet50", "--gpus", "8", "--png", str(path)]
    assert code(asked) == 0
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height > 300) == (2000, True)
