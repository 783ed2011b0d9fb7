"""S3 on a server in this file, which checks signatures: buckets of a study, objects of the engine, credentials."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from iosonde.errors import ServerError, StudyError
from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.servers import foreign_database
from iosonde.servers.s3 import OWNER, S3, signed
from iosonde.servers.url import parse as parse_url
from iosonde.storage import journal, open_target
from iosonde.storage.consent import Consent

STUDY = """
name = "objects"
title = "Objects"
question = "?"
workload = "objects"
repeats = 1
shuffle = false
[measurement]
object_store = "s3"
object_size = "2KiB"
objects = 30
jobs = 2
queue_depth = 3
ramp = "0"
duration = "300ms"
interval = "100ms"
delete_after = true
[[parts]]
factors.operation = ["write", "random_read"]
[profiles.standard]
"""
SECRET = "a-secret-of-the-user"


@dataclass
class Server:
    """Buckets in memory."""

    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    page: int = 1000
    """Names in one list."""
    port: int = 0
    late: list[tuple[str, str]] = field(default_factory=list)
    """Objects that appear once their bucket is about to be removed."""

    @property
    def url(self) -> str:
        return f"s3://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        bucket, _, key = path.removeprefix("/").partition("/")
        if method == "PUT" and not key:
            self.buckets.setdefault(bucket, {})
            return 200, b""
        found = self.buckets.get(bucket)
        if found is None or (method == "GET" and key and key not in found):
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        if method == "DELETE" and not key:
            for of, name in [self.late.pop()] if self.late else []:
                self.buckets[of][name] = b""
            if found:
                return 409, b"<Error><Code>BucketNotEmpty</Code></Error>"
            del self.buckets[bucket]
            return 204, b""
        if method == "DELETE":
            found.pop(key, None)
            return 204, b""
        if method == "PUT":
            found[key] = body
            return 200, b""
        if key:
            return 200, found[key]
        names = [name for name in sorted(found) if name.startswith(query.get("prefix", ""))][: self.page]
        listed = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names)
        return 200, f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/">{listed}</ListBucketResult>'.encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            state.requests.append(f"{self.command} {parts.path}")
            moment = datetime.datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
            expected = signed(
                self.command, parts.path, parts.query, host=self.headers["host"], region="us-east-1", now=moment
            )
            status, answer = 403, b""
            if self.headers["authorization"] == expected["authorization"]:
                status, answer = state.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_DELETE = respond  # noqa: N815  # names of the base class

        def log_message(self, format: str, *args: object) -> None:
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.daemon_threads = True
    state.port = served.server_address[1]
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield state
    served.shutdown()
    thread.join()
    served.server_close()


def plan_of(server: Server, place: Path, **settings: str) -> Plan:
    return expand(parse(STUDY, name="s.toml"), open_target(str(place)), settings={"server_url": server.url, **settings})


def bucket_of(plan: Plan) -> str:
    return str(plan.runs[0].spec["workload"]["store"]["bucket"])


@pytest.mark.engine
def test_objects_are_written_read_and_compared_and_the_bucket_is_removed(server: Server, tmp_path: Path) -> None:
    server.buckets["mine"] = {"photo": b"x"}
    plan = plan_of(server, tmp_path)
    execute(plan, tmp_path / "r", consent=Consent(confirm=(bucket_of(plan),)))
    written, read = sorted(ResultSet.open(tmp_path / "r").records(), key=lambda record: record.order)
    for record in (written, read):
        assert record.outcome == "complete", record.failure
    objects = (read.result or {})["objects"]
    assert (objects["loaded"], objects["wrong"], objects["deleted"]) == (30, 0, 30)
    assert objects["checked"] > 0
    assert objects["client"] == "S3 over HTTP/1.1, signature version 4"
    assert server.buckets == {"mine": {"photo": b"x"}}
    kept = "".join(path.read_text() for path in (tmp_path / "r").rglob("*.json"))
    assert SECRET not in kept


@pytest.mark.engine
def test_nothing_is_created_without_consent(server: Server, tmp_path: Path) -> None:
    plan = plan_of(server, tmp_path)
    assert any(bucket_of(plan) in each.what for each in plan.destroys)
    with pytest.raises(ServerError, match="would be created") as error:
        execute(plan, tmp_path / "r")
    assert f"--confirm {bucket_of(plan)}" in error.value.hint
    assert server.requests == []


@pytest.mark.engine
def test_a_bucket_that_iosonde_did_not_create_is_not_changed(server: Server, tmp_path: Path) -> None:
    plan = plan_of(server, tmp_path)
    server.buckets[bucket_of(plan)] = {"iosonde-000000000000": b"mine"}
    execute(plan, tmp_path / "r", consent=Consent(confirm=(bucket_of(plan),)))
    failures = [record.failure for record in ResultSet.open(tmp_path / "r").records()]
    assert [failure and failure.code for failure in failures] == ["foreign_data", "foreign_data"]
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "foreign_data", done.failure
    assert server.buckets == {bucket_of(plan): {"iosonde-000000000000": b"mine"}}
    assert [entry for entry in journal.entries() if bucket_of(plan) in entry.path] == []


@pytest.mark.engine
def test_wrong_credentials_fail_the_run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(server, tmp_path)
    S3().create_database(S3().connect(parse_url(server.url).address()), bucket_of(plan))
    server.buckets[bucket_of(plan)].pop(OWNER)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    assert done.failure and done.failure.code == "authentication"
    assert "AWS_SECRET_ACCESS_KEY" in done.failure.message
    with pytest.raises(ServerError, match="is not set") as error:
        S3().connect(parse_url(server.url).address())
    assert error.value.code == "authentication"


@pytest.mark.engine
@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"bucket": "payroll"}, {"region": "eu"}, {"port": 1}])
def test_a_spec_of_another_server_or_bucket_is_refused(
    change: dict[str, object], server: Server, tmp_path: Path
) -> None:
    plan = plan_of(server, tmp_path)
    name = bucket_of(plan)
    foreign_database.require_consent(plan, [name])
    for run in plan.runs:
        run.spec["workload"]["store"].update(change)
    with pytest.raises(ServerError, match="names another server or database"):
        foreign_database.require_consent(plan, [name, "payroll"])


def test_a_bucket_with_more_objects_than_a_list_has_is_removed(server: Server) -> None:
    server.page = 2
    host = S3()
    connection = host.connect(parse_url(server.url).address())
    host.create_database(connection, "iosonde-12ab34cd")
    server.buckets["iosonde-12ab34cd"] |= {f"iosonde-{number:012}": b"" for number in range(5)}
    host.drop_database(connection, "iosonde-12ab34cd")
    assert server.buckets == {}
    host.drop_database(connection, "iosonde-12ab34cd")
    connection.close()


def test_a_bucket_with_objects_of_others_is_kept(server: Server) -> None:
    host = S3()
    connection = host.connect(parse_url(server.url).address())
    host.create_database(connection, "iosonde-12ab34cd")
    server.buckets["iosonde-12ab34cd"]["photo"] = b"x"
    with pytest.raises(ServerError, match="contains `photo`, which iosonde did not create"):
        host.drop_database(connection, "iosonde-12ab34cd")
    assert server.buckets["iosonde-12ab34cd"].keys() == {"photo", OWNER}
    del server.buckets["iosonde-12ab34cd"]["photo"]
    host.drop_database(connection, "iosonde-12ab34cd")
    assert server.buckets == {}
    connection.close()


def test_a_bucket_without_the_object_of_iosonde_is_kept_and_named(server: Server) -> None:
    server.buckets["iosonde-12ab34cd"] = {"iosonde-000000000001": b""}
    connection = S3().connect(parse_url(server.url).address())
    with pytest.raises(ServerError, match=f"no object `{OWNER}`") as error:
        S3().drop_database(connection, "iosonde-12ab34cd")
    assert error.value.code == "foreign_data"
    assert server.buckets["iosonde-12ab34cd"] == {"iosonde-000000000001": b""}
    connection.close()


def test_an_object_that_is_still_being_written_does_not_keep_the_bucket(server: Server) -> None:
    """A request of an engine that was stopped: the server stores it while the bucket is removed."""
    host = S3()
    connection = host.connect(parse_url(server.url).address())
    host.create_database(connection, "iosonde-12ab34cd")
    server.late = [("iosonde-12ab34cd", "iosonde-000000000007")]
    host.drop_database(connection, "iosonde-12ab34cd")
    assert server.late == [] and server.buckets == {}
    connection.close()


def test_a_signature_is_that_of_another_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and date are those of AWS's examples; the signature was computed with botocore 1.44."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    found = signed(
        "GET",
        f"/bucket/{quote('iosonde-000000000001')}",
        "",
        host="127.0.0.1:9000",
        region="us-east-1",
        now=datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC),
    )
    expected = "de5499f090579f9ad69df9ad71e1b0ddc05de1044b540acf467e6b0a2850fa4a"
    assert found["authorization"].endswith(f"Signature={expected}")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("https://db1:9000", "with encryption is not supported"),
        ("s3://me@db1:9000", "names a user"),
        ("s3://me:secret@db1", "contains a password"),
        ("s3://db1/bucket", "names more than a server"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as raised:
        parse_url(text)
    assert "secret" not in str(raised.value)


def test_http_and_s3_are_the_same_address() -> None:
    assert parse_url("http://db1:9000").text == parse_url("s3://db1:9000").text == "s3://db1:9000"


def test_a_server_that_is_not_there_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    connection = S3().connect(parse_url("s3://127.0.0.1:1").address())
    with pytest.raises(ServerError) as error:
        connection.status("GET", "/bucket")
    assert error.value.code == "connection_refused"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "none is named"),
        ({"server_url": "postgresql://me@db1"}, "not an address of an S3 server"),
        (
            {"server_url": "s3://db1", "stop_osd_after": "100ms", "osds": "2", "replication": "2"},
            "no daemon of a running",
        ),
        ({"server_url": "s3://db1", "object_store": "ceph"}, "`server_url` is for"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(settings: dict[str, str], what: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=what):
        expand(parse(STUDY, name="s.toml"), open_target(str(tmp_path)), settings=settings)
