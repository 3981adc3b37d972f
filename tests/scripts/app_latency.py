"""Measure how long `perfsim app` takes from a change to its answer, in Chromium.

Each change is made as a user makes it (a key, a slider), and the page itself measures from the
input event to the first frame after the new answer stands in it. An answer is worked out anew each
time: no change is made twice.

    python tests/scripts/app_latency.py [--repeats 7] [--out tests/scripts/app_latency.txt]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

LIMIT_MS = 150.0
WARM_S = 12.0
"""How long after its start the app is asked: models are prepared meanwhile."""

WATCH = """
() => {
  window.waits = [];
  let since = 0;
  const changed = (event) => { if (event.isTrusted) since = performance.now(); };
  for (const kind of ["input", "change"]) document.addEventListener(kind, changed, true);
  new MutationObserver(() => {
    if (!since) return;
    const began = since;
    since = 0;
    requestAnimationFrame(() => window.waits.push(performance.now() - began));
  }).observe(document.getElementById("answer-a"), {
    childList: true, subtree: true, characterData: true,
  });
}
"""
"""From a trusted input event to the frame after the answer's text has changed."""


def field(page: Any, name: str) -> Any:
    """Return the control of a field of scenario A."""
    return page.locator(f'#pane-a [data-key="{name}"] input').first


def slider(page: Any, name: str) -> Any:
    """Return a slider of scenario A."""
    return page.locator(f'#pane-a [data-slider="{name}"]').first


def typed(name: str, values: list[str]) -> Callable[[Any, int], None]:
    """Return a change that replaces the text of a field."""

    def change(page: Any, turn: int) -> None:
        box = field(page, name)
        box.focus()
        box.fill("")
        page.wait_for_timeout(400)
        page.evaluate("window.waits.length = 0")
        page.keyboard.insert_text(values[turn % len(values)])

    return change


def moved(name: str) -> Callable[[Any, int], None]:
    """Return a change that moves a slider by a step of the keyboard."""

    def change(page: Any, turn: int) -> None:
        slider(page, name).focus()
        page.evaluate("window.waits.length = 0")
        page.keyboard.press("ArrowRight" if turn < 5 else "ArrowLeft")

    return change


def switched(page: Any, turn: int) -> None:
    """Switch overlap on or off."""
    page.evaluate("window.waits.length = 0")
    page.locator('#pane-a [data-key="overlap"] input').click()


CHANGES: dict[str, Callable[[Any, int], None]] = {
    "bandwidth (slider)": moved("rate"),
    "latency (slider)": moved("latency"),
    "density (slider)": moved("density"),
    "batch (slider)": moved("batch"),
    "GPUs (slider)": moved("gpus"),
    "overlap (switch)": switched,
    "bucket (typed)": typed("bucket", [f"{size}MiB" for size in (4, 8, 12, 16, 20, 30, 40)]),
    "network (typed)": typed(
        "net", ["1gbe", "25gbe", "ib100", "100gbe", "ib200", "40gbe", "ib400"]
    ),
    "method (typed)": typed(
        "method", ["topk", "powersgd", "qsgd", "signsgd", "acpsgd", "ssgd", "localsgd"]
    ),
    "model (typed)": typed(
        "model", ["vgg16", "bert-large", "gpt2", "resnet152", "llama3-8b", "vit-l16", "gpt3-1.3b"]
    ),
}
"""Ten kinds of changes."""


@contextmanager
def served() -> Iterator[str]:
    """Serve the app on a free port; yield where it is."""
    command = [sys.executable, "-m", "perfsim", "app", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[4]
        finally:
            process.terminate()


def measure(page: Any, change: Callable[[Any, int], None], repeats: int) -> list[float]:
    """Return the waits of one kind of change [ms]."""
    waits = []
    for turn in range(repeats):
        change(page, turn)
        for _ in range(100):
            page.wait_for_timeout(30)
            found = page.evaluate("window.waits")
            if found:
                waits.append(found[0])
                break
        page.wait_for_timeout(900)  # figures are drawn before the next change
    return waits


def main() -> int:
    """Measure all kinds of changes; return 1 where a median is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    lines = [
        f"From a change to its answer in Chromium, {os.cpu_count()} CPUs ({platform.machine()}),"
        f" Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}",
        f"{'change':22}{'median [ms]':>12}{'worst [ms]':>12}{'times':>7}",
    ]
    late = False
    with served() as where, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        for name, change in CHANGES.items():
            page.goto(where)  # each kind begins with the same scenario
            page.locator("#answer-a .hero").wait_for()
            time.sleep(WARM_S if name == next(iter(CHANGES)) else 2)
            page.evaluate(WATCH)
            waits = measure(page, change, given.repeats)
            late = late or not waits or median(waits) > LIMIT_MS
            words = (median(waits), max(waits)) if waits else (float("nan"),) * 2
            lines.append(f"{name:22}{words[0]:12.0f}{words[1]:12.0f}{len(waits):7}")
            print(lines[-1], flush=True)
        browser.close()
    text = "\n".join(lines) + "\n"
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    print(text)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
