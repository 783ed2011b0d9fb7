"""Fixtures of the lab, and tests that run inside User Mode Linux."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lab_guest import Report, run_guest
from needs import lacking
from user_mode_linux import REPORTS, run_script, run_tests

from iosonde.lab import Limits
from iosonde.lab.machine import Settings
from iosonde.lab.qemu import Drives, Image, image


@pytest.fixture(scope="session")
def host_devices() -> None:
    """Throttled devices can be created on this machine: `tests/tiers.py` checks it for every test that asks for this."""


@cache
def users_image() -> Image:
    """The image of the user's cache: taken before tests get a cache of their own."""
    return image()


@pytest.fixture(scope="session", name="users_image")
def users_image_fixture() -> Image:
    return users_image()


@pytest.fixture(scope="session")
def user_mode_linux(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs a script of this folder in User Mode Linux, and returns the directory of its results."""
    built = users_image()

    def run(name: str, *arguments: str) -> Path:
        place, packages = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("packages") / "packages"
        run_script(name, *arguments, image=built, place=place, packages=packages)
        return place

    return run


@pytest.fixture(scope="session")
def inside_user_mode_linux() -> None:
    """Tests that ask for this change devices, mounts and control groups: they run inside, and never on this machine."""
    assert REPORTS in os.environ


INSIDE = pytest.StashKey[tuple[dict[str, list[dict[str, Any]]], str]]()
"""Reports of tests by their names, and everything that was printed."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Report what a test did inside. All of them run there when it is the first one's turn."""
    needs = [need for marker in item.iter_markers("needs") for need in marker.args]
    if not _runs_inside(item) or REPORTS in os.environ or any(map(lacking, needs)):
        return None
    if INSIDE not in item.config.stash:
        item.config.stash[INSIDE] = _run_inside(item.session)
    reports, printed = item.config.stash[INSIDE]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in reports.get(item.nodeid) or [_missing(item, printed)]:
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _runs_inside(item: pytest.Item) -> bool:
    return "inside_user_mode_linux" in getattr(item, "fixturenames", ())


def _run_inside(session: pytest.Session) -> tuple[dict[str, list[dict[str, Any]]], str]:
    tests = [each.nodeid for each in session.items if _runs_inside(each)]
    with tempfile.TemporaryDirectory() as place:
        reports, printed = run_tests(tests, image=users_image(), place=Path(place))
    return {name: [each for each in reports if each["nodeid"] == name] for name in tests}, printed


def _missing(item: pytest.Item, printed: str) -> dict[str, Any]:
    text = f"it did not run in User Mode Linux, where others printed:\n{printed[-10_000:]}"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
    data: dict[str, Any] = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
    return data


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Inside, write each report for the tests outside."""
    report = yield
    if REPORTS in os.environ:
        data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        with Path(os.environ[REPORTS]).open("a") as file:
            file.write(json.dumps(data) + "\n")
    return report


LIMITS = Limits(iops=200, bandwidth=2_500_000)
DRIVES = Drives(count=8, unlimited=4, pairs=1, size_bytes=512 << 20, limits=LIMITS)
SETTINGS = Settings(drives=DRIVES, iommu=True, silence_s=3000)


@pytest.fixture(scope="session")
def machine_image() -> Image:
    return users_image()


@pytest.fixture(scope="session")
def guest_report(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Report of one start of the emulated machine: all steps of `guest.py`."""
    return run_guest(machine_image, tmp_path_factory.mktemp("guest"), SETTINGS, str(DRIVES.failing_byte))
