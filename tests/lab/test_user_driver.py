"""The user-level NVMe driver in the lab's machine: what it reads and writes, what it refuses, and how it ends.

It has a start of the machine for itself: with an emulated IOMMU, one controller with two namespaces, and a slow one.
"""

from __future__ import annotations

import compileall
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
from guest_user_driver import BACKENDS, LARGEST

from iosonde.lab import Limits
from iosonde.lab.image import Image
from iosonde.lab.machine import Machine, Settings
from iosonde.lab.qemu import Drives
from iosonde.storage.journal_entry import NVME_DRIVER

SLOW = Limits(bandwidth=4_000_000)
SETTINGS = Settings(drives=Drives(count=1, limits=SLOW, pairs=1, size_bytes=64 << 20), iommu=True, silence_s=900)
Part = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def driven(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `guest_user_driver.py` reports."""
    results, folder = tmp_path_factory.mktemp("user-driver"), Path(__file__).parent
    for code in (CHECKOUT / "python", folder):  # Emulated, compiling all modules takes a minute.
        compileall.compile_dir(code, quiet=2)
    command = [sys.executable, "-B", str(folder / "guest_user_driver.py"), "out.json"]
    command.append(str(SETTINGS.drives.failing_byte))
    environment = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
    with Machine(command, image=machine_image, results=results, settings=SETTINGS, environment=environment) as machine:
        output = b"".join(data for _, data in machine.output())
    path = results / "out.json"
    assert path.exists(), output.decode(errors="replace")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module")
def part(driven: dict[str, Any]) -> Part:
    """What one of its parts found."""

    def found(name: str) -> dict[str, Any]:
        said: dict[str, Any] = driven[name]
        assert "broken" not in said, said["broken"]
        return said

    return found


def test_identify_returns_what_the_driver_of_the_kernel_returns(part: Part) -> None:
    said = part("identified")
    assert said["controller"][0] == said["controller"][1]
    assert said["namespaces"][0] == said["namespaces"][1]
    assert [each["block_bytes"] for each in said["formats"]] == [512, 4096]
    assert said["answer"]["largest_transfer_bytes"] == LARGEST


@pytest.mark.parametrize("name", ["crossed", "second namespace"])
def test_every_backend_reads_what_each_backend_wrote(part: Part, name: str) -> None:
    said = part(name)
    backends, ended = said["backends"], said["ended"]
    assert set(ended) == {f"{each} {verb}" for each in backends for verb in ("writes", "reads")}
    for each, event in ended.items():
        assert event["event"] == "result", (each, event)
        assert event["backend"]["kind"] == each.split()[0]
    for each in backends:
        found = ended[f"{each} reads"]["verification"]
        assert (found["checked_bytes"], found["unknown_bytes"]) == (len(backends) << 20, 0), each
        assert not any(found["faults"].values()), each


def test_mixed_sizes_are_verified_with_every_backend(part: Part) -> None:
    said = part("session")
    assert said["error"] == ""
    records = said["parts"]["sizes"]
    assert {each["backend"] for each in records} == set(BACKENDS)
    check_verified(records)


def test_prp_lists_polled_with_fua_and_sgl_with_interrupts_and_flush_move_intact_data(part: Part) -> None:
    records = part("session")["parts"]["deep"]
    found = {each["data_pointers"]: each["in_effect"]["features"] for each in records}
    assert found == {"prp": ["prp", "polling", "force_unit_access"], "sgl": ["sgl", "interrupts"]}
    check_verified(records)


def check_verified(records: list[dict[str, Any]]) -> None:
    for each in records:
        assert (each["outcome"], each["failure"]) == ("complete", None), each
        assert each["verification"]["checked_bytes"] > 0, each
        assert each["verification"]["unknown_bytes"] == 0, each
        assert not any(each["verification"]["faults"].values()), each


def test_a_transfer_beyond_the_limit_of_the_controller_is_a_row_with_the_reason(part: Part) -> None:
    [record] = part("session")["parts"]["refused"]
    code, message = record["failure"]
    assert code == "unsupported"
    assert f"one command transfers {LARGEST} bytes at most, and the block size is {LARGEST + 512}" in message


def test_an_error_of_the_media_fails_the_run_as_through_the_kernel(part: Part) -> None:
    records = {each["backend"]: each for each in part("session")["parts"]["failing"]}
    assert {each["outcome"] for each in records.values()} == {"failed"}
    assert records["nvme_user"]["failure"] == records["uring"]["failure"]


def test_deallocated_blocks_are_zero_for_the_kernel_and_no_others(part: Part) -> None:
    said = part("session")
    [record] = said["parts"]["deallocated"]
    assert (record["outcome"], record["failure"]) == ("complete", None)
    assert said["is_zero"]
    assert said["is_intact"], "data beside what was deallocated"


def test_a_killed_session_leaves_an_entry_and_cleanup_gives_the_controller_back(part: Part) -> None:
    said = part("killed")
    assert said["has_measured"]
    assert said["in_use"] and all(reason.startswith("is in use by process") for reason in said["in_use"])
    assert NVME_DRIVER in said["remaining"]
    assert said["cleaned"] and not any(failed for _, failed in said["cleaned"]), said["cleaned"]
    assert said["is_intact"], "data beside what was measured"


def test_commands_that_take_too_long_end_the_run(part: Part) -> None:
    ended = part("timed out")["ended"]
    assert ended["event"] == "error"
    assert "timed out" in ended["message"], ended


@pytest.mark.parametrize("name", ["identified", "killed", "crossed", "second namespace", "session", "timed out"])
def test_the_driver_of_the_kernel_has_the_controller_again(part: Part, name: str) -> None:
    said = part(name)
    assert said["is_back"]
    assert said["journal"] == []


def test_a_controller_that_is_removed_during_a_run_is_released(part: Part) -> None:
    said = part("removed")
    assert said["ended"]["event"] == "error"
    assert said["is_gone"]
    assert said["journal"] == []


def test_backends_that_the_machine_has_are_reported(part: Part) -> None:
    probed = part("identified")["probed"]
    expected = {"sync", "preadv2", "libaio", "uring", "uring with submission polling", "uring_nvme", "nvme_user"}
    assert expected <= {name for name, is_available in probed.items() if is_available}
