"""Setups with network storage: parameters, mount options, rules, journal entries; and unavailable time of an outage."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import StudyError, TargetError
from iosonde.features.network_storage import tcp
from iosonde.features.network_storage.availability import Interval, unavailability
from iosonde.features.network_storage.setup import FabricSetup, NfsSetup
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.features.network_storage.targets import SOURCE
from iosonde.plan import Setup
from iosonde.storage.safety.journal_entry import Entry
from iosonde.storage.setups import file_systems
from iosonde.study.setup import resolve

OWN = "iosonde-0123abcd"
MS = 1_000_000


def setup(**parameters: Any) -> Setup:
    found = resolve(parameters, devices=1)
    assert found
    return found


def test_local_access_creates_nothing_and_nvme_tcp_is_described_with_its_options() -> None:
    assert setup(fabric="none").is_plain
    found = setup(fabric="nvme-tcp", fabric_queues=1, fabric_poll_queues=2, fabric_data_digest=True)
    assert found.text == "one device, over NVMe/TCP, 1 queue, 2 polled, data digest"
    assert found.parameters.items() >= {"fabric": "nvme-tcp", "fabric_queues": 1, "fabric_poll_queues": 2}.items()
    assert setup(fabric="nvme-tcp", file_system="ext4").file_system == "ext4"


def test_options_of_nfs_are_those_of_mount() -> None:
    found = setup(
        file_system="nfs", nfs_connections=4, nfs_rsize="64KiB", nfs_wsize="128KiB", nfs_attribute_cache="3s",
        nfs_writes="sync",
    )  # fmt: skip
    part = found.layer(NfsSetup)
    assert part
    assert part.options == "vers=4.2,proto=tcp,nconnect=4,rsize=65536,wsize=131072,actimeo=3,hard,nosharecache,sync"
    assert found.text == "NFS 4.2, 4 connections, rsize 64 KiB, wsize 128 KiB, attribute cache 3 s, sync, nfs".replace(
        "NFS 4.2", "one device, NFS 4.2"
    )
    assert setup(nfs_rsize="64KiB").file_system == "nfs"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"file_system": "ext4", "nfs_rsize": "64KiB"}, "options of NFS require"),
        ({"file_system": "nfs", "fabric": "nvme-tcp"}, "`fabric` requires one block device"),
        ({"nfs_rsize": "2MiB"}, "multiple of 1 KiB"),
        ({"nfs_attribute_cache": "1500ms"}, "whole seconds"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        setup(**parameters)


def test_an_export_is_a_server_and_a_path() -> None:
    for text in ("server:/export", "10.0.0.2:/", "[fe80::1%eth0]:/a/b", "nas.example.org:/vol-1"):
        assert SOURCE.fullmatch(text) and nfs.is_source(Path(text)) and file_systems.source_of(Path(text)) == text
    for text in ("/export", "server", "server:export", "a b:/x", "server:/x,ro", ":/x"):
        assert not SOURCE.fullmatch(text)
    assert {"secure", "rw", "sync"} <= set(nfs.EXPORT_OPTIONS.split(",")), "it accepts ports of root only"


def test_an_entry_of_something_that_is_gone_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill may come between the entry and the first command."""
    nvme_tcp.undo(Entry(path=str(nvme_tcp.key_of(OWN)), what=nvme_tcp.JOURNALED, made_at="", owner="",
                        facts={"own": OWN, "port": "59999", "mounted": ""}))  # fmt: skip
    threads = tmp_path / "threads"
    monkeypatch.setattr(nfs, "THREADS", threads)
    entry = Entry(path=str(threads), what=nfs.THREADS_CHANGED, made_at="", owner="", facts={"value": "8"})
    for before, after in (("4", "4"), ("0", "8")):
        threads.write_text(before)
        nfs.undo_threads(entry)
        assert threads.read_text() == after


@pytest.mark.parametrize(
    ("log_restricted", "first_port", "problem"),
    [
        ("1", "1024", ""),
        ("0", "1024", "a kernel log that only root can read"),
        ("1", "1023", "other users of this machine may use ports below 1024"),
    ],
)
def test_nvme_tcp_requires_that_other_users_cannot_learn_the_name_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_restricted: str, first_port: str, problem: str
) -> None:
    """The target writes it into the kernel log, and the host sends it to the port of the target."""
    monkeypatch.setattr(nvme_tcp, "require_root", lambda _: None)
    monkeypatch.setattr(nvme_tcp, "MODULES", ())
    for module, name, text in ((nvme_tcp, "LOG_RESTRICTED", log_restricted), (tcp, "UNPRIVILEGED", first_port)):
        (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(module, name, tmp_path / name)
    part = setup(fabric="nvme-tcp").layer(FabricSetup)
    assert part
    with pytest.raises(TargetError, match=problem) if problem else nullcontext():
        nvme_tcp.check_possible(part)


def series(*counts: int, backlogs: dict[int, int] | None = None) -> list[Interval]:
    """Intervals of 100 ms."""
    found = backlogs or {}
    return [Interval(i * 100 * MS, (i + 1) * 100 * MS, count, found.get(i, 0)) for i, count in enumerate(counts)]


def test_unavailable_time_is_the_longest_without_a_completed_io() -> None:
    found = unavailability(series(10, 10, 0, 10, 0, 0, 0, 10, 10))
    assert found
    assert (found.begin_ns, found.end_ns) == (350 * MS, 750 * MS)
    assert found.resolution_ns == 100 * MS
    assert found.caught_up_ns is None
    counts = (10, 0, 0, 0, 10, 10, 0, 0, 10, 0, 0, 0, 10)
    at_the_outage = unavailability(series(*counts), 650 * MS, 750 * MS)
    assert at_the_outage and (at_the_outage.begin_ns, at_the_outage.end_ns) == (550 * MS, 850 * MS)
    assert unavailability(series(10, 0, 0, 10, 10, 10, 10), 450 * MS, 550 * MS) is None, "a gap at another time"
    for without_end in ((10, 10, 10), (10, 0, 0), (0, 0, 10), ()):
        assert unavailability(series(*without_end)) is None


def test_the_backlog_is_worked_off_when_it_is_as_before() -> None:
    backlogs = {0: 1, 2: 10, 3: 20, 4: 30, 5: 12, 6: 1}
    found = unavailability(series(10, 10, 0, 0, 25, 25, 20, 10, backlogs=backlogs))
    assert found
    assert found.backlog_max == 30
    assert found.caught_up_ns == 700 * MS - 450 * MS
    stays = unavailability(series(10, 0, 0, 10, 10, backlogs={2: 20, 3: 30, 4: 25}))
    assert stays and stays.caught_up_ns is None
