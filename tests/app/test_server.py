"""Who may ask the app, what it sends, and how it starts and ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code

pytest.importorskip("flask", reason="needs Flask (pip install 'perfsim[app]')")

from perfsim.app.server import App, bound, make_app

TEXTS = {"model": "resnet18", "gpus": "16", "net": "1gbe", "method": "dgc"}
HOME = "http://127.0.0.1:8050"


@pytest.fixture(scope="module")
def app() -> App:
    return make_app("127.0.0.1", {})


@pytest.fixture
def client(app: App) -> Any:
    return app.flask.test_client()


def ask(client: Any, where: str, question: Any, **headers: str) -> Any:
    return client.post(where, json=question, headers={"Host": "127.0.0.1:8050", **headers})


def test_the_page_holds_the_scenario_of_its_link_and_no_script_of_its_own(client: Any) -> None:
    page = client.get("/?model=gpt2&gpus=8&b.gpus=16", headers={"Host": "localhost:8050"}).text
    state = re.search(r'id="state">(.*?)</script>', page)
    assert state is not None
    assert json.loads(state[1]) == {"a": {"model": "gpt2", "gpus": "8"}, "b": {"gpus": "16"}}
    scripts = re.findall(r"<script[^>]*>", page)
    assert scripts == [
        '<script src="app.js" defer>',
        '<script type="application/json" id="state">',
    ]
    assert "http" not in page.replace("https://github.com", "")


def test_texts_are_escaped_wherever_they_stand(client: Any) -> None:
    mark = "<img src=x onerror=alert(1)>"
    page = client.get("/", query_string={"model": mark, mark: "1"}, headers={"Host": "localhost"})
    assert mark not in page.text and "&lt;img" in page.text
    found = ask(
        client, "/options", {"pane": mark, "texts": {"method": "dgc", "options.density": mark}}
    )
    assert mark not in found.json["html"] and "&lt;img" in found.json["html"]
    model = "transformer:layers=2,hidden=64,heads=2,vocab=100"
    found = ask(client, "/answer", {"texts": {"model": model, "gpus": "2", "net": mark}})
    assert found.json["field"] == "net"  # a sentence, which the page shows as text


def test_an_answer_is_html_sentences_and_where_sliders_stand(client: Any) -> None:
    found = ask(client, "/answer", {"texts": TEXTS}).json
    assert found["seconds"] in found["html"] and "90 % interval" in found["html"]
    assert set(found["placed"]) == {"batch", "gpus", "rate", "latency", "density"}
    wrong = ask(client, "/answer", {"texts": {**TEXTS, "gpus": "x"}}).json
    assert wrong["field"] == "gpus" and "html" not in wrong


@pytest.mark.parametrize("figure", ["timeline", "scaling", "breakeven"])
def test_figures_and_exports_come_as_data(client: Any, figure: str) -> None:
    found = ask(client, "/figure", {"figure": figure, "texts": TEXTS}).json
    assert found["data"] and found["words"] and found["heading"].endswith("resnet18, dgc, 16")


def test_files_are_named_after_the_scenario(client: Any) -> None:
    for kind, begins in (("toml", "schema = "), ("csv", "scenario,model,"), ("html", "<!DOCTYPE")):
        found = ask(client, "/saved", {"kind": kind, "texts": TEXTS, "a": TEXTS}).json
        assert found["name"] == f"perfsim-resnet18-dgc-16.{kind}"
        assert found["text"].startswith(begins)
    toml = ask(client, "/saved", {"kind": "toml", "texts": TEXTS}).json["text"]
    opened = ask(client, "/opened", {"name": "x.toml", "text": toml}).json
    assert opened == {"texts": TEXTS, "notice": "x.toml is open."}


def test_nothing_that_is_no_question_of_the_page_is_an_error_of_the_server(client: Any) -> None:
    for where in ("/answer", "/figure", "/compared", "/opened", "/saved", "/options"):
        for question in ({}, {"texts": 3}, {"texts": {"gpus": 3}}, {"figure": "x", "kind": "x"}):
            found = ask(client, where, question)
            assert found.status_code == 200 and "internal" not in found.text
        assert ask(client, where, ["no object"]).status_code == 400
        assert client.post(where, data="x", headers={"Host": "localhost"}).status_code == 400
        assert client.get(where, headers={"Host": "localhost"}).status_code == 405


def test_a_fault_of_the_server_is_a_sentence(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(texts: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(app.desk, "answer", fails)
    found = ask(app.flask.test_client(), "/answer", {"texts": TEXTS}).json
    assert found["sentence"].startswith("internal error (KeyError: 'x'); PERFSIM_DEBUG=1")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Origin": HOME}, ""),
        ({"Origin": HOME, "Sec-Fetch-Site": "same-origin"}, ""),
        ({"Host": "evil.example:8050", "Origin": "http://evil.example:8050"}, "by that name"),
        ({"Host": "127.0.0.1.evil.example"}, "by that name"),
        ({"Host": ""}, "by that name"),
        ({"Host": "192.168.0.7:8050"}, "by that name"),
        ({"Origin": "http://evil.example"}, "Another site"),
        ({"Origin": "null"}, "Another site"),
        ({"Origin": "http://127.0.0.1:9999"}, "Another site"),
        ({"Sec-Fetch-Site": "cross-site"}, "Another site"),
        ({"Sec-Fetch-Site": "same-site"}, "Another site"),
    ],
)
def test_only_pages_of_the_app_may_ask(client: Any, headers: dict[str, str], refused: str) -> None:
    found = ask(client, "/answer", {"texts": TEXTS}, **headers)
    assert found.status_code == (403 if refused else 200) and refused in found.text


def test_a_link_opens_the_page_and_nothing_else_of_it_is_used_elsewhere(client: Any) -> None:
    site = {"Host": "localhost:8050", "Sec-Fetch-Site": "cross-site"}
    opened = client.get("/", headers={**site, "Sec-Fetch-Mode": "navigate"})
    assert opened.status_code == 200
    assert client.get("/app.js", headers={**site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    policy = opened.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert opened.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in opened.headers


def test_a_large_request_is_not_read(client: Any) -> None:
    assert ask(client, "/opened", {"name": "x", "text": "x" * 2_000_000}).status_code == 413


def test_where_others_reach_it_addresses_are_names_and_files_are_not_read() -> None:
    other = make_app("0.0.0.0", {}).flask.test_client()
    asked = {"texts": {**TEXTS, "model": "config.json"}}
    for host, status in (("192.168.0.7:8050", 200), ("[fe80::1]:8050", 200), ("evil.test", 403)):
        assert ask(other, "/answer", asked, Host=host).status_code == status
    found = ask(other, "/answer", asked, Host="192.168.0.7:8050").json
    assert "a page that others can reach reads none" in found["sentence"]


def test_a_link_names_no_files(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = client.get("/?model=/etc/passwd&gpus=8", headers={"Host": "localhost"}).text
    assert "is a file of this computer" in page and '"a": {"gpus": "8"}' in page


# Starting and ending


def test_a_taken_port_is_a_sentence_with_a_free_one(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert code(["app", "--port", str(port), "--no-browser"]) == 2
        said = capsys.readouterr().err
    found = re.fullmatch(rf"perfsim: --port: {port} is taken; port (\d+) is free\.\n", said)
    assert found is not None and int(found[1]) > port


def test_a_host_that_is_not_this_computer_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("no such host", "192.0.2.1"):
        assert code(["app", "--host", host, "--port", "0", "--no-browser"]) == 2
        assert capsys.readouterr().err.startswith(f"perfsim: --host: '{host}' ")


def test_a_scenario_that_is_wrong_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(["app", "no-such-scenario"]) == 2
    assert "no 'no-such-scenario'" in capsys.readouterr().err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('schema = "perfsim/scenario/1"\n[scenario]\nmodel = "gpt2"\ngpus = "x"\n')
    assert code(["app", str(wrong)]) == 2
    assert "it must be a whole number" in capsys.readouterr().err


def test_without_flask_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "flask", None)
    assert code(["app", "--no-browser"]) == 2
    assert capsys.readouterr().err == (
        "perfsim: `perfsim app` needs Flask, which is not installed; pip install 'perfsim[app]'.\n"
    )


def test_a_free_port_is_bound_to_this_computer_alone() -> None:
    with bound("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return the app in a process of its own that Ctrl-C reaches."""
    # A shell without job control has its children ignore Ctrl-C: take it as a terminal gives it.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    command = "from perfsim.cli.main import run; run()"
    asked = ["app", "what_if_dgc_1gbe", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-c", begin + command, *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        yield process
        process.kill()


def test_it_serves_a_scenario_and_ctrl_c_ends_it(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None and running.stderr is not None
    line = running.stdout.readline()
    found = re.fullmatch(r"perfsim app is on (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", line)
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=30) as answer:
        assert '"method": "dgc"' in answer.read().decode()
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=30) == 0
    assert running.stderr.read().strip() == ""


def test_json_that_is_nested_too_deep_is_no_error_of_the_server(client: Any) -> None:
    for text in ("[" * 100_000, '{"texts":' * 100_000):
        found = client.post(
            "/answer",
            data=text,
            content_type="application/json",
            headers={"Host": "127.0.0.1:8050"},
        )
        assert found.status_code == 400
        assert found.json == {"field": "", "sentence": "The page sent no JSON."}
