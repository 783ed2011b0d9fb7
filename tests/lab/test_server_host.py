"""Studies on two hosts in User Mode Linux (`server_host_guest.py`): an NFS server with counters of its own, and clocks."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CHECKOUT
from network_conditions import DRIVE_MS, named

from iosonde.features.many_hosts.record import Hosts
from iosonde.features.network_storage.facts import ServerFacts
from iosonde.results import ResultSet
from iosonde.results.schema import Record

MANY_HOSTS = CHECKOUT / "tests/features/many_hosts"
SECOND = 10**9
OFFSET_NS, DRIFT_PPM = 7 * SECOND, 100
LEAST_ROUND_TRIP_NS = 12_000_000


@pytest.fixture(scope="module")
def epoch_ns() -> int:
    """Time from which on the clock of one host drifts."""
    return time.time_ns()


@pytest.fixture(scope="module")
def server_limits(
    user_mode_linux: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory, epoch_ns: int
) -> Path:
    """Result sets of `network-path` by the part of the server that is slow, and of a study on two clocks."""
    library, source = tmp_path_factory.mktemp("library") / "shifted.so", MANY_HOSTS / "shifted_clock.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return user_mode_linux("server_host_guest.py", str(library), str(OFFSET_NS), str(DRIFT_PPM), str(epoch_ns))


def record(directory: Path, operation: str) -> Record:
    [found] = [each for each in ResultSet.open(directory).records() if each.levels["operation"] == operation]
    assert found.outcome == "complete", found.failure
    return found


def test_the_time_of_a_drive_is_in_the_counters_of_the_server_and_that_of_threads_without_cpu_is_not(
    server_limits: Path,
) -> None:
    """The page cache of the server was dropped before the run, so the drive was read."""
    drive, cpu = (ServerFacts(record(server_limits / limit, "read")) for limit in ("drive", "cpu"))
    reads, milliseconds = drive.grown("disk_reads"), drive.grown("disk_read_ms")
    assert reads and milliseconds
    assert milliseconds / reads > 0.9 * DRIVE_MS
    assert cpu.grown("nfsd_read_bytes")
    assert (cpu.grown("disk_reads") or 0) < 10


@pytest.mark.parametrize(("part", "bottleneck"), [("drive", "server drive"), ("cpu", "server CPU")])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_no_other_part_of_the_server_is_named(server_limits: Path, part: str, bottleneck: str, operation: str) -> None:
    """On a busy machine the load is disturbed, or the client is slow as well: then no part is named."""
    found = record(server_limits / part, operation)
    assert named(found) in {bottleneck, "server", "not separable", "client"}, found.verdict


def test_offset_and_drift_are_within_their_errors(server_limits: Path, epoch_ns: int) -> None:
    """Delays of both directions differ by a factor of ten, so half the round trip is no estimate of either."""
    total = ResultSet.open(server_limits / "clocks")
    assert len(total.records()) == 2
    for record in total.records():
        part = record.of(Hosts)
        assert part and record.outcome == "complete", record.failure
        near, far = (next(share for share in part.shares if share.host == name) for name in ("near", "far"))
        starts = {}
        for name in ("near", "far"):
            own = ResultSet.open(total.directory / "hosts" / name).record(record.run_id)
            assert own and own.result
            starts[name] = own.result["start"]
        at_ns = starts["far"]["requested_unix_ns"] - far.clock_offset_ns
        true_ns = OFFSET_NS + (at_ns - epoch_ns) * DRIFT_PPM / 1e6
        assert near.clock_offset_ns == near.clock_bound_ns == 0, "the coordinator runs on it"
        assert abs(far.clock_offset_ns - true_ns) <= far.clock_bound_ns
        assert LEAST_ROUND_TRIP_NS / 2 < far.clock_bound_ns < SECOND
        assert far.clock_drift_ppm is not None and far.clock_drift_bound_ppm is not None
        assert abs(far.clock_drift_ppm - DRIFT_PPM) <= far.clock_drift_bound_ppm
        true_skew_ns = abs(starts["far"]["started_unix_ns"] - true_ns - starts["near"]["started_unix_ns"])
        assert true_skew_ns <= part.skew_ns + part.skew_bound_ns
