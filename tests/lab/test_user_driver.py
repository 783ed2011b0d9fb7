"""The user-level NVMe driver in the lab's machine: what it reads and writes, what it refuses, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guest_user_driver import BACKENDS, LARGEST
from lab_guest import Report

from iosonde.storage.journal_entry import NVME_DRIVER

Part = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def part(guest_report: Report) -> Part:
    """What one of its parts found."""
    return lambda name: guest_report.step(f"driver-{name}")


def test_identify_returns_what_the_driver_of_the_kernel_returns(part: Part) -> None:
    said = part("identified")
    assert said["controller"][0] == said["controller"][1]
    assert said["namespaces"][0] == said["namespaces"][1]
    assert [each["block_bytes"] for each in said["formats"]] == [512, 4096]
    assert said["answer"]["largest_transfer_bytes"] == LARGEST


@pytest.mark.parametrize("name", ["crossed", "second-namespace"])
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
    records = said["parts"]["sizes"] + said["parts"]["passthrough"]
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
    ended = part("timed-out")["ended"]
    assert ended["event"] == "error"
    assert "timed out" in ended["message"], ended


@pytest.mark.parametrize("name", ["identified", "killed", "crossed", "second-namespace", "session", "timed-out"])
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
