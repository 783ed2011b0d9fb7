"""A study on several hosts: processes on this machine, each a session of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Iosonde
from engines import real_engine
from tls_scheduler import configuration, scheduler, variables

from iosonde.errors import IosondeError
from iosonde.execution import execute, resume
from iosonde.execution.carrier import HostOptions
from iosonde.execution.session import cleanup
from iosonde.features.many_hosts import relay
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Plan
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.server_reading import ServerReading
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.study.model import Study

pytestmark = pytest.mark.system

SECOND = 10**9
SLOWLY: dict[str, Any] = {"duration": "12s", "arrival": "constant", "rate": "100"}
"""Long enough to be killed in also after a pause of the machine, and with little CPU time."""
ANY_SKEW = "iosonde.features.many_hosts.merge.SKEW_FAILURE", math.inf
"""Other processes on these CPUs may delay a start; `test_merge_of_hosts.py` has the rule."""


def study(*, duration: str = "1s", repeats: int = 2, **measurement: object) -> Study:
    return Study.model_validate(
        {
            "name": "together",
            "title": "Reads and writes of several hosts",
            "question": "How much do several hosts reach together?",
            "repeats": repeats,
            "measurement": {
                "span": "1MiB", "io_mode": "buffered", "ramp": "0s", "interval": "100ms", "duration": duration,
                **measurement,
            },
            "parts": [{"name": "main", "factors": {"read_fraction": [0.5]}}],
            "profiles": {"quick": {}},
        }
    )  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory as target; nothing of this test may be left on it, in the journal, or running."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(*ANY_SKEW)
    monkeypatch.setenv("IOSONDE_TEST", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield tmp_path
    assert not processes(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []


def processes(place: Path) -> dict[int, str]:
    """Worker, agents and engines that this test started, by process number.

    The server of a live page is none of them: it answers its last browser for some seconds, and then ends.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            mark = f"IOSONDE_TEST={place}".encode()
            if (
                entry.name.isdecimal()
                and int(entry.name) != os.getpid()
                and mark in (entry / "environ").read_bytes().split(b"\0")
            ):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return {pid: command for pid, command in found.items() if "iosonde.live.server" not in command}


def of(place: Path, what: str) -> list[int]:
    """Process numbers of workers (`many_hosts.worker`), agents (`many_hosts.agent`) or engines, in order of start."""
    return sorted(pid for pid, command in processes(place).items() if what in command)


def planned(place: Path, of: Study) -> Plan:
    return expand(of, open_target(str(place / "data")), profile="quick")


def local(count: int) -> HostOptions:
    return HostOptions(hosts=f"local:{count}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """Two runs on three hosts."""
    place = tmp_path_factory.mktemp("hosts")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IOSONDE_ENGINE", str(real_engine()))
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        patched.setattr(*ANY_SKEW)
        (place / "data").mkdir()
        found = execute(planned(place, study()), place / "set", hosts=local(3))
        assert list((place / "data").iterdir()) == [], "every host has removed its files"
        assert list(journal.entries()) == []
    return found


def hosts_of(total: ResultSet) -> list[ResultSet]:
    return [ResultSet.open(total.directory / "hosts" / name) for name in total.plan.hosts]


def test_each_run_has_one_total_and_a_record_of_each_host(finished: ResultSet) -> None:
    assert finished.plan.hosts == ["host0", "host1", "host2"]
    assert [record.outcome for record in finished.records()] == ["complete", "complete"]
    assert not ResultSet.open(finished.directory).problems
    for host in hosts_of(finished):
        assert [record.run_id for record in host.records()] == [record.run_id for record in finished.records()]
        assert not host.problems
        assert str(host), "a report"


def test_a_total_is_the_sum_over_the_same_time(finished: ResultSet) -> None:
    for record in finished.records():
        part = record.of(Hosts)
        assert part and record.result
        assert [share.host for share in part.shares] == finished.plan.hosts
        assert part.coordinator_cpu_share, "it asks each host every 2 s"
        with finished.scan("intervals", [record]) as rows:
            total = rows.collect()
        assert total["count"].sum() == sum(share.count for share in part.shares)
        assert total["bytes"].sum() == sum(share.bytes for share in part.shares)
        with finished.scan("histograms", [record]) as rows:
            assert rows.collect().filter(pl.col("latency") == "completion")["count"].sum() == total["count"].sum()
        assert part.window_ns == record.result["end_ns"] - record.result["begin_ns"]
        if part.window_ns == SECOND:
            own = [host.record(record.run_id) for host in hosts_of(finished)]
            operations = sum(job["operations"] for each in own if each and each.result for job in each.result["jobs"])
            assert operations >= total["count"].sum() - len(own), "what completed in the window"


def test_the_metrics_of_a_total_are_those_of_all_hosts(finished: ResultSet) -> None:
    row = finished.sql("SELECT concurrency, jobs_total FROM runs LIMIT 1").row(0, named=True)
    assert row == {"concurrency": 3, "jobs_total": 3}
    record = finished.records()[0]
    assert {job["host"] for job in (record.result or {})["jobs"]} == set(finished.plan.hosts)


def test_a_report_distinguishes_totals_from_parameters_of_a_host(
    finished: ResultSet, tmp_path: Path, iosonde: Iosonde
) -> None:
    done = iosonde("report", finished.directory, "--output", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text()
    assert "3 at the same time (host0, host1, host2)" in text
    assert "Fairness between hosts" in text


def test_hosts_start_at_the_same_instant(finished: ResultSet) -> None:
    for record in finished.records():
        starts = [(host.record(record.run_id).result or {})["start"] for host in hosts_of(finished)]  # type: ignore[union-attr]
        assert len({start["requested_unix_ns"] for start in starts}) == 1
        assert all(start["started_unix_ns"] >= start["requested_unix_ns"] for start in starts)
        part = record.of(Hosts)
        latest = max(start["started_unix_ns"] + start["last_job_ns"] - start["started_ns"] for start in starts)
        assert part and part.skew_ns == latest - min(start["started_unix_ns"] for start in starts)


def test_hosts_have_files_and_random_numbers_of_their_own(finished: ResultSet) -> None:
    specs = [host.records()[0].spec for host in hosts_of(finished)]
    assert len({spec["seed"] for spec in specs}) == 3
    assert len({spec["workload"]["target"]["path"] for spec in specs}) == 3


def test_no_host_takes_the_io_of_the_others_for_foreign(finished: ResultSet) -> None:
    for host in hosts_of(finished):
        assert "other_io" not in {warning.code for record in host.records() for warning in record.warnings}


@contextlib.contextmanager
def once_measuring(place: Path, what: str, number: signal.Signals) -> Iterator[None]:
    """Send a signal to the second worker, agent or engine once both engines exist."""

    def act() -> None:
        deadline = time.monotonic() + 300
        while len(of(place, "--stop-at-eof")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(of(place, what)[-1], number)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("what", "number", "reason"),
    [
        ("many_hosts.worker", signal.SIGKILL, "`host"),
        ("many_hosts.worker", signal.SIGSTOP, "no answer for"),
        ("many_hosts.agent", signal.SIGSTOP, "its agent does not report any more"),
    ],
)
def test_a_lost_host_fails_the_run_and_ends_the_study(
    place: Path, what: str, number: signal.Signals, reason: str
) -> None:
    with once_measuring(place, what, number), pytest.raises(IosondeError, match=r"host `host\d` was lost"):
        execute(planned(place, study(duration="60s")), place / "set", hosts=local(2))
    assert not processes(place), "the other host has stopped too"
    [record] = ResultSet.open(place / "set").records()
    assert record.failure and record.failure.code == "host_lost"
    assert reason in record.failure.message


def test_a_study_continues_without_a_lost_host_if_it_is_asked_to(place: Path) -> None:
    with once_measuring(place, "many_hosts.agent", signal.SIGKILL):
        found = execute(
            planned(place, study(**SLOWLY)), place / "set", hosts=replace(local(2), continue_without_lost=True)
        )
    lost, complete = found.records()
    assert lost.failure and lost.failure.code == "host_lost"
    part = complete.of(Hosts)
    assert part and len(part.shares) == 1
    [warning] = [each for each in complete.warnings if each.code == "lost_hosts"]
    assert warning.message.startswith("1 of 2 hosts took part: host `host")
    assert str(found), "a report"


def test_a_study_that_lost_a_host_is_resumed(place: Path) -> None:
    with once_measuring(place, "many_hosts.agent", signal.SIGKILL), pytest.raises(IosondeError, match="status -9"):
        execute(planned(place, study(**SLOWLY)), place / "set", hosts=local(2))
    resumed = resume(place / "set", retry_failed=True, hosts=local(2))
    assert [(record.outcome, record.attempt) for record in resumed.records()] == [("complete", 2), ("complete", 1)]
    assert list((place / "data").iterdir()) == [], "also what the lost host had not removed"


@pytest.mark.needs("root", "loop devices")
def test_setups_of_a_killed_host_are_removed_by_cleanup(place: Path) -> None:
    mounted = study(duration="60s", repeats=1, file_system="ext4", setup_size="64MiB")
    with once_measuring(place, "many_hosts.agent", signal.SIGKILL), pytest.raises(IosondeError, match="status -9"):
        execute(planned(place, mounted), place / "set", hosts=local(2))
    assert {"mount", "loop device"} <= {entry.what for entry in journal.entries()}
    cleaned = cleanup(local(2))
    assert {each["host"] for each in cleaned} == {"host0"}, "hosts of one machine have one journal"
    assert not any(each["failed"] for each in cleaned)
    assert list(journal.entries()) == []
    assert list((place / "data").iterdir()) == []


def test_a_run_that_fails_on_one_host_has_failed_and_the_study_continues(place: Path) -> None:
    with once_measuring(place, "--stop-at-eof", signal.SIGKILL):
        found = execute(planned(place, study(**SLOWLY)), place / "set", hosts=local(2))
    failed, complete = found.records()
    assert failed.failure and failed.failure.code == "killed"
    assert failed.failure.message.startswith("on host `host")
    assert complete.outcome == "complete"
    assert sorted(len(host.records()) for host in hosts_of(found)) == [1, 2], "the other one discarded its part"


COMMAND_LINE = [sys.executable, "-m", "iosonde", "run"]
PYTHON = [
    *(sys.executable, "-c"),
    "import sys, iosonde\n"
    "study, _, profile, _, target, _, output, _, hosts = sys.argv[1:]\n"
    "iosonde.run(study, profile=profile, target=target, output=output, hosts=hosts)",
]


@contextlib.contextmanager
def command(place: Path, *options: str, by: list[str] = COMMAND_LINE) -> Iterator[subprocess.Popen[bytes]]:
    """`iosonde run` on two hosts, which both measure for a minute."""
    toml = place / "study.toml"
    toml.write_text(
        'name = "together"\ntitle = "Together"\nquestion = "How much?"\nrepeats = 2\n'
        '[measurement]\nspan = "1MiB"\nio_mode = "buffered"\nramp = "0s"\nduration = "60s"\ninterval = "100ms"\n'
        '[[parts]]\nname = "main"\n[parts.factors]\nread_fraction = [1.0]\n[profiles.quick]\n'
    )
    process = subprocess.Popen(
        [
            *by,
            str(toml),
            "--profile",
            "quick",
            "--target",
            str(place / "data"),
            "--output",
            str(place / "set"),
            "--hosts",
            "local:2",
            *options,
        ],
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 300
        while len(of(place, "--stop-at-eof")) < 2 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def test_ctrl_c_stops_all_hosts(place: Path) -> None:
    with command(place, "--live") as process:
        assert process.stderr
        page = next(line for line in process.stderr if line.startswith(b"Live page:")).decode().split()[-1]
        await_rate(page, process)
        process.send_signal(signal.SIGINT)
        output = process.stderr.read().decode()
        assert process.wait() == 130, output
        assert f"iosonde resume {place / 'set'} --hosts HOSTS" in output
    assert not processes(place)
    assert list((place / "data").iterdir()) == []
    assert ResultSet.open(place / "set").records() == []


def await_rate(page: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the live page shows the rate of both hosts."""
    while process.poll() is None:
        with urllib.request.urlopen(f"{page}state") as answer:
            state = json.load(answer)
        if any(rate > 0 for _, rate, _ in state["points"]):
            return
        time.sleep(0.1)
    pytest.fail("the study ended before the page showed a rate")


def test_ctrl_c_stops_all_hosts_of_a_python_program(place: Path) -> None:
    with command(place, by=PYTHON) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr
        output = process.stderr.read().decode()
        assert process.wait() == 1, output
        assert output.rstrip().endswith("Interrupted"), "a KeyboardInterrupt for the program"
    assert not processes(place)
    assert list((place / "data").iterdir()) == []
    assert ResultSet.open(place / "set").records() == [], "resume continues with all runs"


def test_without_its_coordinator_no_host_continues(place: Path) -> None:
    with command(place) as process:
        process.kill()
        process.wait()
        deadline = time.monotonic() + 300
        while processes(place) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not processes(place)
    assert list((place / "data").iterdir()) == [], "each host has removed its files"


def test_a_host_that_refuses_is_named(place: Path) -> None:
    plan = planned(place, study())
    ResultSet.create(place / "set", plan.model_copy(update={"hosts": ["host0", "host1"]}))
    ResultSet.create(place / "set" / "hosts" / "host1", planned(place, study()))
    with pytest.raises(IosondeError, match=r"on host `host1`: .* must be of the same study"):
        resume(place / "set", hosts=local(2))
    with pytest.raises(IosondeError, match="started on host0, host1; got host0, host1, host2"):
        resume(place / "set", hosts=local(3))
    with pytest.raises(IosondeError, match="several hosts: host0, host1"):
        resume(place / "set")


def test_a_running_scheduler_is_used(place: Path) -> None:
    settings = configuration(place / "certificates")
    with scheduler(settings, place) as cluster:
        worker = [sys.executable, "-m", "iosonde.features.many_hosts.worker", cluster.scheduler_address]
        workers = [
            subprocess.Popen([*worker, name, "--role", role], env={**os.environ, **variables(settings)})
            for name, role in (("north", "client"), ("south", "client"), ("nas", "server"))
        ]
        try:
            while len(cluster.scheduler_info["workers"]) < 3:
                assert all(process.poll() is None for process in workers)
                time.sleep(0.05)
            found = execute(
                planned(place, study(duration="5s", repeats=1)),
                place / "set",
                hosts=HostOptions(hosts=cluster.scheduler_address),
            )
            assert found.plan.hosts == ["north", "south"]
            [record] = found.records()
            assert record.outcome == "complete"
            reading = record.of(ServerReading)
            assert reading and [server.host for server in reading.servers] == ["nas"]
            assert 0 < (reading.servers[0].grown("time_ns") or 0) <= 5 * SECOND, "within the measurement"
            assert reading.servers[0].grown("cpu_ns"), "two hosts measured on this machine"
            assert not of(place, "many_hosts.agent"), "the agents have ended, the workers have not"
            assert len(of(place, "many_hosts.worker")) == 3
        finally:
            for process in workers:
                process.terminate()
                process.wait()


def test_an_agent_hangs_only_if_it_had_time_to_import_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Python needs longer for that than an agent may be silent afterwards."""
    monkeypatch.setattr(relay, "SILENT_S", 0.0)

    async def first_answers() -> list[dict[str, object]]:
        agent = await relay.Agent.start(60.0)
        answers = await agent.receive(0.01)
        await agent.end()
        return answers

    assert asyncio.run(first_answers()) == []


def test_an_agent_without_a_coordinator_ends(place: Path) -> None:
    """A scheduler of the user outlives a coordinator that was killed, and a worker may hang."""

    async def abandoned() -> bool:
        agent = await relay.Agent.start(0.1)
        await agent.ended()
        return agent.is_running

    assert not asyncio.run(abandoned())
