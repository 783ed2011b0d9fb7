"""S3 on moto, a model of S3 for tests that checks signatures: buckets, objects of the engine, credentials, faults."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from observers import AtFirstInterval
from s3_server import MOTO, PAGE, Server, moto, user_of
from study_texts import study_text

from iosonde.errors import ServerError, StudyError, TargetError
from iosonde.execution.engine import drive
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.execution.stop import Stop
from iosonde.features.object_stores.s3 import OWNER, S3
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.study.servers import foreign
from iosonde.study.servers.foreign import parse as parse_url

STUDY = study_text(
    "objects",
    """
object_store = "s3"
object_size = "2KiB"
objects = 30
jobs = 2
queue_depth = 3
ramp = "0"
duration = "2s"
interval = "100ms"
delete_after = true
""",
    'factors.operation = ["write", "sequential_read", "random_read"]',
)

pytestmark = [pytest.mark.engine, MOTO]


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Server, dict[str, str]]]:
    with moto() as server:
        yield server, user_of(server)


@pytest.fixture
def server(started: tuple[Server, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Server:
    """Without buckets, and with credentials in the environment."""
    found, credentials = started
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    found.empty()
    return found


def plan_of(server: Server, place: Path, **settings: str) -> Plan:
    return expand(parse(STUDY, name="s.toml"), open_target(str(place)), settings={"server_url": server.url, **settings})


def bucket_of(plan: Plan) -> str:
    return str(plan.runs[0].spec["workload"]["store"]["bucket"])


def carried_out(plan: Plan, output: Path, observer: Observer | None = None) -> list[Record]:
    consent = Consent(confirm=(bucket_of(plan),))
    return list(execute(plan, output, consent=consent, observer=observer or Observer()).records())


def test_objects_are_written_read_and_compared_and_the_bucket_is_removed(server: Server, tmp_path: Path) -> None:
    """The operations are the requests that the server logs."""
    server.put("mine")
    server.put("mine", "photo")
    plan, before = plan_of(server, tmp_path), len(server.log.read_text())
    found = carried_out(plan, tmp_path / "r")
    operations = {"PUT": 0, "GET": 0}
    for record in found:
        assert record.outcome == "complete", record.failure
        facts, is_read = (record.result or {})["objects"], "read" in record.case_id
        assert (facts["loaded"], facts["wrong"]) == (30 if is_read else 0, 0)
        assert facts["deleted"] == 30 if is_read else 0 < facts["deleted"] <= 30
        assert facts["client"] == "S3 over HTTP/1.1, signature version 4"
        assert (facts["checked"] > 0) is is_read
        completed = sum(job["operations"] for job in (record.result or {})["jobs"])
        assert completed > 0
        operations["GET" if is_read else "PUT"] += completed
        operations["PUT"] += facts["loaded"]
    assert server.buckets == {"mine": {"photo"}}
    log = server.log.read_text()[before:]
    for method, count in operations.items():
        requests = len(re.findall(rf'{method} /{bucket_of(plan)}/iosonde-.*" 200', log))
        assert count <= requests <= count + 2 * 2 * 3, "those in flight at the end are not counted"
    whole = run_metrics(ResultSet.open(tmp_path / "r")).filter(pl.col("operation") == "all")
    rows = whole.pivot("metric", index="run_id", values="value")
    for values in rows.iter_rows(named=True):
        assert values["bandwidth"] == pytest.approx(2048 * values["ops_per_sec"])
        assert values["completion_latency_ns_mean"] > 10_000
        assert values["objects_wrong"] == 0
    kept = "".join(path.read_text() for path in (tmp_path / "r").rglob("*.json"))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in kept


def test_an_object_that_another_client_changes_is_wrong(server: Server, tmp_path: Path) -> None:
    plan = plan_of(server, tmp_path, operation="random_read", objects="3", duration="3s")

    def change() -> None:
        server.put(bucket_of(plan), "iosonde-000000000001", b"y" * 2048)

    [record] = carried_out(plan, tmp_path / "r", AtFirstInterval(change))
    assert (record.result or {})["objects"]["wrong"] > 0
    assert "wrong_objects" in [warning.code for warning in record.warnings]


def test_a_server_that_is_killed_fails_the_run_and_its_bucket_stays_in_the_journal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`server` has the credentials; another server without users takes part, whose successor knows no bucket."""
    monkeypatch.setattr(foreign, "RESTART_S", 0.1)
    with moto(users=False) as killed:
        plan = plan_of(killed, tmp_path, operation="write", duration="60s")
        with pytest.raises(TargetError, match=f"cannot drop the bucket `{bucket_of(plan)}`") as error:
            carried_out(plan, tmp_path / "r", AtFirstInterval(killed.process.kill))
    assert "iosonde cleanup" in str(error.value.hint)
    [record] = ResultSet.open(tmp_path / "r").records()
    assert record.failure and record.failure.code in ("server_vanished", "connection_refused"), record.failure
    [entry] = journal.entries()
    assert entry.facts["database"] == bucket_of(plan)
    with moto(port=killed.port, users=False):
        journal.undo(Path(entry.path))
    assert journal.entries() == []


def test_nothing_is_created_without_consent_or_credentials(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(server, tmp_path)
    assert any(bucket_of(plan) in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created"):
        execute(plan, tmp_path / "r")
    assert server.buckets == {}
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "authentication"
    assert "AWS_SECRET_ACCESS_KEY" in done.failure.message


def test_a_bucket_that_iosonde_did_not_create_is_not_changed(server: Server, tmp_path: Path) -> None:
    plan = plan_of(server, tmp_path, operation="write")
    server.put(bucket_of(plan))
    server.put(bucket_of(plan), "iosonde-000000000000", b"mine")
    [record] = carried_out(plan, tmp_path / "r")
    assert record.failure and record.failure.code == "foreign_data"
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "foreign_data", done.failure
    assert server.buckets == {bucket_of(plan): {"iosonde-000000000000"}}
    assert [entry for entry in journal.entries() if bucket_of(plan) in entry.path] == []


def test_wrong_credentials_fail_the_run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(server, tmp_path, operation="write")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        [record] = carried_out(plan, tmp_path / "r")
        done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert record.failure and record.failure.code == "authentication", record.failure
    assert done.failure and done.failure.code == "authentication", done.failure
    assert "denied access (403)" in done.failure.message
    assert server.buckets == {}
    assert journal.entries() == []


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"bucket": "payroll"}, {"region": "eu"}, {"port": 1}])
def test_a_spec_of_another_server_or_bucket_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    settings = {"server_url": "s3://127.0.0.1:9000"}
    plan = expand(parse(STUDY, name="s.toml"), open_target(str(tmp_path)), settings=settings)
    name = bucket_of(plan)
    foreign.require_consent(plan, [name])
    for run in plan.runs:
        run.spec["workload"]["store"].update(change)
    with pytest.raises(ServerError, match="names a server or database that does not belong"):
        foreign.require_consent(plan, [name, "payroll"])


def test_a_bucket_with_more_objects_than_a_list_has_is_removed(server: Server) -> None:
    """A server of another region than the default one accepts only buckets that name it."""
    host = S3(region="eu-west-1")
    connection = host.connect(parse_url(server.url).address())
    host.create_database(connection, "iosonde-12ab34cd")
    assert server.buckets == {"iosonde-12ab34cd": {OWNER}}
    for number in range(2 * PAGE):
        server.put("iosonde-12ab34cd", f"iosonde-{number:012}")
    host.drop_database(connection, "iosonde-12ab34cd")
    assert server.buckets == {}
    host.drop_database(connection, "iosonde-12ab34cd")
    connection.close()


def test_a_bucket_with_objects_of_others_or_without_that_of_iosonde_is_kept_and_named(server: Server) -> None:
    host, connection = S3(), server.connect()
    host.create_database(connection, "iosonde-12ab34cd")
    server.put("iosonde-12ab34ce")
    server.put("iosonde-12ab34ce", "iosonde-000000000001")
    with pytest.raises(ServerError, match=f"no object `{OWNER}`") as error:
        host.drop_database(connection, "iosonde-12ab34ce")
    assert error.value.code == "foreign_data"
    assert server.buckets["iosonde-12ab34ce"] == {"iosonde-000000000001"}
    server.put("iosonde-12ab34cd", "photo")
    with pytest.raises(ServerError, match="contains `photo`, which iosonde did not create"):
        host.drop_database(connection, "iosonde-12ab34cd")
    assert server.buckets["iosonde-12ab34cd"] == {"photo", OWNER}
    connection.require("DELETE", "/iosonde-12ab34cd/photo", allowed=(204,))
    host.drop_database(connection, "iosonde-12ab34cd")
    assert list(server.buckets) == ["iosonde-12ab34ce"]
    connection.close()


def test_an_object_that_is_still_being_written_does_not_keep_the_bucket(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of an engine that was stopped: the server stores it while the bucket is removed."""
    host, connection = S3(), server.connect()
    host.create_database(connection, "iosonde-12ab34cd")
    late, status = ["iosonde-000000000007"], connection.status

    def after_a_late_object(method: str, path: str, **options: dict[str, str] | None) -> int:
        if method == "DELETE" and late:
            server.put("iosonde-12ab34cd", late.pop())
        return status(method, path, **options)

    monkeypatch.setattr(connection, "status", after_a_late_object)
    host.drop_database(connection, "iosonde-12ab34cd")
    assert late == [] and server.buckets == {}
    connection.close()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "none is named"),
        ({"server_url": "postgresql://me@db1"}, "not an address of an S3 server"),
        ({"server_url": "s3://db1", "stop_osd_after": "1s", "osds": "2", "replication": "2"}, "no daemon of a running"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(settings: dict[str, str], what: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=what):
        expand(parse(STUDY, name="s.toml"), open_target(str(tmp_path)), settings=settings)
