"""Stop requests while iosonde waits for a server to start or to shut down."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import ServerError
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores.cassandra.server import Cassandra
from iosonde.servers.account import account_for
from iosonde.servers.connection import Connection
from iosonde.servers.directories import Directories
from iosonde.servers.instance import Instance
from iosonde.servers.process import ServerProcess
from iosonde.servers.server import Installation
from iosonde.storage.safety import journal

pytestmark = pytest.mark.system


class Unreachable(Instance):
    """Its process runs and accepts no connections."""

    def connect(self, database: str = "") -> Connection:
        raise ServerError("connection refused")


@pytest.fixture
def stop() -> Iterator[Stop]:
    found = Stop()
    found.set()
    yield found
    found.close()


@pytest.fixture
def instance(tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Its process ignores SIGTERM, as one does that writes for a long time before it ends."""
    monkeypatch.setattr("iosonde.servers.process.ended", lambda *_: None)
    found: Any = Unreachable(
        server=Cassandra(),
        installation=Installation(version="5", build=""),
        directories=Directories(own=tmp_path / "iosonde-c0ffee00", name="cassandra-c0ffee00"),
        settings={},
        account=account_for([]),
        check=stop.check,
    )
    process = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 60"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    found._process = ServerProcess(process, tmp_path, "sleep", None)
    yield found
    found.kill()


def test_a_stop_ends_the_wait_for_a_start(instance: Instance) -> None:
    with pytest.raises(ServerError) as raised:
        instance.wait_until_ready()
    assert raised.value.code == "stopped"


def test_a_stop_ends_the_wait_for_the_shutdown_after_a_load(instance: Instance) -> None:
    started = time.monotonic()
    with pytest.raises(ServerError) as raised:
        instance.stop_after_load()
    assert raised.value.code == "stopped"
    assert time.monotonic() - started < 300


def test_a_shutdown_after_a_run_is_not_ended_by_a_stop(instance: Instance) -> None:
    assert instance.stop(timeout_s=0.2) is False
    assert not instance.is_running


class Interrupting:
    """Control groups that a process is killed in, as by Ctrl-C before it has a session of its own."""

    def add(self, pid: int) -> None:
        os.kill(pid, signal.SIGINT)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_is_killed_before_it_is_the_server_is_an_error(tmp_path: Path) -> None:
    group: Any = Interrupting()
    with pytest.raises(ServerError, match="`true` was ended by another process before it started"):
        ServerProcess.start(
            ["/bin/true"], account=account_for([]), entry=tmp_path, messages=tmp_path / "messages", group=group
        )
    assert journal.find(tmp_path) is None
