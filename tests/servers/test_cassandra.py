"""Cassandra as a store on the real server: two runs on one template, a kill under load, and a heap that is too small.

A start takes about ten seconds of CPU time, so one study with both runs is carried out for all tests of this file. The
node of its second run is also used as a server of the user (`--server`), and by strangers, before it is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers.conftest import reachable_directory
from servers.test_runs import alone
from strangers import Listening, as_stranger, listening

from iosonde.errors import ServerError
from iosonde.execution import execute
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra import cql
from iosonde.features.key_value_stores.cassandra.server import PORT, STORAGE_PORT, Cassandra, RunningCassandra
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import SHARED_LOG_DEVICE, Record
from iosonde.servers.account import account_for
from iosonde.servers.connection import Address
from iosonde.servers.server import Place
from iosonde.storage import open_target
from iosonde.storage.safety import journal

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "java", "cassandra")]

STUDY = """
name = "wide"
title = "Wide"
question = "?"
workload = "kv"
repeats = 1
shuffle = false

[measurement]
store = "cassandra"
heap_size = "{heap}"
records = 3000
key_size = 24
value_size = 500
load_batch = 500
interval = "200ms"
ramp = "500ms"
operations = "read/50:update/40:delete/5:insert/5"
arrival = "poisson"
rate = 400
commitlog_sync = "group"
compaction = "unified"
cassandra = {{ concurrent_writes = 8 }}

[[parts]]
factors.duration = [{durations}]

[profiles.standard]
"""


FOREIGN = """
name = "running"
title = "Running"
question = "?"
workload = "kv"
repeats = 1
shuffle = false

[measurement]
store = "cassandra"
records = 400
key_size = 24
value_size = 100
load_batch = 100
jobs = 2
interval = "100ms"
ramp = "0"
duration = "60s"
limit_operations = 800
operations = "read/1:update/1"
arrival = "poisson"
rate = 400
cassandra = { consistency = "local_one", replication_factor = 1 }

[[parts]]
factors.commitlog_sync = ["group", "batch"]

[profiles.standard]
"""


def carry_out(
    place: Path, output: Path, *, heap: str, durations: str, settings: dict[str, str] | None = None
) -> list[Record]:
    text = STUDY.format(heap=heap, durations=durations)
    execute(expand(parse(text, name="wide.toml"), open_target(str(place)), settings=settings), output)
    return list(ResultSet.open(output).records())


STRANGER_IMPORTS = """\
import encodings.idna, pathlib, socket, ssl
from iosonde.errors import ServerError
from iosonde.features.key_value_stores.cassandra import cql
from iosonde.servers.connection import Address
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


def own_address(data: Path) -> Address:
    """Address of the node with this data directory, with its password."""
    return Cassandra().address(Place(data=data, log=None, socket=data, account=account_for(())))


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Addresses and answers of the running node, as another user finds them."""

    host: str
    password: str
    listening: set[Listening]
    answers: list[str]
    """Empty without root."""
    command_lines: str
    """All of this machine."""

    @classmethod
    def of(cls, data: Path, process: int) -> Exposure:
        """Try it while an engine applies its load."""
        address = own_address(data)
        arguments = (address.host, str(PORT), str(STORAGE_PORT), str(data / "password"))
        answers = as_stranger(STRANGER_IMPORTS, STRANGER, *arguments) if os.geteuid() == 0 else ""
        return cls(
            host=address.host,
            password=address.password or "",
            listening=listening([process]),
            answers=answers.splitlines(),
            command_lines=command_lines(),
        )


def command_lines() -> str:
    """Command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A study on the running node, as on a server of the user."""

    without_consent: str
    """Output of the command."""
    records: list[Record]
    text: str
    """All files of the result set that are text."""
    refused: str
    """Code of the engine's failure on a keyspace that iosonde did not create."""
    existing: str
    """Code of the error of creating a keyspace that exists."""
    keyspaces: set[str]
    """Afterwards, those of the node itself left out."""


def use_as_running_server(address: Address, base: Path) -> Foreign:
    """Run a study on the node through the command line."""
    study, place, output = base / "running.toml", base / "data", base / "r"
    study.write_text(FOREIGN)
    place.mkdir()
    url = f"cql://{address.user}@{address.host}:{address.port}"
    password = {cql.PASSWORD: address.password or ""}
    plan = expand(parse(FOREIGN, name="running.toml"), open_target(str(place)), settings={"server_url": url})
    [name] = {str(run.spec["workload"]["target"]["database"]) for run in plan.runs}
    command = [sys.executable, "-m", "iosonde", "run", str(study), "--target", str(place), "--server", url]
    environment = {**os.environ, "XDG_STATE_HOME": str(base / "state"), **password}
    refused = subprocess.run(command, env=environment, cwd=base, capture_output=True, text=True, check=False)
    subprocess.run(
        [*command, "-o", output, "--confirm", name], env=environment, cwd=base, capture_output=True, check=True
    )
    result_set = ResultSet.open(output)
    connection = Cassandra().connect(address)
    try:
        connection.rows(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        done = drive(plan.runs[0].spec, on_event=lambda _: None, stop=Stop(), environment=password)
        with pytest.raises(ServerError) as existing:
            RunningCassandra().create_database(connection, name)
        connection.rows(f"DROP KEYSPACE {name}")
        found = {str(row[0]) for row in connection.rows("SELECT keyspace_name FROM system_schema.keyspaces")}
    finally:
        connection.close()
    return Foreign(
        without_consent=refused.stderr,
        records=sorted(result_set.records(), key=lambda record: record.order),
        text="".join(path.read_text() for path in output.rglob("*.json*")),
        refused=done.failure.code if done.failure else "",
        existing=existing.value.code,
        keyspaces={each for each in found if not each.startswith("system")},
    )


@dataclass(frozen=True, kw_only=True)
class Done:
    """A study of two runs, of which the second lost its server."""

    output: Path
    measured: Record
    killed: Record
    leftovers: list[str]
    log_files: list[str]
    """In the directory of the commit log's target, while the server ran."""
    foreign: Foreign
    exposure: Exposure


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    place, log = reachable_directory(), reachable_directory()
    output = tmp_path_factory.mktemp("cassandra") / "r"
    assassin = _Assassin(place, log, output, tmp_path_factory.mktemp("foreign"))
    monkey = pytest.MonkeyPatch()
    monkey.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkey.setenv(cql.PASSWORD, "of-another-server")
    try:
        assassin.start()
        settings = {"log": "apart", "log_target": str(log)}
        measured, killed = carry_out(place, output, heap="512MiB", durations='"3s", "1h"', settings=settings)
        left = [str(path) for base in (place, log) for path in base.iterdir()]
        left += [entry.path for entry in journal.entries() if entry.path.startswith((str(place), str(log)))]
        yield Done(
            output=output,
            measured=measured,
            killed=killed,
            leftovers=left,
            log_files=assassin.log_files,
            foreign=assassin.foreign(),
            exposure=assassin.exposure(),
        )
    finally:
        assassin.end()
        monkey.undo()
        shutil.rmtree(place)
        shutil.rmtree(log)


class _Assassin(threading.Thread):
    """Uses the server of the second run as a server of the user, and kills it, once it has answered requests."""

    def __init__(self, place: Path, log: Path, output: Path, foreign: Path) -> None:
        super().__init__()
        self._place, self._log, self._output, self._base = place, log, output, foreign
        self._used: tuple[Foreign, Exposure] | BaseException | None = None
        self._ended = threading.Event()
        self.log_files: list[str] = []

    def run(self) -> None:
        """The first run has ended once its record exists."""
        while not self._ended.wait(0.1):
            self.log_files = self.log_files or [path.name for path in self._log.rglob("CommitLog-*")]
            if any((self._output / "records").glob("c0001-*")):
                for entry in [each for each in journal.entries() if each.what == "server"]:
                    if entry.path.startswith(str(self._place)) and self._is_under_load(Path(entry.path)):
                        process = int(str(entry.facts["process"]).split()[1])
                        self._use(Path(entry.path), process)
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)

    def _use(self, data: Path, process: int) -> None:
        if self._used is None:
            try:
                exposure = Exposure.of(data, process)
                self._used = use_as_running_server(own_address(data), self._base), exposure
            except BaseException as error:
                self._used = error

    def foreign(self) -> Foreign:
        """Result of the study on the running node."""
        return self._results()[0]

    def exposure(self) -> Exposure:
        """Addresses and answers of the running node, as another user found them."""
        return self._results()[1]

    def _results(self) -> tuple[Foreign, Exposure]:
        self.end()
        if not isinstance(self._used, tuple):
            raise AssertionError("the running node could not be used") from self._used
        return self._used

    def end(self) -> None:
        """Wait for it."""
        self._ended.set()
        self.join()

    def _is_under_load(self, data: Path) -> bool:
        server = Cassandra()
        with suppress(ServerError):
            connection = server.connect(own_address(data))
            try:
                found = server.statistics(connection)
                return found.get("mutation_stage_completed", 0) > 20
            finally:
                connection.close()
        return False


@pytest.mark.needs("engine")
def test_a_run_is_measured_with_verified_values_and_the_store_described(done: Done) -> None:
    record = done.measured
    assert record.outcome == "complete", record.failure
    assert record.result and record.verdict
    store = record.result["store"]
    assert (store["kind"], store["kept"], store["durability"]) == ("cassandra", True, "power_loss")
    assert store["options"]["compaction"] == "UnifiedCompactionStrategy"
    assert store["options"]["commitlog_sync"] == "group"
    assert store["build"]["library"].startswith("scylla 1.")
    assert sum(check["corrupted"] for check in store["checks"]) == 0
    assert sum(check["values"] for check in store["checks"]) > 0
    assert record.verdict.evidence["server_cpu_share"] > 0


@pytest.mark.needs("engine")
def test_the_server_is_described_with_its_settings_and_restored_from_one_load(done: Done) -> None:
    server = done.measured.server
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
    assert done.log_files, "the commit log is on its own target"
    assert SHARED_LOG_DEVICE in [each.code for each in done.measured.warnings], "which is on the same file system"


@pytest.mark.needs("engine")
def test_pauses_of_the_garbage_collector_are_a_time_series_with_latency(done: Done) -> None:
    server = done.measured.server
    assert server
    assert server["statistics_at_end"]["gc_pauses"] >= 1
    assert server["statistics_at_end"]["gc_pause_ns"] > 0
    longest = server["longest_gc_pauses"]
    assert [each["end_unix_ns"] for each in longest] == sorted(each["end_unix_ns"] for each in longest)
    assert all(abs(each["end_unix_ns"] / 1e9 - time.time()) < 3600 for each in longest)
    metrics = ("gc_pause_percent", "gc_pauses_per_sec", "safepoint_percent", "completion_latency_ns_mean")
    over_time = interval_metrics(ResultSet.open(done.output), metrics=metrics)
    known = set(over_time["metric"])
    assert {"gc_pause_percent", "gc_pauses_per_sec", "completion_latency_ns_mean"} <= known
    found = run_metrics(ResultSet.open(done.output))
    whole = found.filter((found["operation"] == "all") & (found["run_id"] == done.measured.run_id))
    values = dict(whole.select("metric", "value").iter_rows())
    assert values["server_cpu_ns_per_operation"] > 1000
    shares = over_time.filter(over_time["metric"].is_in(("gc_pause_percent", "safepoint_percent")))["value"].to_list()
    assert all(0 <= value <= 100 for value in (values["gc_pause_percent"], values["safepoint_percent"], *shares))


@pytest.mark.needs("engine")
def test_a_server_that_is_killed_under_load_fails_its_run_and_nothing_remains(done: Done) -> None:
    record = done.killed
    assert record.outcome == "failed"
    assert record.failure
    assert record.failure.code == "server_vanished", record.failure
    assert done.leftovers == []


@pytest.mark.needs("engine")
def test_a_running_server_is_measured_in_a_keyspace_that_is_created_with_consent_and_dropped(done: Done) -> None:
    assert "would be created on `cql://iosonde@127." in done.foreign.without_consent
    assert "--confirm iosonde_" in done.foreign.without_consent
    measured, _ = done.foreign.records
    assert measured.outcome == "complete", measured.failure
    store = (measured.result or {})["store"]
    assert (store["kind"], store["options"]["consistency"]) == ("cassandra", "local_one")
    assert sum(check["values"] for check in store["checks"]) > 0
    assert sum(check["corrupted"] + check["missing"] for check in store["checks"]) == 0
    assert done.foreign.keyspaces == {"iosonde"}
    assert done.exposure.password not in done.foreign.text


@pytest.mark.needs("engine")
def test_a_node_listens_only_on_its_loopback_address(done: Done) -> None:
    """For clients and for other nodes, and neither for JMX nor on all addresses."""
    host = done.exposure.host
    assert done.exposure.listening == {Listening("tcp", host, PORT), Listening("tcp", host, STORAGE_PORT)}


@pytest.mark.needs("engine", "root")
def test_strangers_are_refused_at_every_port(done: Done) -> None:
    assert done.exposure.answers == REFUSED


@pytest.mark.needs("engine")
def test_the_password_of_a_node_is_in_no_command_line_and_no_result(done: Done) -> None:
    password = done.exposure.password
    assert len(password) >= 32
    assert password not in done.exposure.command_lines
    assert [path for path in done.output.rglob("*") if path.is_file() and password.encode() in path.read_bytes()] == []


@pytest.mark.needs("engine")
def test_a_mode_that_the_running_server_does_not_have_is_a_row_with_its_reason(done: Done) -> None:
    _, other = done.foreign.records
    assert other.is_unsupported, other.failure
    assert other.failure and "the server has `group`" in other.failure.message


@pytest.mark.needs("engine")
def test_a_keyspace_that_iosonde_did_not_create_is_not_changed(done: Done) -> None:
    """Neither by the engine, which would drop a table in it, nor by a session that would drop it at its end."""
    assert done.foreign.refused == "foreign_data"
    assert done.foreign.existing == "foreign_data"


@pytest.mark.needs("engine")
def test_a_heap_that_is_too_small_fails_the_run_with_its_cause(place: Path, tmp_path: Path) -> None:
    record = alone(carry_out(place, tmp_path / "r", heap="16MiB", durations='"3s"'))
    assert record.outcome == "failed"
    assert record.failure
    assert record.failure.code == "out_of_memory"
    assert "Java heap of 16 MiB is too small" in record.failure.context
    assert "raise `heap_size`" in record.failure.hint
    assert list(place.iterdir()) == []
    assert [each for each in journal.entries() if str(place) in each.path] == []
