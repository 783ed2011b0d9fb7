"""A private Ceph cluster: its configuration, the counters of its daemons, and what is refused."""

from __future__ import annotations

import configparser
import json
import socket
import struct
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from iosonde.errors import ServerError, StudyError
from iosonde.features.object_stores import ceph
from iosonde.features.object_stores.ceph import perf
from iosonde.features.object_stores.servers import layout_of

pytestmark = pytest.mark.unit

LAYOUT = ceph.ClusterLayout(
    osds=2, replication=2, placement_groups=8, osd_bytes=1 << 30, settings={"bluestore_cache_size": 1}
)


def test_the_configuration_is_private_to_one_directory_and_to_loopback(tmp_path: Path) -> None:
    text = ceph.configuration(tmp_path / "data", tmp_path / "s", LAYOUT, fsid="f", port=23300)
    found = configparser.ConfigParser()
    found.read_string(text)
    options = dict(found["global"])
    assert options["mon_host"] == "v2:127.0.0.1:23300"
    assert {options["public_addr"], options["cluster_addr"]} == {"127.0.0.1"}
    assert {options[f"auth_{each}_required"] for each in ("cluster", "service", "client")} == {"cephx"}
    paths = [value for value in options.values() if value.startswith("/")]
    assert len(paths) > 5
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
    assert (options["osd_pool_default_size"], options["bluestore_block_size"]) == ("2", str(1 << 30))
    assert options["bluestore_cache_size"] == "1", "a setting of the study"
    assert dict(found["client"])["admin_socket"] == "", "the engine opens no socket of its own"


def test_each_daemon_on_a_raw_device_has_its_own(tmp_path: Path) -> None:
    layout = replace(LAYOUT, devices=[tmp_path / "osd-0", tmp_path / "osd-1"])
    found = configparser.ConfigParser()
    found.read_string(ceph.configuration(tmp_path / "data", tmp_path / "s", layout, fsid="f", port=23300))
    assert [found[f"osd.{number}"]["bluestore_block_path"] for number in (0, 1)] == list(map(str, layout.devices))
    assert (found["global"]["bluestore_block_create"], found["global"]["bluestore_block_size"]) == ("false", "0")


def test_a_study_may_change_defaults_and_not_what_iosonde_chooses() -> None:
    ceph.check_settings({"osd_memory_target": 1 << 31})
    for name in ("mon_host", "osd_data", "bluestore_block_path", "keyring", "osd_pool_default_size"):
        with pytest.raises(StudyError, match="chosen by iosonde"):
            ceph.check_settings({name: "x"})
    with pytest.raises(StudyError, match="is not a setting of Ceph"):
        ceph.check_settings({"OSD_memory_target": 1})
    with pytest.raises(StudyError, match="names a path"):
        ceph.check_settings({"osd_op_queue": "/tmp"})


@pytest.mark.parametrize(
    "name",
    [
        *("erasure_code_dir", "osd_class_load_list", "mgr_initial_modules", "mon_cluster_log_file", "log_to_syslog"),
        *("log_graylog_host", "crush_location_hook", "heartbeat_file", "bdev_nvme_something", "ms_cluster_type"),
        *("osd_erasure_code_plugins", "admin-socket", "public_addrv", "keyfile", "auth_supported"),
        *("auth_client_required", "cephx_require_version"),
    ],
)
def test_no_setting_names_files_programs_or_hosts(name: str) -> None:
    with pytest.raises(StudyError, match="chosen by iosonde"):
        ceph.check_settings({name: "x"})


@pytest.mark.parametrize(
    "value", ["a\\", "a # b", "a; b", "$pid", "a\rb", "a\nmon_host = x", "[client]", '"a"', "é", "x" * 501]
)
def test_no_value_changes_another_line_of_the_configuration(value: str) -> None:
    """Ceph continues a line that ends with a backslash, so that the next section was part of a value."""
    with pytest.raises(StudyError, match=r"cannot be"):
        ceph.check_settings({"osd_op_queue": value})


@pytest.mark.parametrize("options", ["wal_dir=x", "compression=kNoCompression, db_log_dir=x", "env=x"])
def test_options_of_its_rocksdb_name_no_places(options: str) -> None:
    ceph.check_settings({"bluestore_rocksdb_options": "compression=kNoCompression,max_write_buffer_number=4"})
    with pytest.raises(StudyError, match="names a place"):
        ceph.check_settings({"bluestore_rocksdb_options": options})


def test_a_port_that_is_in_use_is_not_chosen(tmp_path: Path) -> None:
    first = ceph.free_port(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        assert ceph.free_port(tmp_path) != first


def test_clusters_in_different_directories_have_different_ports() -> None:
    """Both ports are free: the monitor binds its port after both were chosen."""
    ports = {ceph.free_port(Path(f"/mnt/{name}/data")) for name in ("disk", "array", "cache")}
    assert len(ports) == 3
    assert all(ceph.FIRST_PORT <= port < ceph.LAST_PORT for port in ports)


def test_counters_of_all_daemons_are_added() -> None:
    one = {
        "osd": {"op_w": 3, "op_w_in_bytes": 300, "op_r": 1},
        "bluefs": {"bytes_written_wal": 10, "bytes_written_sst": 5, "log_bytes": 2},
        "bluestore": {"deferred_write_bytes": 7},
    }
    two = {"osd": {"op_w": 4, "op_w_in_bytes": 400}, "bluefs": {"bytes_written_wal": 20}, "bluestore": {}}
    found = perf.totals([one, two])
    assert (found["osd_client_writes"], found["osd_client_write_bytes"], found["osd_client_reads"]) == (7, 700, 1)
    assert (found["bluestore_wal_bytes"], found["bluestore_db_bytes"]) == (30, 7)
    assert found["bluestore_deferred_bytes"] == 7
    assert perf.totals([]) == {}


def test_a_daemon_is_asked_over_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "osd.0.asok"
    asked = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            opened, _ = listening.accept()
            with opened:
                while not (asked and asked[-1].endswith(b"\0")):
                    asked.append(opened.recv(1000))
                text = json.dumps({"osd": {"op_w": 1}}).encode()
                opened.sendall(struct.pack(">I", len(text)) + text)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            assert perf.ask(path, "perf dump") == {"osd": {"op_w": 1}}
        finally:
            thread.join()
    assert b"".join(asked) == b'{"prefix": "perf dump"}\0'
    with pytest.raises(ServerError, match="does not answer"):
        perf.ask(tmp_path / "none.asok", "perf dump")


def test_missing_programs_are_an_error_that_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.servers.programs.find", lambda name, places=(): None)
    with pytest.raises(ServerError, match="Ceph is not installed") as raised:
        ceph.locate()
    assert raised.value.code == "missing_server"
    assert "ceph-osd" in raised.value.hint


def test_a_missing_client_library_is_an_error_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iosonde.servers.programs.find", lambda name, places=(): str(tmp_path / name))
    monkeypatch.setattr(ceph, "LIBRARY_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(ceph, "find_library", lambda _: None)
    with pytest.raises(ServerError, match="librados, the client library of Ceph, is not installed") as raised:
        ceph.locate()
    assert (raised.value.code, "librados2" in raised.value.hint) == ("missing_library", True)


def test_a_version_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceph, "find_library", lambda _: "librados.so.2")
    printed = "ceph version 14.2.22 (ca74598065096e6fcbd8433c8779a2be0c889351) nautilus (stable)\n"
    monkeypatch.setattr("iosonde.servers.programs.find", lambda name, places=(): str(tmp_path / name))
    monkeypatch.setattr(
        "iosonde.servers.programs.call", lambda command, **_: subprocess.CompletedProcess(command, 0, printed, "")
    )
    with pytest.raises(ServerError, match=r"Ceph 14\.2\.22 is too old: version 15 or newer is required") as raised:
        ceph.locate()
    assert raised.value.code == "wrong_version"


CLUSTER = {"osds": 2, "replication": 2, "placement_groups": 8, "osd_size": 1 << 30, "ceph": {"osd_memory_target": 1}}


def test_the_cluster_of_a_case_is_that_of_its_parameters() -> None:
    found = layout_of({**CLUSTER, "jobs": 3})
    assert (found.osds, found.replication, found.osd_bytes) == (2, 2, 1 << 30)
    assert found.settings == {"osd_memory_target": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"osds": 100_000}, {"osds": 0}, {"replication": 3}, {"placement_groups": 1 << 20}, {"osd_size": 1},
        {"ceph": {"a\nb": 1}}, {"ceph": {"a": [1]}}, {"osds": None},
    ],
)  # fmt: skip
def test_a_received_case_with_values_out_of_range_starts_no_cluster(changes: dict[str, object]) -> None:
    """Result sets are checked by type only, because other versions may have had other bounds."""
    with pytest.raises(ServerError, match="describe no cluster"):
        layout_of({**CLUSTER, **changes})
    with pytest.raises(ServerError, match="describe no cluster"):
        layout_of({"osds": 1})
