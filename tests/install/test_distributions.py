"""The source distribution: what is in it, and that it installs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from command_line import CHECKOUT

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(CHECKOUT / "scripts/build-sdist"), str(directory)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    [archive] = directory.iterdir()
    return archive


def test_it_contains_what_building_and_redistribution_need(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    required = {"LICENSE", "THIRD-PARTY-NOTICES.txt", "Cargo.lock", "README.md", "packaging/wheel/scripts/iosonde"}
    data = {
        str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "python/iosonde/data").rglob("*.*") if path.is_file()
    }
    data = {name for name in data if "__pycache__" not in name}
    assert len(data) > 40
    assert (required | data) - names == set()
    assert {name.partition("/")[0] for name in names if "/" in name} == {"crates", "packaging", "python"}


def test_the_command_of_an_installation_can_be_executed(source: Path) -> None:
    """maturin drops the permission, and `iosonde` could not be started after `pip install`."""
    with tarfile.open(source) as archive:
        [script] = [each for each in archive.getmembers() if each.name.endswith("packaging/wheel/scripts/iosonde")]
    assert script.mode & 0o111


@pytest.mark.fresh
@pytest.mark.timeout(1800)
def test_it_installs_and_only_its_package_can_be_imported(source: Path, tmp_path: Path) -> None:
    """Compiles the engine once more, which takes minutes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    constraints = {"PIP_CONSTRAINT": str(CHECKOUT / "packaging" / "constraints.txt")}
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "IOSONDE_ENGINE")}
    subprocess.run([binaries / "pip", "install", source], check=True, env={**environment, **constraints})

    def asked(*command: str) -> str:
        done = subprocess.run(
            [binaries / command[0], *command[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        return done.stdout + done.stderr

    assert asked("iosonde", "--version").startswith("iosonde ")
    assert "quick" in asked("iosonde", "list")
    assert str(binaries / "iosonde-engine") in asked("iosonde", "doctor").replace("\n", "")
    for name in ("models", "studies", "reference", "lab"):
        assert f"No module named '{name}'" in asked("python", "-c", f"import {name}")
    listed = asked("pip", "show", "--files", "iosonde")
    assert "LICENSE" in listed and "THIRD-PARTY-NOTICES.txt" in listed
