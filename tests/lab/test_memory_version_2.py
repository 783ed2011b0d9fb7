"""Memory limits under control groups of version 2, for real: Debian's kernel in the lab's machine, with swap in use."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

LIMIT = 40 << 20


@pytest.fixture(scope="module")
def limits(guest_report: Report) -> dict[str, Any]:
    """Results of three runs in `guest_memory.py`."""
    reported = guest_report.step("limits")
    assert reported["version"] == 2
    return reported


def test_a_run_has_the_proof_that_it_read_from_the_device(limits: dict[str, Any], guest_report: Report) -> None:
    [run], record = guest_report.result_set("read").runs.to_dicts(), limits["read"]["record"]
    memory = record["memory"]
    assert record["outcome"] == "complete", record["failure"]
    assert (memory["version"], memory["limit_bytes"], memory["oom_kills"]) == (2, LIMIT, 0)
    assert memory["at_limit"] > 0 and LIMIT / 2 < memory["peak_bytes"] <= LIMIT, "page cache is charged"
    assert run["database_bytes"] > 1.5 * LIMIT
    assert run["values_checked"] == 400 and run["values_corrupted"] == run["values_missing"] == 0
    [totals] = record["device_totals"]
    [charged] = memory["devices"]
    assert charged["device"] == totals["device"]
    # Read for this group alone, value by value of 4000 bytes; the disk's own counters agree.
    assert 400 * 4000 / 2 < charged["read_bytes"] <= totals["read_bytes"] < 2 * charged["read_bytes"]
    # The control group for I/O is of version 2 too, and the engine's own bytes agree with both.
    own = record["own_io"]
    assert own["version"] == 2, own
    [of_device] = [each for each in own["run"] if each["device"] == totals["device"]]
    assert 400 * 4000 / 2 < of_device["own_read_bytes"] <= totals["read_bytes"], (of_device, totals)
    assert memory["statistics"]["pgmajfault"] > 0 and memory["statistics"]["pgsteal"] > 0
    assert any(finding.sentence.startswith("The median database was 1.") for finding in guest_report.findings("read"))


def test_a_limit_too_small_is_out_of_memory_and_swap_does_not_help(limits: dict[str, Any]) -> None:
    record = limits["too_little"]["record"]
    assert record["outcome"] == "failed"
    assert record["failure"]["code"] == "out_of_memory"
    assert "the memory limit of 1 MiB is too small" in record["failure"]["message"]
    assert "memory_limit" in record["failure"]["hint"]
    assert record["memory"]["oom_kills"] == 1
    assert limits["swapped_out"] == 0


def test_no_group_is_left_after_a_run(limits: dict[str, Any]) -> None:
    assert limits["read"]["groups"] == limits["too_little"]["groups"] == []


def test_a_kill_in_the_middle_of_a_load_leaves_nothing_after_cleanup(limits: dict[str, Any]) -> None:
    killed = limits["killed"]
    assert killed["was_loading"]
    assert len(killed["left"]) == 1
    assert killed["journal"] == ["control group", "directory", "temporary file"]
    assert killed["cleaned"] == ["removed", "the temporary file was removed"]
    assert killed["then"] == [] and killed["files"] == ["lost+found"]


def test_a_group_with_processes_cannot_have_a_limit(limits: dict[str, Any]) -> None:
    """As in a container: its kernel lets a group have processes or groups with controllers, and not both."""
    assert limits["occupied"]["what"].startswith(f"cannot limit memory to {LIMIT} bytes in `/sys/fs/cgroup/occupied/")
    assert "run iosonde outside this container" in limits["occupied"]["hint"]
    assert limits["occupied"]["groups"] == [] and limits["occupied"]["journal"] == []
