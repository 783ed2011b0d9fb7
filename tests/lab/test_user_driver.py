"""The user-level NVMe driver in the lab's machine: what it identifies, and how a controller is handed over.

It has a start of the machine for itself: with an emulated IOMMU, and one controller with two namespaces.
"""

from __future__ import annotations

import compileall
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.lab.image import Image
from iosonde.lab.machine import Machine, Settings
from iosonde.lab.qemu import Drives
from iosonde.storage.journal_entry import NVME_DRIVER

SETTINGS = Settings(drives=Drives(count=0, pairs=1, size_bytes=64 << 20), iommu=True, silence_s=900)


@pytest.fixture(scope="module")
def driven(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `guest_user_driver.py` reports."""
    results, folder = tmp_path_factory.mktemp("user-driver"), Path(__file__).parent
    for code in (CHECKOUT / "python", folder):  # Emulated, compiling all modules takes a minute.
        compileall.compile_dir(code, quiet=2)
    command = [sys.executable, "-B", str(folder / "guest_user_driver.py"), "out.json"]
    environment = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
    with Machine(command, image=machine_image, results=results, settings=SETTINGS, environment=environment) as machine:
        output = b"".join(data for _, data in machine.output())
    path = results / "out.json"
    assert path.exists(), output.decode(errors="replace")
    said: dict[str, Any] = json.loads(path.read_text())
    for name, each in said.items():
        assert "broken" not in each, f"{name}: {each['broken']}"
    return said


def test_identify_returns_what_the_driver_of_the_kernel_returns(driven: dict[str, Any]) -> None:
    said = driven["identified"]
    assert said["controller"][0] == said["controller"][1]
    assert said["namespaces"][0] == said["namespaces"][1]
    assert [each["block_bytes"] for each in said["formats"]] == [512, 4096]
    assert said["answer"]["largest_transfer_bytes"] == 512 << 10


@pytest.mark.parametrize("part", ["identified", "killed"])
def test_the_driver_of_the_kernel_has_the_controller_again(driven: dict[str, Any], part: str) -> None:
    assert driven[part]["is_back"]
    assert driven[part]["journal"] == []


def test_the_handover_is_in_the_journal(driven: dict[str, Any]) -> None:
    assert driven["identified"]["journaled"] == [NVME_DRIVER]


def test_cleanup_gives_back_the_controller_of_a_killed_process_and_no_other(driven: dict[str, Any]) -> None:
    said = driven["killed"]
    [reason] = said["in_use"]
    assert reason.startswith("is in use by process")
    assert said["cleaned"] == [[f"the {NVME_DRIVER} was removed", False]]
    assert said["is_intact"]
