"""The user-level NVMe driver in the lab's machine: what it reads and writes, what it refuses, and how it ends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from guest_user_driver import LARGEST
from lab_guest import Report

from iosonde.features.nvme_driver.handover import JOURNALED
from iosonde.features.nvme_driver.questions import BackendStep, SoftwareShare
from iosonde.report.content import collect

Part = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def part(guest_report: Report) -> Part:
    """Results of one of its parts, by name. After each the kernel's driver has the controller again, except after a removal."""

    def step(name: str) -> dict[str, Any]:
        reported = guest_report.step(f"driver-{name}")
        assert name == "removed" or reported["is_back"]
        assert reported["journal"] == []
        return reported

    return step


def test_identify_returns_what_the_driver_of_the_kernel_returns(part: Part) -> None:
    reported = part("identified")
    assert reported["controller"][0] == reported["controller"][1]
    assert reported["namespaces"][0] == reported["namespaces"][1]
    assert [each["block_bytes"] for each in reported["formats"]] == [512, 4096]
    assert reported["answer"]["largest_transfer_bytes"] == LARGEST


POLLING = {"sqpoll": "submission_polling", "iopoll": "completion_polling"}


def test_every_backend_reads_what_each_backend_wrote(part: Part) -> None:
    reported = part("crossed")
    backends, ended = reported["backends"], reported["ended"]
    assert set(ended) == {f"{each} {verb}" for each in backends for verb in ("writes", "reads")}
    for each, event in ended.items():
        assert event["event"] == "result", (each, event)
        kind, *polling, _ = each.split()
        assert event["backend"]["kind"] == kind
        assert POLLING[polling[0]] in event["backend"]["features"] if polling else True
    for each in backends:
        found = ended[f"{each} reads"]["verification"]
        assert (found["checked_bytes"], found["unknown_bytes"]) == (len(backends) << 20, 0), each
        assert not any(found["faults"].values()), each


@pytest.mark.parametrize(("name", "block_bytes", "starts"), [("sizes", 512, 1024), ("sizes-of-4096", 4096, 168)])
def test_every_size_up_to_the_largest_is_transferred_and_no_other(
    part: Part, name: str, block_bytes: int, starts: int
) -> None:
    reported = part(name)
    assert (reported["sizes"], reported["largest_bytes"]) == (LARGEST // block_bytes, LARGEST)
    assert reported["starts"] >= starts, "positions of buffers in their first page"
    assert reported["refused"] == [-errno.EINVAL] * 10, "one byte and one block more, and parts of blocks"


def test_mixed_sizes_are_verified_with_passthrough_and_with_our_driver(part: Part) -> None:
    reported = part("session")
    assert reported["error"] == ""
    found = {each["backend"]: each for each in reported["parts"]["sizes"]}
    assert set(found) == {"uring_nvme", "nvme_user"}
    for each in found.values():
        assert (each["outcome"], each["failure"]) == ("complete", None), each
        check_intact(each["verification"])


def test_prp_lists_polled_with_fua_and_sgl_with_interrupts_and_flush_move_intact_data(part: Part) -> None:
    records = part("session")["parts"]["deep"]
    found = {each["data_pointers"]: (each["in_flight"], each["in_effect"]["features"]) for each in records}
    prp, sgl = ["prp", "polling", "force_unit_access", "shadow_doorbells"], ["sgl", "interrupts", "shadow_doorbells"]
    assert found == {"prp": ([4, 128], prp), "sgl": ([2, 32], sgl)}, "jobs and queue depth, and what was in effect"
    for each in records:
        check_intact(each["verification"])


def check_intact(verification: dict[str, Any]) -> None:
    assert verification["checked_bytes"] > 0
    assert verification["unknown_bytes"] == 0
    assert not any(verification["faults"].values()), verification


def test_an_error_of_the_media_fails_the_run_as_through_the_kernel(part: Part) -> None:
    records = {each["backend"]: each for each in part("session")["parts"]["failing"]}
    assert {each["outcome"] for each in records.values()} == {"failed"}
    assert records["nvme_user"]["failure"] == records["uring"]["failure"]


def test_deallocated_blocks_are_zero_for_the_kernel_and_no_others(part: Part) -> None:
    reported = part("session")
    [record] = reported["parts"]["deallocated"]
    assert (record["outcome"], record["failure"]) == ("complete", None)
    assert reported["is_zero"]
    assert reported["is_intact"], "data beside what was deallocated"


def test_a_killed_session_leaves_an_entry_and_cleanup_gives_the_controller_back(part: Part) -> None:
    reported = part("killed")
    assert reported["has_measured"]
    assert reported["in_use"] and all(reason.startswith("is in use by process") for reason in reported["in_use"])
    assert JOURNALED in reported["remaining"]
    assert reported["cleaned"] and not any(failed for _, failed in reported["cleaned"]), reported["cleaned"]
    assert reported["is_intact"], "data beside what was measured"


def test_a_command_with_more_memory_segments_than_it_can_have_needs_huge_pages(part: Part) -> None:
    refused, ended = part("large-commands")["without"], part("large-commands")["with"]
    assert (refused["event"], refused["code"]) == ("error", "unsupported")
    assert f"a block of {LARGEST} bytes has up to 128 memory segments, one command takes 127" in refused["message"]
    assert "vm.nr_hugepages" in refused["hint"]
    for event in (ended["uring_nvme"], ended["nvme_user"]):
        assert event["event"] == "result", event
        assert "huge_pages" in event["backend"]["features"]
        check_intact(event["verification"])


def test_the_shipped_study_compares_gains_and_the_software_share_with_published_values(
    part: Part, guest_report: Report
) -> None:
    """Emulated, no value means anything: the report has each with its interval, and each backend was measured."""
    assert part("study")
    results = guest_report.result_set("jo2024-driver")
    assert {(record.outcome, record.failure) for record in results.records()} == {("complete", None)}
    [chapter] = collect([results]).chapters
    [(_, answer)] = chapter.answers
    steps = [each for each in answer.findings if isinstance(each, BackendStep) and each.part == "single"]
    for metric in ("iops", "cpu_ns_per_operation"):
        found = [step for step in steps if step.metric == metric and step.kind == "backend step"]
        assert [(step.before, step.after) for step in found] == [("sync", "uring"), ("uring", "nvme_user")]
    share = answer.summary[0]
    assert isinstance(share, SoftwareShare)
    assert [name for name, _ in share.shares] == ["sync", "uring"]
    [gain] = [table for table in chapter.tables if table.title.startswith("Gain of the user-level driver")]
    assert [row[0].text for row in gain.rows] == ["nvme_user", "nvme_user", "Optane SSD (P4800X)", "Z-SSD (SZ985)"]


@pytest.mark.parametrize(
    ("name", "message", "end"),
    [
        ("timed-out", "timed out", "; the controller did not abort a command in time"),
        ("fatal", "Input/output error", "; the controller reports a fatal error"),  # CSTS.CFS
    ],
)
def test_a_controller_that_does_not_answer_ends_the_run(part: Part, name: str, message: str, end: str) -> None:
    ended = part(name)["ended"]
    assert ended["event"] == "error"
    assert message in ended["message"]
    assert ended["message"].endswith(end), ended
    assert name == "fatal" or "`command_timeout`" in ended["hint"]


def test_a_controller_that_is_removed_during_a_run_is_released(part: Part) -> None:
    reported = part("removed")
    assert reported["ended"]["event"] == "error"
    assert reported["is_gone"]


def test_backends_that_the_machine_has_are_reported(part: Part) -> None:
    probed = part("identified")["probed"]
    expected = {"sync", "preadv2", "libaio", "uring", "uring with submission polling", "uring_nvme", "nvme_user"}
    assert expected <= {name for name, is_available in probed.items() if is_available}
