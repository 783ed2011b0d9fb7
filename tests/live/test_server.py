"""The server of the live page: who may read it, that it never holds up a study, and that it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command_line import CHECKOUT
from plans import hand_plan
from strangers import Listening, listening

from iosonde.errors import IosondeError
from iosonde.execution.live.page import LivePage
from iosonde.execution.live.server import IDLE_S

pytestmark = pytest.mark.engine


@pytest.fixture
def page() -> Iterator[LivePage]:
    """A page whose server is killed at the end, if it did not end."""
    started = LivePage(hand_plan())
    yield started
    started.close()
    started._process.kill()
    started._process.wait()


def ask(url: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=300)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def test_the_page_is_served_with_a_policy_that_loads_nothing_from_elsewhere(page: LivePage) -> None:
    status, content, headers = ask(page.url)
    assert status == 200 and content.startswith(b"<!doctype html>")
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store" and headers["referrer-policy"] == "no-referrer"
    assert b"http://" not in content.replace(b"http://www.w3.org", b"") and b"https://" not in content


def test_only_the_secret_path_of_this_host_is_answered(page: LivePage) -> None:
    root, port = page.url.rsplit("/", 2)[0], urlsplit(page.url).port
    for path in ("/", "/state", "/x/state", "/x/", "//", f"{urlsplit(page.url).path}../state", "/%00/state"):
        status, content, _ = ask(root + path)
        assert (status, content) == (404, b"not found\n"), path
    assert ask(page.url + "state")[0] == ask(page.url + "state", Host=f"localhost:{port}")[0] == 200
    assert ask(page.url + "other")[0] == 404
    assert ask(page.url + "state", method="POST")[0] == 501
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example"):
        assert ask(page.url + "state", Host=host)[0] == 403, host


def test_the_server_listens_on_loopback_and_other_users_do_not_see_the_token(page: LivePage) -> None:
    parts = urlsplit(page.url)
    assert parts.hostname == "127.0.0.1"
    token = parts.path.strip("/")
    assert len(token) >= 32
    process = Path("/proc") / str(page._process.pid)
    assert token.encode() not in (process / "cmdline").read_bytes()
    assert token.encode() not in (process / "environ").read_bytes()
    ask(page.url)
    assert os.getpriority(os.PRIO_PROCESS, page._process.pid) == 19
    loaded = (process / "maps").read_text()
    assert "python" in loaded and not any(name in loaded for name in ("polars", "numpy", "duckdb", "pydantic"))
    assert listening([page._process.pid]) == {Listening("tcp", "127.0.0.1", parts.port or 0)}


def test_a_port_in_use_is_an_error_before_the_study_starts() -> None:
    problem = r"cannot serve the live page on port \d+: Address already in use"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(IosondeError, match=problem):
        LivePage(hand_plan(), port=taken.getsockname()[1])


def test_a_server_that_does_not_read_or_was_killed_stops_nothing(page: LivePage) -> None:
    ask(page.url)
    page._process.send_signal(signal.SIGSTOP)
    values = {"values": {"text": "x" * 2000}, "progress": {}}
    for _ in range(5000):
        page.send(values, droppable=True)  # It would wait forever.
    assert len(page._pending) < 10_000
    page._process.kill()
    page._process.wait()
    page.send({"notes": ["still here"]})
    page.over("complete", "Done.")
    page.close()


def test_the_report_is_linked_at_the_end_and_an_idle_server_exits(page: LivePage, tmp_path: Path) -> None:
    assert ask(page.url + "report.html")[0] == 404
    (tmp_path / "report.html").write_text("<p>the report</p>")
    page.over("complete", "4 of 4 runs complete.", tmp_path / "report.html")
    page.close()
    state = json.loads(ask(page.url + "state")[1])
    while not state["over"]:
        state = json.loads(ask(page.url + "state")[1])
    end = {"outcome": "complete", "text": "4 of 4 runs complete.", "report": str(tmp_path / "report.html")}
    assert state["over"] == end
    assert ask(page.url + "report.html")[1] == b"<p>the report</p>"
    assert page._process.wait(timeout=IDLE_S + 300) == 0
    never_opened = LivePage(hand_plan())
    never_opened.over("complete", "Done.")
    never_opened.close()
    assert never_opened._process.wait(timeout=300) == 0


def test_a_session_that_was_killed_is_reported(page: LivePage) -> None:
    ask(page.url)
    page.close()
    state = json.loads(ask(page.url + "state")[1])
    while not state["over"]:
        state = json.loads(ask(page.url + "state")[1])
    assert state["over"]["outcome"] == "lost"


def test_a_study_shows_its_progress_and_its_end(tmp_path: Path) -> None:
    arguments = ["run", "quick", "--target", "sim:x25m", "--profile", "quick", "--repeats", "1"]
    arguments += ["--set", "queue_depth=1", "--set", "duration=200ms", "--set", "interval=100ms"]
    arguments += ["--live", "--quiet", "--output", str(tmp_path / "set")]
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "python")}
    with subprocess.Popen([sys.executable, "-m", "iosonde", *arguments], env=environment, **streams) as process:  # type: ignore[call-overload]
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("Live page: http://127.0.0.1:"), line
        url = line.split()[-1]
        while not (state := json.loads(ask(url + "state")[1]))["over"]:
            time.sleep(0.1)
        assert b"Two-minute overview" in ask(url + "report.html")[1]
        assert process.wait(timeout=300) == 0
    assert state["over"]["outcome"] == "complete"
    finished = [each for each in state["cases"] if each["done"]]
    assert finished and all(each["rate"] > 0 for each in finished)
