"""Cassandra as a store on the real server: a run on a node of iosonde's own, and a node as a server of the user.

A start takes about ten seconds of CPU time: one run is carried out, and one node started, for all tests of this file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from servers.conftest import alone, metrics_of, reachable_directory
from strangers import Listening, as_stranger, listening
from study_texts import study_text

from iosonde.errors import ServerError
from iosonde.execution.engine import drive
from iosonde.execution.session import execute
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra import cql
from iosonde.features.key_value_stores.cassandra.server import HEAP, PORT, STORAGE_PORT, Cassandra, RunningCassandra
from iosonde.metrics.metrics import interval_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import SHARED_LOG_DEVICE, Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Instance

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "java", "cassandra", "engine")]

COMMON = """
store = "cassandra"
key_size = 24
value_size = 500
load_batch = 100
jobs = 2
interval = "200ms"
"""
MANAGED = f"""{COMMON}
records = 3000
heap_size = "512MiB"
ramp = "500ms"
duration = "3s"
operations = "read/50:update/40:delete/5:insert/5"
arrival = "poisson"
rate = 400
commitlog_sync = "group"
compaction = "unified"
cassandra = {{ concurrent_writes = 8 }}
"""
FOREIGN = f"""{COMMON}
records = 400
ramp = "0"
duration = "600s"
limit_operations = 400
operations = "read/1:update/1"
cassandra = {{ consistency = "local_one", replication_factor = 1 }}
"""

# A node of iosonde's own ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Result set of a run with the commit log on a target of its own."""
    place, log = reachable_directory(), reachable_directory()
    found = tmp_path_factory.mktemp("cassandra") / "r"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv(cql.PASSWORD, "of-another-server")
        try:
            settings = {"log": "apart", "log_target": str(log)}
            plan = expand(parse(study_text("kv", MANAGED)), open_target(str(place)), settings=settings)
            execute(plan, found)
            assert [path for base in (place, log) for path in base.iterdir()] == []
            assert journal.entries() == []
            yield found
        finally:
            shutil.rmtree(place)
            shutil.rmtree(log)


@pytest.fixture(scope="module")
def measured(output: Path) -> Record:
    return alone(list(ResultSet.open(output).records()))


def test_a_run_is_measured_with_verified_values_and_store_and_server_described(measured: Record) -> None:
    assert measured.outcome == "complete", measured.failure
    assert measured.result and measured.verdict
    store = measured.result["store"]
    assert (store["kind"], store["kept"], store["durability"]) == ("cassandra", True, "power_loss")
    assert store["options"]["compaction"] == "UnifiedCompactionStrategy"
    assert store["options"]["commitlog_sync"] == "group"
    assert store["build"]["library"].startswith("scylla 1.")
    assert sum(check["corrupted"] for check in store["checks"]) == 0
    assert sum(check["values"] for check in store["checks"]) > 0
    assert measured.verdict.evidence["server_cpu_share"] > 0

    server = measured.server
    assert server
    assert server["version"].startswith("Cassandra ")
    assert "on openjdk version" in server["build"]
    assert server["settings"]["concurrent_writes"] == "8"
    assert server["settings"]["commitlog_sync"] == "group"
    assert server["set"]["heap_size"] == 512 << 20
    assert server["loaded_for_this_run"] and server["restored"]["files"] > 20
    assert server["shutdown"]["orderly"]
    assert server["group"]["cpu_ns"] > 0
    assert server["user"] != "root" or os.geteuid() != 0
    assert any(each["kind"] == "log" for each in server["open_files"]), "the commit log is on its own target"
    assert SHARED_LOG_DEVICE in [each.code for each in measured.warnings], "which is on the same file system"


def test_pauses_of_the_garbage_collector_are_a_time_series_with_latency(output: Path, measured: Record) -> None:
    server = measured.server
    assert server and server["statistics_at_end"]["gc_pause_ns"] > 0
    longest = server["longest_gc_pauses"]
    assert [each["end_unix_ns"] for each in longest] == sorted(each["end_unix_ns"] for each in longest)
    assert all(abs(each["end_unix_ns"] / 1e9 - time.time()) < 3600 for each in longest)
    metrics = ("gc_pause_percent", "gc_pauses_per_sec", "safepoint_percent", "completion_latency_ns_mean")
    over_time = interval_metrics(ResultSet.open(output), metrics=metrics)
    known = set(over_time["metric"])
    assert {"gc_pause_percent", "gc_pauses_per_sec", "completion_latency_ns_mean"} <= known
    values = metrics_of(output)
    assert values["server_cpu_ns_per_operation"] > 1000
    shares = over_time.filter(over_time["metric"].is_in(("gc_pause_percent", "safepoint_percent")))["value"].to_list()
    assert all(0 <= value <= 100 for value in (values["gc_pause_percent"], values["safepoint_percent"], *shares))


# A node as a server of the user ---------------------------------------------------------------------------------------

SECRET = "a-secret-of-the-user"
CREATE_ROLE = f"CREATE ROLE bench WITH PASSWORD = '{SECRET}' AND LOGIN = true"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A node as iosonde starts it, with a role for the user; the user's variable has no meaning for it."""
    base = reachable_directory()
    directories = Directories(own=base / "iosonde-01234567", name="cassandra-00000001")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv(cql.PASSWORD, "of-another-server")
        instance = Instance(Cassandra(), directories, {HEAP: 256 << 20, "commitlog_sync": "group"}, None)
        try:
            instance.provision()
            instance.start()
            with closing(instance.connect()) as connection:
                connection.rows(CREATE_ROLE)
            yield instance
        finally:
            instance.remove()
            if journal.find(directories.own):
                journal.remove(directories.own)
            shutil.rmtree(base)


STRANGER_IMPORTS = """\
import encodings.idna, pathlib, socket, ssl
from iosonde.errors import ServerError
from iosonde.features.key_value_stores.cassandra import cql
from iosonde.study.servers.server import Address
"""
STRANGER = """\
host, port, storage_port, password_file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
for user, password in (("", ""), ("cassandra", "cassandra"), ("iosonde", "wrong"), ("iosonde", "")):
    try:
        cql.connect(Address(host=host, port=port, user=user, database="", password=password))
        print("logged in as", user)
    except ServerError as error:
        print(error.code)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for wrap in (lambda plain: plain, context.wrap_socket):
    plain = socket.create_connection((host, storage_port), timeout=60)
    try:
        connection = wrap(plain)
        connection.sendall(bytes.fromhex("ca552dfa00000000"))  # Start of a handshake between nodes, which is incomplete.
        print("answered" if connection.recv(1) else "closed")
    except TimeoutError:
        print("accepted")
    except OSError:
        print("closed")
try:
    print(pathlib.Path(password_file).read_text())
except PermissionError:
    print("unreadable")
"""
REFUSED = ["authentication"] * 4 + ["closed"] * 2 + ["unreadable"]


def text_of(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def test_a_node_listens_only_on_its_loopback_address_and_refuses_strangers(node: Instance) -> None:
    """For clients and for other nodes, and neither for JMX nor on all addresses. No command line has its password."""
    address = node.address()
    assert listening([node.pid]) == {Listening("tcp", address.host, port) for port in (PORT, STORAGE_PORT)}
    assert address.password and len(address.password) >= 32
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if address.password in text_of(path)] == []
    if os.geteuid() == 0:
        arguments = (address.host, str(PORT), str(STORAGE_PORT), str(node.place.data / "password"))
        assert as_stranger(STRANGER_IMPORTS, STRANGER, *arguments).splitlines() == REFUSED


def planned(node: Instance, place: Path, *, factors: str = "") -> Plan:
    place.mkdir()
    url = f"cql://bench@{node.address().host}:{PORT}"
    return expand(parse(study_text("kv", FOREIGN, factors)), open_target(str(place)), settings={"server_url": url})


def database_of(plan: Plan) -> str:
    [name] = {str(run.spec["workload"]["target"]["database"]) for run in plan.runs}
    return name


def carried_out(plan: Plan, output: Path) -> list[Record]:
    records = execute(plan, output, consent=Consent(confirm=(database_of(plan),))).records()
    return sorted(records, key=lambda record: record.order)


def test_a_running_server_is_measured_in_a_keyspace_that_is_created_with_consent_and_dropped(
    node: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password reaches both clients and no file. A mode that the server does not have is a row with its reason."""
    monkeypatch.setenv(cql.PASSWORD, SECRET)
    plan = planned(node, tmp_path / "data", factors='factors.commitlog_sync = ["group", "batch"]')
    with pytest.raises(ServerError, match="would be created on `cql://bench@127"):
        execute(plan, tmp_path / "refused")
    measured, other = carried_out(plan, tmp_path / "r")
    assert measured.outcome == "complete", measured.failure
    store = (measured.result or {})["store"]
    assert (store["kind"], store["options"]["consistency"]) == ("cassandra", "local_one")
    assert sum(check["values"] for check in store["checks"]) > 0
    assert sum(check["corrupted"] + check["missing"] for check in store["checks"]) == 0
    assert other.is_unsupported, other.failure
    assert other.failure and "the server has `group`" in other.failure.message
    contents = b"".join(path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file())
    assert SECRET.encode() not in contents
    assert b"cql://bench@" in contents
    with closing(node.connect()) as connection:
        found = {str(row[0]) for row in connection.rows("SELECT keyspace_name FROM system_schema.keyspaces")}
    assert [each for each in found if not each.startswith("system")] == []


def test_a_keyspace_that_iosonde_did_not_create_is_not_changed(
    node: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the engine, which would drop a table in it, nor by a session that would drop it at its end."""
    monkeypatch.setenv(cql.PASSWORD, SECRET)
    plan = planned(node, tmp_path / "data")
    name = database_of(plan)
    with closing(node.connect()) as connection:
        connection.rows(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
        with pytest.raises(ServerError) as existing:
            RunningCassandra().create_database(connection, name)
        connection.rows(f"DROP KEYSPACE {name}")
    assert done.failure and done.failure.code == existing.value.code == "foreign_data"


def test_a_wrong_password_fails_the_run_and_the_hint_names_the_variable(
    node: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cql.PASSWORD, "wrong")
    plan = planned(node, tmp_path / "data")
    [record] = carried_out(plan, tmp_path / "r")
    done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop())
    for failure in (record.failure, done.failure):
        assert failure and failure.code == "authentication", failure
        assert "CASSANDRA_PASSWORD" in failure.hint


def test_a_node_is_refused_while_others_are_logged_in_or_have_left_a_role(node: Instance) -> None:
    """As after its first start, at which every user of the machine can log in as `cassandra`."""
    superuser = replace(node.address(), user="cassandra")
    with closing(cql.connect(superuser)) as stranger:
        stranger.rows(f"DROP ROLE {node.address().user}")
        stranger.rows("DROP ROLE bench")
        with pytest.raises(ServerError, match="another client has logged in"):
            node.connect()
        stranger.rows(CREATE_ROLE)
    with pytest.raises(ServerError, match="another client has logged in"):
        node.connect()
    with closing(cql.connect(superuser)) as stranger:
        stranger.rows("DROP ROLE bench")
    node.wait_until_ready()
    with closing(node.connect()) as connection:
        assert sorted(connection.rows("SELECT role FROM system_auth.roles")) == [("cassandra",), ("iosonde",)]
        connection.rows(CREATE_ROLE)
