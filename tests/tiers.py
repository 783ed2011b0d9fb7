"""The tiers of tests, their needs, and the rules that keep both honest. A plugin of pytest; see CONTRIBUTING.md.

A test's tier is its marker, else that of a fixture it uses, else its folder's, else `unit`. A unit test starts no process and an
external program must be listed in `iosonde.base.tools`: both are enforced here while tests run.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from needs import lacking

from iosonde.base.tools import ESSENTIAL, GUEST_TOOLS, TOOLS

TIERS = ("unit", "engine", "system", "lab", "fresh")
ON_REQUEST = {
    "extended": "takes minutes, and is not the only guard of anything: `make test-all`",
    "fresh": "installs iosonde on fresh Debians and builds a container image (an hour or more, packages from the network): `make fresh`",
}
"""Markers of tests that only run with `--also NAME`, and why."""

FIXTURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "iosonde": ("engine", ()),
    "iosonde_process": ("engine", ()),
    "loop_file_system": ("system", ("loop devices",)),
    "disks": ("system", ("loop devices",)),
    "browser": ("system", ("chromium", "chromedriver")),
    "host_devices": ("system", ("root", "qemu-storage-daemon", "FUSE", "loop devices")),
    "machine_image": ("lab", ("root", "qemu-system-x86_64", "virtiofsd", "cpio", "depmod", "apt-get", "dpkg-deb")),
    "user_mode_linux": ("lab", ("root", "linux.uml", "cc", "cpio", "depmod", "apt-get", "dpkg-deb")),
    "inside_user_mode_linux": ("lab", ("root", "linux.uml", "cc", "cpio", "depmod", "apt-get", "dpkg-deb")),
}
"""Tier and needs of every test that uses a fixture."""

FOLDERS = {"cli": "engine", "engine": "engine", "execution": "engine"}
"""Tier of the tests in a folder that states none."""


LONG_FILES = (
    "servers/test_cassandra.py",
    "servers/test_runs.py",
    "servers/test_servers.py",
    "servers/test_tpcc_and_commit.py",
    "execution/test_snia_studies.py",
    "execution/test_kill.py",
    "execution/test_made_file_systems.py",
    "docs/test_examples.py",
    "report/test_in_browser.py",
    "lab/test_throttled_devices.py",
    "results/test_query_process.py",
    "fleet/test_fleet.py",
    "cli/test_run.py",
    "cli/test_verify.py",
)
"""Started first, so that none of them is alone at the end while the other CPUs have nothing to do."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PROGRAMS] = programs = Programs()
    sys.addaudithook(programs.note)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage among the tests while they are collected, a fifth of its CPU time, nor ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--also fresh --also extended`: run these too."""
    parser.addoption("--also", action="append", default=[], choices=[*ON_REQUEST], help="also run tests of this marker")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its tier and the needs of its fixtures."""
    for item in items:
        fixtures = [FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES]
        for _, needs in fixtures:
            item.add_marker(pytest.mark.needs(*needs))
        if "machine_image" in getattr(item, "fixturenames", ()):  # Emulated, its guest takes half an hour.
            item.add_marker(pytest.mark.extended)
        if has_text_parameter(item, "rocksdb"):
            item.add_marker(pytest.mark.needs("rocksdb"))
        marked = (
            ["fresh"] if item.get_closest_marker("fresh") else [tier for tier in TIERS if item.get_closest_marker(tier)]
        )
        if len(marked) > 1:
            raise pytest.UsageError(f"{item.nodeid} has {len(marked)} tiers: {', '.join(marked)}")
        if not marked:
            of_folder = FOLDERS.get(item.path.parent.name, "unit")
            item.add_marker(max([tier for tier, _ in fixtures] or [of_folder], key=TIERS.index))
        if item.get_closest_marker("lab") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))  # The first one waits for all that the guest does.
    items.sort(key=_place)
    left_out = [name for name in ON_REQUEST if name not in config.getoption("also")]
    kept = [item for item in items if not any(item.get_closest_marker(name) for name in left_out)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _place(item: pytest.Item) -> int:
    name = "/".join(item.path.parts[-2:])
    return LONG_FILES.index(name) if name in LONG_FILES else len(LONG_FILES)


def has_text_parameter(item: Any, text: str) -> bool:
    """Return True if a parametrized test has this text as a parameter.

    Others are not compared: a snapshot takes each comparison for one of its test's own, and is rewritten by it.
    """
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return any(isinstance(value, str) and value == text for value in parameters.values())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_PROGRAMS].started.clear()
    for marker in item.iter_markers("needs"):
        for need in marker.args:
            if reason := lacking(need):
                pytest.skip(f"needs {need}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    programs = item.config.stash[_PROGRAMS]
    result = yield
    if item.get_closest_marker("unit") and programs.started:
        pytest.fail(f"a unit test started {', '.join(sorted(programs.started))}: mark it `engine` or `system`")
    if unlisted := sorted(name for name in programs.started if not is_listed(name)):
        pytest.fail(f"{', '.join(unlisted)} is not listed in python/iosonde/base/tools.py")
    return result


def skip_for_busy_machine(what: str) -> NoReturn:
    """Skip the rest of a test that a busy machine, not the product, prevented: it may neither fail nor pass by that."""
    pytest.skip(f"a busy machine: {what}")


def is_listed(program: str) -> bool:
    """Return True if a program is in the list of tools, or is none that a distribution would install."""
    name = Path(program).name
    if name in TOOLS or name in ESSENTIAL or name in GUEST_TOOLS or name.startswith(("python", "iosonde", "os.")):
        return True
    # Test programs that are written into a temporary directory, and those of the checkout.
    return program.startswith("/") and not program.startswith(("/usr/", "/bin/", "/sbin/", "/opt/"))


class Programs:
    """Names of the programs that were started, as the interpreter reports them (sys.addaudithook)."""

    def __init__(self) -> None:
        self.started: set[str] = set()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            executable, command = arguments[0], arguments[1]
            first = command if isinstance(command, str | bytes | os.PathLike) else (list(command) or [executable])[0]
            self.started.add(os.fsdecode(first))
        elif event in ("os.system", "os.posix_spawn", "os.fork", "os.forkpty"):
            self.started.add(event)


_PROGRAMS = pytest.StashKey[Programs]()
