"""NFS whose server is a host of the study, with counters of its own, in User Mode Linux (`server_host_guest.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from network_conditions import DRIVE_MS, named
from user_mode_linux import run_script

from iosonde.features.network_storage.server_side import ServerFacts
from iosonde.lab.image import Image
from iosonde.results import ResultSet
from iosonde.results.schema import Record


@pytest.fixture(scope="module")
def server_limits(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Result sets of the study `network-path` by the part of the server that is slow."""
    place, packages = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("packages") / "packages"
    run_script("server_host_guest.py", "drive", "cpu", image=machine_image, place=place, packages=packages)
    return place


def record(directory: Path, operation: str) -> Record:
    [found] = [each for each in ResultSet.open(directory).records() if each.levels["operation"] == operation]
    assert found.outcome == "complete", found.failure
    return found


def test_the_time_of_a_drive_is_in_the_counters_of_the_server(server_limits: Path) -> None:
    """Its page cache was dropped before the run, so the drive was read."""
    server = ServerFacts(record(server_limits / "drive", "read"))
    reads, milliseconds = server.grown("disk_reads"), server.grown("disk_read_ms")
    assert reads
    assert milliseconds
    assert milliseconds / reads > 0.9 * DRIVE_MS


def test_threads_without_cpu_are_no_time_of_the_drive(server_limits: Path) -> None:
    server = ServerFacts(record(server_limits / "cpu", "read"))
    assert server.grown("nfsd_read_bytes")
    assert (server.grown("disk_reads") or 0) < 10


@pytest.mark.parametrize(("part", "bottleneck"), [("drive", "server drive"), ("cpu", "server CPU")])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_no_other_part_of_the_server_is_named(server_limits: Path, part: str, bottleneck: str, operation: str) -> None:
    """On a busy machine the load is disturbed, or the client is slow as well: then no part is named."""
    found = record(server_limits / part, operation)
    assert named(found) in {bottleneck, "server", "not separable", "client"}, found.verdict
