"""A library on S3, with the command line: collected, listed, queried, copied back; the server checks signatures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study
from s3_server import MOTO, Server, moto, user_of

from iosonde.results import ResultSet

pytestmark = [pytest.mark.system, MOTO]
LIBRARY = "s3://bucket/lab/results"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with moto() as started:
        for name, value in user_of(started).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{started.port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        started.put("bucket")
        yield started


def test_a_library_on_s3(server: Server, tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        result_set(tmp_path / f"made/set-{number}", small_study(), repeats=1, seconds=1, seed=number)
    done = iosonde("collect", tmp_path / "made", "--output", LIBRARY, "--json")
    assert done.returncode == 0, done.stderr
    copied = json.loads(done.stdout)["copied"]
    assert len(copied) == 2
    first = server.buckets["bucket"]
    assert json.loads(iosonde("collect", tmp_path / "made", "--output", LIBRARY, "--json").stdout)["known"] == 2
    assert server.buckets["bucket"] == first

    count = "SELECT count(DISTINCT (result_set, run_id)) AS runs, count(DISTINCT study) AS studies FROM metrics"
    assert iosonde("sql", LIBRARY, count).stdout == "runs,studies\n10,1\n"
    page = tmp_path / "page.html"
    assert iosonde("library", LIBRARY, "--output", page).returncode == 0
    assert all(name in page.read_text() for name in copied)
    [track, *_] = json.loads(iosonde("history", LIBRARY, "--json").stdout)["tracks"]
    assert track
    assert "a page about `s3://bucket/lab/results` requires `--output`" in iosonde("library", LIBRARY).stderr

    assert iosonde("collect", LIBRARY, "--output", tmp_path / "back").returncode == 0
    copies = [ResultSet.open(plan.parent) for plan in (tmp_path / "back").rglob("plan.json")]
    assert [len(copy.records()) for copy in copies] == [5, 5] and not any(copy.problems for copy in copies)

    missing = iosonde("collect", tmp_path / "made", "--output", "s3://nothing/lab")
    assert (missing.returncode, "`s3://nothing/lab`: The specified bucket does not exist" in missing.stderr) == (
        1,
        True,
    ), missing.stderr
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused = iosonde("sql", LIBRARY, count)
    assert (refused.returncode, "cannot read `s3://bucket/lab/results`" in refused.stderr) == (1, True), refused.stderr
