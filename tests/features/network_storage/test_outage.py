"""The instrument that stops a server during a run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iosonde.errors import TargetError
from iosonde.execution.instruments.order import INSTRUMENTS
from iosonde.features.network_storage import path, transport
from iosonde.features.network_storage.availability import Interval
from iosonde.features.network_storage.link import Link
from iosonde.features.network_storage.outage import Outage
from iosonde.features.network_storage.planning import REQUIREMENTS
from iosonde.features.network_storage.record import OutageReading
from iosonde.features.network_storage.targets import ServerExport
from iosonde.storage.safety import journal
from iosonde.study.setup import resolve


class Server:
    def __init__(self, *, refuses: bool = False) -> None:
        self.calls: list[str] = []
        self.refuses = refuses

    def stop_server(self) -> None:
        if self.refuses:
            raise OSError(16, "Device or resource busy")
        self.calls.append("stop")

    def start_server(self) -> None:
        self.calls.append("start")


def outage_of(server: Server, **parameters: str) -> Outage:
    outage = Outage(cast("Any", SimpleNamespace(parameters={"outage": "watch", **parameters})))
    outage._stoppable = server
    return outage


def interval(phase: str) -> Any:
    done = {"operation": "write", "count": 4}
    return {"event": "interval", "phase": phase, "begin_ns": 0, "end_ns": 100_000_000,
            "streams": [{"backlog_max": 0, "operations": [done]}]}  # fmt: skip


def test_the_outage_begins_after_the_first_interval_of_the_measurement_and_ends() -> None:
    """The engine reports no start of the measurement, only its intervals."""
    assert Outage in INSTRUMENTS
    server = Server()
    outage = outage_of(server, outage_after="100ms", outage_length="10ms")
    outage.event(interval("ramp"))
    assert outage._thread is None
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert server.calls == ["stop", "start"]
    assert outage._times[1] - outage._times[0] >= 10_000_000


def test_an_outage_that_is_not_reached_or_that_the_server_refuses_is_a_warning() -> None:
    server = Server()
    outage = outage_of(server, outage_after="1h")
    outage.event(interval("measure"))
    outage.close()
    assert ([each.code for each in outage._warnings()], server.calls) == (["outage_failed"], [])
    server = Server(refuses=True)
    outage = outage_of(server, outage_after="0", outage_length="10ms")
    outage.event(interval("measure"))
    assert outage._thread
    outage._thread.join()
    assert (outage._times, server.calls) == ([], []), "what another one has stopped stays as it is"
    [warning] = outage._warnings()
    assert "Device or resource busy" in warning.message


@pytest.mark.engine
def test_a_route_that_the_kernel_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ip").write_text('#!/bin/sh\ncase "$*" in *add*) echo refused >&2; exit 2;; esac\n')
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TargetError, match="refused"):
        Link("192.0.2.1", "iosonde-0123abcd").stop_server()
    assert journal.entries() == []


@pytest.mark.parametrize(
    ("end_ns", "warnings"),
    [(4_000_000_000, []), (3_000_000_000, ["outage_failed"]), (2_000_000_000, ["outage_failed"])],
)
def test_an_outage_that_ends_after_the_measurement_states_no_unavailable_time(end_ns: int, warnings: list[str]) -> None:
    """The outage is from 1 to 3 s; the engine verifies data after the measurement, so it may still run then.

    The same if no I/O completes between both: then the unavailable time has no end.
    """
    outage = outage_of(Server(), outage="server", outage_length="2s")
    outage._times = [1_000_000_000, 3_000_000_000]
    done = (4, 4, 0, 0, 0, 0, 4, 4)[: end_ns // 500_000_000]
    for place, count in enumerate(done):
        outage._intervals.append(Interval(place * 500_000_000, (place + 1) * 500_000_000, count, 0))
    reading = outage.stop(cast("Any", SimpleNamespace(hello={"realtime_ns": 0})))
    [part] = reading.parts
    assert isinstance(part, OutageReading)
    assert (part.unavailable_ns is None) is bool(warnings)
    assert [each.code for each in reading.warnings] == warnings


@pytest.mark.parametrize(
    ("outage", "setup", "server", "error"),
    [
        ("server", {"fabric": "nvme-tcp"}, "", ""),
        ("server", {}, "", "has no server that iosonde could stop"),
        ("server", {}, "10.0.0.2", "is not one of iosonde"),
        ("link", {}, "10.0.0.2", ""),
        ("link", {}, "", "has no server on another machine"),
        ("link", {"fabric": "nvme-tcp"}, "10.0.0.2", "has no server on another machine"),
        ("watch", {}, "", ""),
    ],
)
def test_an_outage_requires_a_server_that_can_be_reached_or_stopped(
    monkeypatch: pytest.MonkeyPatch, outage: str, setup: dict[str, Any], server: str, error: str
) -> None:
    """The device of a server that the user has connected has the outage `link`."""
    monkeypatch.setattr(transport, "of_device", lambda name: {"server": server} if server else {})
    monkeypatch.setattr(path, "describe", lambda address: {"server_is_local": False})
    place: Any = SimpleNamespace(name="/dev/nvme1n1", describe=lambda: {"devices": [{"name": "nvme1n1"}]})
    case: Any = SimpleNamespace(parameters={"outage": outage}, setup=resolve(setup, devices=1))
    [check] = REQUIREMENTS
    if not error:
        assert [each.path for each in check(case, place)] == ([server] if outage == "link" else [])
        return
    with pytest.raises(TargetError, match=error) as raised:
        list(check(case, place))
    assert raised.value.hint
    assert (outage == "server" and bool(server)) is ("outage=link" in raised.value.hint)


@pytest.mark.parametrize(
    ("client", "warning"),
    [
        ("", ""),
        ("10.0.0.20 50000 10.0.0.1 22", ""),
        ("10.0.0.2 50000 10.0.0.1 22", "; your SSH session comes from it and will hang for 10 s"),
    ],
)
def test_the_plan_states_that_all_connections_to_the_server_stop(
    monkeypatch: pytest.MonkeyPatch, client: str, warning: str
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", client)
    monkeypatch.setattr(transport, "of_device", lambda name: {"server": "10.0.0.2"})
    monkeypatch.setattr(path, "describe", lambda address: {"server_is_local": False})
    export = ServerExport(name="nfs:10.0.0.2:/", source=Path("10.0.0.2:/"), own="iosonde-0123abcd", device_bytes=0)
    place: Any = SimpleNamespace(name="/dev/nvme1n1", describe=lambda: {"devices": [{"name": "nvme1n1"}]})
    sources = {"nas:/export/a:/b": "nas", "[fd00::2]:/": "fd00::2"}
    assert [replace(export, source=Path(each)).server for each in sources] == list(sources.values())
    case: Any = SimpleNamespace(parameters={"outage": "link", "outage_length": "10s"}, setup=None)
    [check] = REQUIREMENTS
    for place.provider in (None, export):
        [cut] = check(case, place)
        assert (cut.path, cut.what) == (
            "10.0.0.2",
            "unreachable from this machine for 10 s in each run with this outage (blackhole route): all connections to "
            f"it stop, your own mounts and SSH sessions included{warning}",
        )


@pytest.mark.engine
def test_the_ssh_session_is_known_after_sudo_removed_its_variable() -> None:
    code = "from iosonde.features.network_storage.link import is_ssh_client as found\n"
    code += "print(found('192.0.2.7'), found('192.0.2.70'))"
    script = 'env -u SSH_CONNECTION "$0" -c "$1"; exit $?'  # Something follows, so the shell stays the parent.
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22"}
    words = ["sh", "-c", script, sys.executable, code]
    shown = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "True False\n"
