"""memcached as a store on the real server: the server by itself, runs with their metrics, and provoked faults."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.conftest import alone, metrics_of
from strangers import listening, refuses_strangers
from study_texts import study_text

from iosonde.errors import ServerError, StudyError
from iosonde.execution.session import execute
from iosonde.features.key_value_stores.memcached import EXTSTORE_BYTES, MIB, Memcached
from iosonde.features.swap_areas.area import active
from iosonde.features.swap_areas.record import SwapReading
from iosonde.metrics.metrics import interval_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import owner_of
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Instance, Settings

pytestmark = [pytest.mark.system, pytest.mark.needs("setpriv", "memcached")]

EXTSTORE: Settings = {
    **{"memory-limit": 16, "threads": 1, "ext_page_size": 8, "ext_wbuf_size": 2}, EXTSTORE_BYTES: 64 << 20,
}  # fmt: skip
MEASUREMENT = """
store = "memcached"
interval = "100ms"
duration = "{duration}"
memcached = {{ threads = 1{settings} }}
"""

FLASH = """
tier = "extstore"
cache_memory = "24MiB"
extstore_size = "128MiB"
records = 20000
value_size = 2000
value_compression_ratio = 1.0
batch = 16
connections = 2
load_rate = 4000
file_system = "ext4"
setup_size = "256MiB"
"""


def run(place: Path, output: Path, measurement: str = "", *, duration: str = "2s", settings: str = "") -> Record:
    text = study_text("kv", MEASUREMENT.format(duration=duration, settings=settings) + measurement)
    execute(expand(parse(text), open_target(str(place))), output)
    return alone(list(ResultSet.open(output).records()))


def instance_in(base: Path, settings: Settings) -> Instance:
    directories = Directories(own=base / "iosonde-01234567", name="memcached-00000003")
    return Instance(Memcached(), directories, settings, None)


@pytest.fixture
def running(place: Path) -> Iterator[Instance]:
    instance = instance_in(place, EXTSTORE)
    try:
        instance.provision()
        instance.start()
        yield instance
    finally:
        instance.remove()


def test_it_runs_unprivileged_on_a_socket_that_others_cannot_use_describes_itself_and_stops_in_order(
    running: Instance, place: Path
) -> None:
    status = Path(f"/proc/{running.pid}/status").read_text()
    uid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
    assert uid == running.account.uid
    sockets = listening([running.pid])
    assert {each.kind for each in sockets} == {"unix"}
    assert os.geteuid() != 0 or refuses_strangers(each.address for each in sockets)
    found = running.describe()
    assert found["version"].startswith("memcached 1.")
    assert found["settings"]["maxbytes"] == str(16 << 20)
    assert found["settings"]["ext_wbuf_size"] == str(2 << 20)
    assert found["io_modes"] == {"data": "buffered"}
    leader = running.pid
    assert running.stop()
    assert owner_of(leader) == ""
    running.remove()
    assert [each.what for each in journal.entries() if each.what == "server"] == []
    assert list(running.directories.run.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": "many"}, "Number of threads"),
        ({"ext_page_size": 8, "ext_treads": 1, EXTSTORE_BYTES: 64 << 20}, "Illegal suboption"),
        ({"port": 11211}, "is chosen by iosonde"),
        ({"EXT-PATH": "x"}, "is chosen by iosonde"),
        ({"no_lru_crawler,ext_path=victim:1g": True}, "is not a name of a setting"),
        ({"hash_algorithm": "murmur3,ext_path=x:1g"}, "comma"),
        ({"hash_algorithm": "/etc/passwd"}, "names a path"),
    ],
)
def test_settings_are_checked_before_anything_is_written(settings: Settings, message: str, place: Path) -> None:
    with pytest.raises(StudyError) as raised:
        instance_in(place, settings)
    assert message in str(raised.value)
    assert list(place.iterdir()) == []


# Runs ------------------------------------------------------------------------------------------------------


@pytest.mark.needs("engine", "root", "loop devices")
def test_gets_of_evicted_records_are_read_from_extstore_on_a_file_system_that_iosonde_mounts(
    disk_place: Path, tmp_path: Path
) -> None:
    """The server passes through directories that only their owner could enter."""
    record = run(
        disk_place, tmp_path / "r", FLASH, settings=", ext_page_size = 8, ext_wbuf_size = 2, ext_item_size = 512"
    )
    assert record.outcome == "complete", record.failure
    assert record.result and record.server
    found = metrics_of(tmp_path / "r")
    assert found["extstore_hit_ratio"] > 0
    assert found["cache_hit_ratio"] == pytest.approx(found["memory_hit_ratio"] + found["extstore_hit_ratio"])
    assert found["extstore_reads_per_sec"] > 0
    assert sum(check["corrupted"] for check in record.result["store"]["checks"]) == 0
    over_time = interval_metrics(ResultSet.open(tmp_path / "r"), metrics=("extstore_reads_per_sec", "cache_hit_ratio"))
    assert {"extstore_reads_per_sec", "cache_hit_ratio"} == set(over_time["metric"])
    assert record.server["io_modes"] == {"data": "buffered"}
    assert record.setup and record.setup["requested"]["file_system"] == "ext4"
    assert record.server["user"] != "root"
    assert list(disk_place.iterdir()) == []


@pytest.mark.needs("engine")
def test_misses_are_counted_alike_by_client_and_server(place: Path, tmp_path: Path) -> None:
    """Memory for a quarter of the records, and no ramp: what the engine counts is the measurement."""
    load = 'cache_memory = "8MiB"\nrecords = 20000\nvalue_size = 1500\nbatch = 8\nlimit_operations = 20000'
    record = run(place, tmp_path / "r", load, duration="600s")
    assert record.outcome == "complete", record.failure
    assert record.result and record.server
    [check] = record.result["store"]["checks"]
    assert check["corrupted"] == 0
    begin, end = record.server["statistics_at_start"], record.server["statistics_at_end"]
    assert record.server["shutdown"]["orderly"]
    assert list(place.iterdir()) == []
    found = metrics_of(tmp_path / "r")
    assert found["server_cpu_ns_per_get"] > 0
    share = check["values"] / (check["values"] + check["missing"])
    assert 0.05 < found["cache_hit_ratio"] < 0.6
    assert found["cache_hit_ratio"] == pytest.approx(share, abs=0.05)
    assert end["get_misses"] > begin["get_misses"]
    assert found["values_missing"] == check["missing"]


@pytest.mark.needs("engine")
def test_records_expire_and_a_limited_load_takes_its_time(place: Path, tmp_path: Path) -> None:
    """memcached's clock ticks once a second."""
    measurement = 'records = 2000\nload_rate = 4000\nttl = "1s"\nramp = "2200ms"\nbatch = 64\nlimit_operations = 6400'
    record = run(place, tmp_path / "r", measurement, duration="600s")
    assert record.outcome == "complete", record.failure
    assert record.server and record.result
    [check] = record.result["store"]["checks"]
    assert check["missing"] >= 6400
    assert check["corrupted"] == 0
    begin, end = (record.server[f"statistics_at_{edge}"] for edge in ("start", "end"))
    assert end["get_hits"] == begin["get_hits"]
    loading = {each["edge"]: each["at_ns"] for each in record.phases if each["phase"] == "layout"}
    assert loading["end"] - loading["begin"] >= 390_000_000


SWAPPED = """
memory_limit = "48MiB"
swap = "target"
page_cluster = 0
cache_memory = "128MiB"
records = 40000
value_size = 2000
value_compression_ratio = 1.0
"""
"""90 MiB of items in 48 MiB of memory."""


@pytest.mark.alone
@pytest.mark.needs("engine", "root", "memory limits")
def test_a_server_with_less_memory_than_its_items_swaps_and_nothing_remains(disk_place: Path, tmp_path: Path) -> None:
    record = run(disk_place, tmp_path / "r", SWAPPED + 'swap_size = "256MiB"', duration="1s")
    assert record.outcome == "complete", record.failure
    swap = record.of(SwapReading)
    assert record.memory and swap and swap.area and record.server and record.result
    assert record.memory["limit_bytes"] == 48 << 20
    assert record.memory["swap_peak_bytes"] > 30 << 20
    assert record.memory["peak_bytes"] <= 49 << 20
    assert swap.area.kind == "file"
    [check] = record.result["store"]["checks"]
    assert (check["missing"], check["corrupted"]) == (0, 0)
    found = metrics_of(tmp_path / "r")
    assert found["cache_hit_ratio"] == 1
    assert found["major_faults_per_get"] > 0.1
    assert found["swap_in_bytes_per_get"] > 0.1 * 4096
    assert found["swap_out_bytes_per_get"] > 0
    assert found["device_read_bytes_per_get"] > 0
    assert found["swap_in_bandwidth"] > 0
    over_time = interval_metrics(ResultSet.open(tmp_path / "r"), metrics=("swap_in_bandwidth", "major_faults_per_get"))
    assert {"swap_in_bandwidth", "major_faults_per_get"} == set(over_time["metric"])
    assert [each for each in active() if str(disk_place) in each.path] == []
    assert list(disk_place.iterdir()) == []


# Faults ----------------------------------------------------------------------------------------------------


def test_an_extstore_without_room_is_an_error_before_the_load_starts(place: Path) -> None:
    """memcached itself reports nothing: it loses values, and counts gets of them as hits."""
    size = (shutil.disk_usage(place).total // MIB + 1024) * MIB
    instance = instance_in(place, {**EXTSTORE, EXTSTORE_BYTES: size})
    try:
        instance.provision()
        instance.start()
        with pytest.raises(ServerError, match="cannot allocate") as raised:
            Memcached().allocate(instance.place, instance.settings)
    finally:
        instance.remove()
    assert raised.value.code == "no_space"
    assert list(instance.directories.run.iterdir()) == []
