"""Verdicts on iSCSI and FUSE under injected bottlenecks, in User Mode Linux (`transports_guest.py`).

With those of NFS (`test_network_storage.py`) and NVMe/TCP (`test_nvme_tcp.py`) they are the table in docs/network.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from network_conditions import DISTURBED, TRANSPORTS, named
from user_mode_linux import run_script

from iosonde.features.network_storage.record import NetworkReading
from iosonde.lab.image import Image
from iosonde.results import ResultSet
from iosonde.results.schema import Record


@pytest.fixture(scope="module")
def transports(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Result sets of the runs under each condition."""
    place, packages = tmp_path_factory.mktemp("transports"), tmp_path_factory.mktemp("packages") / "packages"
    run_script("transports_guest.py", *TRANSPORTS, image=machine_image, place=place, packages=packages)
    return place


def record(directory: Path, condition: str) -> Record:
    [found] = ResultSet.open(directory / condition.replace(" ", "-")).records()
    assert found.outcome == "complete", found.failure
    return found


@pytest.mark.parametrize("condition", TRANSPORTS)
def test_the_injected_bottleneck_is_named(transports: Path, condition: str) -> None:
    """A machine so busy that the engine lacked CPU may have no part named, or the client; never another one."""
    found, expected = record(transports, condition), TRANSPORTS[condition].bottleneck
    disturbed = DISTURBED & {each.code for each in found.warnings}
    accepted = {expected, "not separable", "client"} if disturbed else {expected}
    assert named(found) in accepted, found.verdict


@pytest.mark.parametrize(
    ("transport", "server"),
    [("bindfs", (None, None)), ("sshfs", ("10.77.0.2", 2022)), ("iscsi", ("10.77.0.2", 3260))],
)
def test_the_server_of_a_transport_is_described(
    transports: Path, transport: str, server: tuple[str | None, int | None]
) -> None:
    """A passthrough has none, so no verdict on it names a network."""
    part = record(transports, f"{transport} client").of(NetworkReading)
    assert part
    assert part.transport["transport"] == ("iscsi" if transport == "iscsi" else "fuse")
    assert (part.transport.get("server"), part.transport.get("port")) == server
    assert part.transport.get("daemon") == (None if transport == "iscsi" else transport)
