"""The app as a browser shows it: load, change, compare, share, export, wrong input, 400 px."""

from __future__ import annotations

import csv
import io
import re
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from perfsim.errors import spelled
from perfsim.prediction import Prediction, predict
from perfsim.report.html.pages import answer_of
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_fields
from perfsim.units import format_seconds

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
LINK = "?model=resnet18&gpus=16&net=1gbe&method=dgc"
FIELDS = {"model": "resnet18", "gpus": 16, "net": "1gbe", "method": "dgc"}
WIDE = {"width": 1300, "height": 900}
NARROW = {"width": 400, "height": 800}

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    """Serve the app, and return where it is."""
    pytest.importorskip("flask", reason="needs Flask (pip install 'perfsim[app]')")
    from werkzeug.serving import make_server

    from perfsim.app.server import make_app

    server = make_server("127.0.0.1", 0, make_app("127.0.0.1", {}).flask, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip)")
    with driver.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


class Opened:
    """A page of the app in a browser, and what its console and its requests said."""

    def __init__(self, browser: Any, home: str, link: str = LINK, **context: Any) -> None:
        self.said: list[str] = []
        self.context = browser.new_context(
            **{"viewport": {"width": 1300, "height": 900}, **context}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda asked: self._asked(asked.url, home))
        self.page.goto(home + link)

    def _asked(self, url: str, home: str) -> None:
        if not url.startswith((home, "data:", "blob:")):
            self.said.append(f"asks for {url[:80]}")

    def field(self, key: str, pane: str = "a") -> Any:
        """Return the control of a field."""
        return self.page.locator(f'#pane-{pane} .field[data-key="{key}"] input')

    def shows(self, prediction: Prediction, pane: str = "a") -> None:
        """Wait until the answer of a prediction stands there, and nothing older."""
        question = spelled(answer_of(prediction)["throughput"])
        answer = self.page.locator(f"#answer-{pane}")
        answer.get_by_text(question, exact=True).wait_for()
        assert answer.locator(".hero strong").inner_text() == format_seconds(prediction.iteration_s)

    def drawn(self, pane: str = "a") -> None:
        """Wait until the figures of the last answer stand there."""
        self.page.locator(f"#pane-{pane}:not(.behind) .breakeven figcaption:not(:empty)").wait_for()

    def saved(self, button: str, pane: str = "a") -> tuple[str, bytes]:
        """Press a button that saves a file; return its name and content."""
        with self.page.expect_download() as download:
            self.page.locator(f"#pane-{pane} .seen").get_by_role("button", name=button).click()
        path = download.value.path()
        return download.value.suggested_filename, Path(path).read_bytes()


@pytest.fixture
def opened(browser: Any, home: str) -> Iterator[Opened]:
    found = Opened(browser, home)
    yield found
    found.context.close()


def asked(**fields: Any) -> Prediction:
    return predict(make_scenario({**FIELDS, **fields}))


def test_it_loads_with_answer_and_figures_and_asks_nobody_else(opened: Opened) -> None:
    opened.shows(asked())
    opened.drawn()
    page = opened.page
    for figure in ("timeline", "scaling", "breakeven"):
        assert page.locator(f"#pane-a .{figure} .main-svg").count() >= 1
    bars = page.locator("#answer-a .bars").first.locator(".bar")
    assert bars.count() == len([one for one in asked().breakdown_s.values() if one > 1e-12])
    warnings = page.locator("#answer-a .warnings li")
    assert warnings.count() == len(asked().warnings)
    assert "dgc learns otherwise than S-SGD" in warnings.first.inner_text()
    assert opened.said == []


def test_a_change_of_any_kind_is_answered(opened: Opened) -> None:
    opened.shows(asked())
    opened.field("gpus").fill("32")
    opened.shows(asked(gpus=32))
    opened.field("overlap").uncheck()
    opened.shows(asked(gpus=32, overlap=False))
    opened.field("options.density").fill("0.02")
    opened.shows(asked(gpus=32, overlap=False, options={"density": 0.02}))
    opened.field("method").fill("powersgd")
    opened.shows(asked(gpus=32, overlap=False, method="powersgd"))
    assert opened.field("options.rank").get_attribute("placeholder") == "4"
    assert opened.field("options.density").count() == 0
    assert opened.said == []


@pytest.mark.parametrize(
    ("slider", "key", "press", "field"),
    [
        ("rate", "net", "ArrowRight", "net"),
        ("latency", "net", "ArrowLeft", "net"),
        ("batch", "batch", "ArrowRight", "batch"),
        ("gpus", "gpus", "ArrowLeft", "gpus"),
        ("density", "options.density", "ArrowRight", "options"),
    ],
)
def test_a_slider_writes_its_field_and_is_answered(
    opened: Opened, slider: str, key: str, press: str, field: str
) -> None:
    opened.shows(asked())
    opened.page.locator(f'#pane-a [data-slider="{slider}"]').press(press)
    text = opened.field(key).input_value()
    assert text not in ("", str(FIELDS.get(key)))
    opened.shows(asked(**{field: {"density": text} if field == "options" else text}))


def test_the_slider_of_a_node_type_is_the_rate_of_its_nics(browser: Any, home: str) -> None:
    opened = Opened(browser, home, "?model=gpt2&gpus=16&node=dgx-h100")
    fields = {"model": "gpt2", "gpus": 16, "node": "dgx-h100"}
    opened.shows(predict(make_scenario(fields)))
    opened.page.locator('#pane-a [data-slider="rate"]').press("ArrowLeft")
    nic = opened.field("nic").input_value()
    assert re.fullmatch(r"3\d\dGbit/s", nic)
    opened.shows(predict(make_scenario({**fields, "nic": nic})))
    assert opened.page.locator('#pane-a [data-slider="latency"]').is_disabled()
    opened.context.close()


def test_a_wrong_text_is_answered_at_its_field_and_the_last_answer_is_marked(
    opened: Opened,
) -> None:
    opened.shows(asked())
    opened.drawn()
    height = opened.page.evaluate("document.documentElement.scrollHeight")
    opened.field("gpus_per_node").fill("7")
    wrong = opened.page.locator('#pane-a .field[data-key="gpus_per_node"] .wrong')
    wrong.get_by_text("GPUs a node: 16 GPUs do not divide by 7;").wait_for()
    assert opened.field("gpus_per_node").get_attribute("aria-invalid") == "true"
    assert opened.field("gpus_per_node").get_attribute("aria-describedby") == wrong.get_attribute(
        "id"
    )
    pane = opened.page.locator("#pane-a")
    assert "refused" in str(pane.get_attribute("class"))
    assert pane.locator(".wrong-all").inner_text() == "The last answer; see the marked field."
    opened.shows(asked())  # it is still there
    assert opened.page.evaluate("document.documentElement.scrollHeight") == height

    opened.field("gpus_per_node").fill("8")
    opened.shows(asked(gpus_per_node=8))
    assert wrong.inner_text() == "" and "refused" not in str(pane.get_attribute("class"))
    opened.field("model").fill("<img src=x onerror=alert(1)>")
    opened.page.locator('#pane-a .field[data-key="model"] .wrong').get_by_text("<img").wait_for()
    assert opened.page.locator("img").count() == 0
    assert opened.said == []


def test_what_is_wrong_among_the_other_settings_opens_them(browser: Any, home: str) -> None:
    opened = Opened(browser, home, f"{LINK}&accumulate=0")
    words = "accumulate: '0' is not allowed: it must be 1 or more."
    wrong = opened.page.locator('#pane-a .field[data-key="accumulate"] .wrong')
    wrong.get_by_text(words).wait_for()
    assert wrong.is_visible() and opened.field("accumulate").is_visible()
    opened.context.close()


def test_two_scenarios_side_by_side(opened: Opened) -> None:
    opened.shows(asked())
    opened.page.get_by_role("button", name="Compare two").click()
    opened.shows(asked(), "b")
    told = opened.page.locator("#compared")
    told.get_by_text("A and B are the same scenario.").wait_for()
    opened.field("net", "b").fill("100gbe")
    opened.shows(asked(net="100gbe"), "b")
    told.get_by_text("They differ in network between nodes (1gbe, 100gbe).").wait_for()
    assert told.inner_text().startswith("B trains ")
    assert "b.net=100gbe" in opened.page.url
    opened.page.locator("#plot-compared .main-svg").first.wait_for()
    opened.drawn("b")

    _, content = opened.saved("CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert {(row["scenario"], row["net"]) for row in rows} == {("A", "1gbe"), ("B", "100gbe")}
    own = next(
        r for r in rows if r["scenario"] == "B" and r["method"] == "dgc" and r["gpus"] == "16"
    )
    assert float(own["iteration_s"]) == asked(net="100gbe").iteration_s

    opened.page.reload()  # the link holds both
    opened.shows(asked(net="100gbe"), "b")
    opened.page.get_by_role("button", name="One alone").click()
    assert not opened.page.locator("#pane-b").is_visible() and "b.net" not in opened.page.url
    assert opened.said == []


def test_a_scenario_is_saved_and_opened_as_a_file(opened: Opened, tmp_path: Path) -> None:
    opened.field("options.density").fill("0.02")
    opened.shows(asked(options={"density": 0.02}))
    name, content = opened.saved("TOML: Save")
    assert name == "perfsim-resnet18-dgc-16.toml"
    path = tmp_path / name
    path.write_bytes(content)
    assert make_scenario(read_fields(path)) == make_scenario(
        {**FIELDS, "options": {"density": 0.02}}
    )

    path.write_text(path.read_text().replace("gpus = 16", "gpus = 64"))
    with opened.page.expect_file_chooser() as chooser:
        opened.page.get_by_role("button", name="Open…").first.click()
    chooser.value.set_files(path)
    opened.shows(asked(gpus=64, options={"density": 0.02}))
    path.write_text("gpus = ")
    with opened.page.expect_file_chooser() as chooser:
        opened.page.get_by_role("button", name="Open…").first.click()
    chooser.value.set_files(path)
    opened.page.locator("#notice").get_by_text("is not TOML").wait_for()
    opened.shows(asked(gpus=64, options={"density": 0.02}))


def test_a_link_is_the_whole_scenario(browser: Any, home: str, opened: Opened) -> None:
    opened.field("batch").fill("8")
    opened.field("options.density").fill("0.02")
    opened.shows(asked(batch=8, options={"density": 0.02}))
    link = urlsplit(opened.page.url)
    assert parse_qs(link.query)["options.density"] == ["0.02"]
    other = Opened(browser, home, f"?{link.query}")
    other.shows(asked(batch=8, options={"density": 0.02}))
    assert other.field("options.density").input_value() == "0.02"
    other.context.close()

    wrong = Opened(browser, home, "?model=resnet18&gpus=sixteen&nett=1gbe")
    wrong.page.locator('#pane-a .field[data-key="gpus"] .wrong').get_by_text(
        "whole number"
    ).wait_for()
    assert "a scenario has no 'nett'" in wrong.page.locator("#notice").inner_text()
    wrong.context.close()


def test_options_of_a_link_are_answered_or_refused_and_never_passed_over(
    browser: Any, home: str
) -> None:
    link = "?model=resnet18&gpus=16&net=1gbe&fusion_options.first_bucket=64MiB"
    other = Opened(browser, home, link)
    fields = {"model": "resnet18", "gpus": 16, "net": "1gbe"}
    other.shows(predict(make_scenario({**fields, "fusion_options": {"first_bucket": "64MiB"}})))
    assert "fusion_options.first_bucket=64MiB" in other.page.url
    other.context.close()
    wrong = Opened(browser, home, "?model=resnet18&gpus=16&net=1gbe&options.density=0.01")
    said = wrong.page.locator('#pane-a .field[data-key="options.density"] .wrong')
    said.get_by_text("method 'ssgd' has no 'density'").wait_for()
    wrong.field("options.density").fill("")
    wrong.shows(predict(make_scenario(fields)))
    wrong.context.close()


def test_a_file_that_is_saved_beside_a_refusal_says_which_scenario_it_is(opened: Opened) -> None:
    opened.shows(asked())
    opened.field("gpus").fill("0")
    opened.page.locator("#pane-a.refused").wait_for()
    assert b"gpus = 16" in opened.saved("TOML:")[1]
    opened.page.locator("#notice").get_by_text("is saved, of the last answer.").wait_for()


def test_pictures_and_the_page_are_saved(opened: Opened) -> None:
    opened.shows(asked())
    opened.drawn()
    name, picture = opened.saved("PNG: save scaling of scenario A as a picture")
    assert name == "perfsim-scaling.png" and picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width == 2000 and height > 600
    name, page = opened.saved("HTML")
    assert name == "perfsim-resnet18-dgc-16.html" and b'id="breakdown"' in page


def test_it_is_used_with_the_keyboard_alone(opened: Opened) -> None:
    opened.shows(asked())
    reached = set()
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.add(
            opened.page.evaluate(
                """() => {
                    const one = document.activeElement;
                    const key = one.closest(".field")?.dataset.key;
                    return one.dataset.slider ?? key ?? one.dataset.export ?? one.id ?? "";
                }"""
            )
        )
    wanted = {"compare", "model", "batch", "gpus", "net", "rate", "latency", "method", "density"}
    assert wanted | {"overlap", "open", "toml", "link", "csv", "html"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["400", "1300"])
def test_every_width_and_scheme_fits_and_passes_axe(
    browser: Any, home: str, scheme: str, size: dict[str, int]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe (pip)")
    link = f"{LINK}&b.model=gpt2&b.node=dgx-h100&b.gpus=16"
    # axe is put into the page by a test, which the page's own policy would not allow.
    opened = Opened(browser, home, link, viewport=size, color_scheme=scheme, bypass_csp=True)
    opened.shows(asked())
    opened.drawn()
    opened.drawn("b")
    page = opened.page
    for one in page.locator("summary").all():
        one.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 20, 25)"}[scheme]
    found = axe.Axe().run(page)
    assert found.response["violations"] == [], found.generate_report()
    opened.context.close()


def test_on_a_phone_the_time_is_always_in_sight(browser: Any, home: str) -> None:
    opened = Opened(browser, home, viewport=NARROW)
    opened.shows(asked())
    readout = opened.page.locator(".readout")
    assert readout.is_visible() and format_seconds(asked().iteration_s) in readout.inner_text()
    opened.context.close()
