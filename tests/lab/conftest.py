"""Fixtures of the lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lab_guest import Guest, Report

from iosonde.lab import Limits
from iosonde.lab.image import Image, image
from iosonde.lab.machine import Settings
from iosonde.lab.qemu import Drives


@pytest.fixture(scope="session")
def host_devices() -> None:
    """Throttled devices can be created on this machine: `tests/tiers.py` checks it for every test that asks for this."""


IOPS = 200
BANDWIDTH = 2_500_000
"""Low enough that the emulated processors keep eight drives busy under other load: once they wrote 6 MB/s to four drives."""

DRIVES = Drives(count=8, unlimited=4, pairs=1, size_bytes=512 << 20, limits=Limits(iops=IOPS, bandwidth=BANDWIDTH))
SETTINGS = Settings(drives=DRIVES, iommu=True, silence_s=900)

Start = Callable[[Image], Guest | None]
STEPS = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print when each step of the guest ended: for pytest it is one fixture."""
    if steps := config.stash.get(STEPS, []):
        terminalreporter.section("steps of the guest")
        terminalreporter.write_line("\n".join(steps))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of what the guest reports come last: it runs in parallel with all others of the lab."""
    items.sort(key=_reads_report)


def _reads_report(item: pytest.Item) -> bool:
    return "guest_report" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def machine_image(guest_start: Start) -> Image:
    """The image of the virtual machine, from the user's cache: taken before tests get a cache of their own.

    The first test that needs it also starts the guest, if any test is going to read its report.
    """
    built = image()
    guest_start(built)
    return built


@pytest.fixture(scope="session")
def guest_start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts the one guest of all tests."""
    guests: list[Guest] = []

    def start(built: Image) -> Guest | None:
        if not guests and any(map(_reads_report, request.session.items)):
            arguments = map(str, (IOPS, BANDWIDTH, DRIVES.failing_byte))
            guests.append(Guest(built, tmp_path_factory.mktemp("guest"), SETTINGS, *arguments))
        return guests[0] if guests else None

    yield start
    for guest in guests:
        guest.end()
        request.config.stash[STEPS] = guest.report().steps


@pytest.fixture(scope="session")
def guest_report(machine_image: Image, guest_start: Start) -> Report:
    """Report of one start of the machine: all steps of `guest.py`."""
    guest = guest_start(machine_image)
    assert guest
    return guest.report()
