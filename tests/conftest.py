"""Fixtures of all tests."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Iosonde, in_own_process, in_this_process
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from loop_stacks import backing_name
from mounted import LoopFileSystem

from iosonde.base.tools import path_with_system_directories

pytest_plugins = ["tiers"]

# No test depends on the speed of the machine, nor on what it draws except with `--also extended`.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    if "extended" in config.getoption("also"):
        settings.load_profile("random")
    else:
        settings.load_profile("fixed")
        # Else constants of the modules that happen to be imported are drawn too. To find them takes a second.
        providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, so that the cost of the harness is measured only once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New directories. `mktemp` of pytest reads the names of all directories of all tests for each new one."""
    base = tmp_path_factory.mktemp("states")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_state(_cache: Path, _states: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own journal of what was made, so that none touches the user's; and none the user's cache."""
    state = next(_states)
    state.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_CACHE_HOME", str(_cache))


@pytest.fixture
def iosonde() -> Iosonde:
    """Run the command line in this process: arguments in, exit code and text out."""
    return in_this_process


@pytest.fixture
def iosonde_process() -> Iosonde:
    """Run the command line in a process of its own, where that is what is tested."""
    return in_own_process


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that the users of servers can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="iosonde-test-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture
def loop_file_system(tmp_path: Path) -> Iterator[Callable[..., LoopFileSystem]]:
    """Make file systems in files and mount them; all are unmounted at the end. Needs root and loop devices."""
    made: list[LoopFileSystem] = []

    def make(
        kind: str = "ext4",
        *,
        size: str = "32M",
        sector_bytes: int = 512,
        options: str = "defaults",
        direct_io: bool = False,
        image_on: Path = tmp_path,
    ) -> LoopFileSystem:
        name = image_on / f"image-{len(made)}"
        _run("truncate", "-s", size, name)
        dio = f"--direct-io={'on' if direct_io else 'off'}"
        device = _run("losetup", "--find", "--show", "--sector-size", str(sector_bytes), dio, name)
        directory = tmp_path / f"mounted-{len(made)}"
        directory.mkdir()
        mounted = LoopFileSystem(device, directory, name)
        made.append(mounted)
        # Without these the kernel initializes tables in the background, and its writes are those of another process.
        eager = ["-E", "lazy_itable_init=0,lazy_journal_init=0"] if kind == "ext4" else []
        _run(f"mkfs.{kind}", "-q", *eager, device)
        _run("mount", "-t", kind, "-o", options, device, directory)
        return mounted

    yield make
    stolen = [each.device for each in made if backing_name(each.device) != f"{each.image}\n"]
    for each in reversed(made):
        # Lazily: what a test has started may still read there, and ends only after this.
        subprocess.run(["umount", "--lazy", each.directory], check=False, capture_output=True)
        if each.device not in stolen:
            subprocess.run(["losetup", "--detach", each.device], check=False, capture_output=True)
    assert not stolen, f"detached by another process: {stolen}"


def _run(*command: str | Path) -> str:
    environment = {**os.environ, "PATH": path_with_system_directories()}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A shell starts background jobs with SIGINT ignored, and then so do the tests that press Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
