"""Libraries in object storage: collected once, completed, queried, copied back; and one on S3 that checks signatures."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import polars as pl
import pytest
from command_line import Iosonde
from fabricate import result_set, small_study
from s3_server import MOTO, Server, moto, user_of

from iosonde.base.object_storage import opened
from iosonde.collections.library.collect import collect
from iosonde.collections.library.indexing import COMPACTED, SUMMARIES, Cache, index, newest, of_segments, state_of
from iosonde.errors import ResultsError
from iosonde.results import ResultSet, query

LIBRARY = "memory://bucket/lab"


@pytest.fixture(autouse=True)
def objects() -> Iterator[dict[str, bytes]]:
    storage = fsspec.filesystem("memory")
    storage.store.clear()
    yield storage.store
    storage.store.clear()


def contents() -> dict[str, bytes]:
    storage = fsspec.filesystem("memory")
    return {path: storage.cat_file(path) for path in storage.find("/")}


def records_below(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    return {"/".join(path.relative_to(root).parts[-3:]): path.read_bytes() for path in files if "records" in path.parts}


def metrics(address: str, text: str) -> list[tuple[object, ...]]:
    """As `iosonde sql` does, in this process: objects in memory are those of one process."""
    storage, rows = opened(address), newest(opened(address))
    library = {
        "directory": storage.url(f"{storage.root}/{COMPACTED}"),
        "address": address,
        "result_sets": [{"result_set": each.path} for each in index(address).summaries],
        "segments": rows.select("result_set", "segment").to_dicts(),
        "files": [storage.url(each) for each in of_segments(storage.find(f"{COMPACTED}/metrics"), rows["segment"])],
    }
    return query.answer_library(library, text).rows()


def test_result_sets_are_uploaded_once_and_damaged_ones_are_not(made: Path, tmp_path: Path) -> None:
    done = collect([str(made / "host-a"), str(made / "host-b")], LIBRARY)
    assert (len(done.copied), done.known, done.problems) == (2, 0, [])
    first = contents()
    again = collect([str(made)], LIBRARY)
    assert (again.copied, again.completed, again.known) == ([], [], 2)
    assert contents() == first
    shutil.copytree(made / "host-a", tmp_path / "source")
    [damaged, *_] = sorted((tmp_path / "source/results/records").iterdir())
    (damaged / "intervals.parquet").write_bytes(b"")
    done = collect([str(tmp_path / "source")], "memory://bucket/other")
    assert "`intervals.parquet` was modified after it was written" in done.problems[0]
    assert [name for name in archives("/bucket/other")[0] if damaged.name in name] == []
    again = collect([str(tmp_path / "source")], "memory://bucket/other")
    assert (again.copied, again.completed, again.known) == ([], [], 1)


def test_the_index_and_metrics_are_those_of_a_local_library(made: Path, tmp_path: Path) -> None:
    collect([str(made)], LIBRARY)
    fsspec.filesystem("memory").pipe_file("/bucket/secret.csv", b"a\n1\n")
    with pytest.raises(ResultsError, match="disabled by configuration"):
        metrics(LIBRARY, "SELECT * FROM 'memory://bucket/secret.csv'")
    found, local = index(LIBRARY), index(made, compact=True)
    assert found.problems == []
    assert [each.cells for each in found.summaries] == [each.cells for each in local.summaries]
    [file] = (Cache.of(made).path / "metrics").glob(f"*/{_segment(made)}.parquet")
    text = "SELECT count(*), sum(value) FROM"
    with query.duckdb.connect() as own:  # The connection of the process may have a result that another test left.
        expected = own.sql(f"{text} read_parquet('{file}')").fetchall()
    assert metrics(LIBRARY, f"{text} metrics") == [(expected[0][0], pytest.approx(expected[0][1]))]


def _segment(root: Path) -> str:
    states = {str(path.relative_to(root)): state_of(path) for path in root.glob("*/results")}
    return str(Cache.of(root).current(states)["segment"][0])


def test_a_result_set_that_grew_is_completed_with_its_new_records_only(made: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(made / "host-a/results", source / "set")
    late = sorted((source / "set/records").iterdir())[-1]
    shutil.move(late, tmp_path / "late")
    first = collect([str(source)], LIBRARY)
    runs = metrics(LIBRARY, "SELECT count(DISTINCT run_id) FROM metrics")
    shutil.move(tmp_path / "late", late)
    second = collect([str(source)], LIBRARY)
    assert (second.copied, second.completed) == ([], first.copied)
    *_, newest = archives()
    assert [name for name in newest if "/records/" in name and late.name not in name] == []
    assert metrics(LIBRARY, "SELECT count(DISTINCT run_id) FROM metrics") == [(int(str(runs[0][0])) + 1,)]
    assert [each.complete for each in index(LIBRARY).summaries] == [5]
    collect([LIBRARY], tmp_path / "back")
    [back] = {path.parent for path in (tmp_path / "back").rglob("plan.json")}
    assert len(ResultSet.open(back).records()) == 5
    assert records_below(tmp_path / "back") == records_below(source)


def archives(below: str = "/bucket/lab") -> list[list[str]]:
    """Names in each archive, the largest archive first."""
    found = [data for path, data in contents().items() if path.endswith(".tar") and path.startswith(below)]
    found.sort(key=len, reverse=True)
    return [tarfile.open(fileobj=io.BytesIO(each)).getnames() for each in found]


def test_what_a_killed_process_uploaded_is_found_again(made: Path, objects: dict[str, bytes]) -> None:
    """It uploads archives first, then metrics, and summaries last."""
    collect([str(made)], LIBRARY)
    before = {path: data for path, data in contents().items() if path.endswith(".tar")}
    for path in [path for path in objects if "/summaries/" in path]:
        del objects[path]
    with pytest.raises(ResultsError, match="has no library"):
        index(LIBRARY)
    done = collect([str(made)], LIBRARY)
    assert len(done.copied) == 2
    assert {path: data for path, data in contents().items() if path.endswith(".tar")} == before
    # Metrics of the process that was killed belong to no summary.
    assert metrics(
        LIBRARY, "SELECT count(*) = count(DISTINCT (result_set, run_id, operation, stream, metric)) FROM metrics"
    ) == [(True,)]


def test_what_is_damaged_in_the_library_is_an_error(made: Path, tmp_path: Path) -> None:
    """An archive cannot write outside its directory either."""
    storage, data = fsspec.filesystem("memory"), io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    for content, problem in (
        (data.getvalue(), r"the member `\.\./outside`, which no result set has"),
        (b"damaged", r"cannot unpack `.*/a/b.tar`: file could not be opened successfully"),
    ):
        storage.pipe_file("/bucket/lab/result_sets/a/b.tar", content)
        with pytest.raises(ResultsError, match=problem):
            collect([LIBRARY], tmp_path / "back")
    data = io.BytesIO()
    pl.DataFrame([("a", "[]", "9", "")], schema=SUMMARIES, orient="row").write_parquet(data)
    storage.pipe_file(f"/bucket/lab/{COMPACTED}/summaries/9.parquet", data.getvalue())
    with pytest.raises(ResultsError, match=r"the state of `a` in `.*` is damaged"):
        collect([str(made)], LIBRARY)


BUCKET = "s3://bucket/lab/results"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with moto() as started:
        for name, value in user_of(started).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{started.port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        started.put("bucket")
        yield started


@pytest.mark.system
@MOTO
def test_a_library_on_s3(server: Server, tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        result_set(tmp_path / f"made/set-{number}", small_study(), repeats=1, seconds=1, seed=number)
    done = iosonde("collect", tmp_path / "made", "--output", BUCKET, "--json")
    assert done.returncode == 0, done.stderr
    copied = json.loads(done.stdout)["copied"]
    assert len(copied) == 2
    first = server.buckets["bucket"]
    assert json.loads(iosonde("collect", tmp_path / "made", "--output", BUCKET, "--json").stdout)["known"] == 2
    assert server.buckets["bucket"] == first

    count = "SELECT count(DISTINCT (result_set, run_id)) AS runs, count(DISTINCT study) AS studies FROM metrics"
    assert iosonde("sql", BUCKET, count).stdout == "runs,studies\n10,1\n"
    page = tmp_path / "page.html"
    assert iosonde("library", BUCKET, "--output", page).returncode == 0
    assert all(name in page.read_text() for name in copied)
    [track, *_] = json.loads(iosonde("history", BUCKET, "--json").stdout)["tracks"]
    assert track
    assert "a page about `s3://bucket/lab/results` requires `--output`" in iosonde("library", BUCKET).stderr

    assert iosonde("collect", BUCKET, "--output", tmp_path / "back").returncode == 0
    copies = [ResultSet.open(plan.parent) for plan in (tmp_path / "back").rglob("plan.json")]
    assert [len(copy.records()) for copy in copies] == [5, 5] and not any(copy.problems for copy in copies)

    missing = iosonde("collect", tmp_path / "made", "--output", "s3://nothing/lab")
    assert missing.returncode == 1 and "`s3://nothing/lab`: The specified bucket does not exist" in missing.stderr
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused = iosonde("sql", BUCKET, count)
    assert refused.returncode == 1 and f"cannot read `{BUCKET}`" in refused.stderr
