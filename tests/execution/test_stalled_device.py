"""A device that stalls for a second under a closed loop: the warning, and what an open loop would have seen."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from engines import measuring_engine, wrapped_engine
from mounted import LoopFileSystem

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.storage import open_target

STUDY = """
name = "stalling"
title = "A stalling device"
question = "How long do reads take?"
repeats = 1

[measurement]
span = "16MiB"
block_size = "4KiB"
ramp = "0s"
duration = "8s"
interval = "100ms"

[[parts]]
name = "main"

[profiles.standard]
"""
STALL_S = 1.0
BLKIO = Path("/sys/fs/cgroup/blkio")


@contextmanager
def stalling(directory: Path, device: str) -> Iterator[dict[str, float]]:
    """Let the kernel throttle the reads of the engine's control group from a device for `STALL_S`.

    Yields when it did: `after_s` the load started, at most, and `for_s`; more if this thread waited for a CPU.
    """
    done: dict[str, float] = {}
    ended = threading.Event()

    def stall() -> None:
        before = time.monotonic()
        while (pid := measuring_engine(os.getpid(), directory)) is None:
            if ended.wait(0.01):
                return
            before = time.monotonic()
        time.sleep(0.5)
        with suppress(FileNotFoundError):  # The engine may have exited meanwhile, and its group is removed.
            [group] = re.findall(r"^\d+:blkio:/(.*)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
            limit = BLKIO / group / "blkio.throttle.read_iops_device"
            limit.write_text(f"{device} 1")
            begin = time.monotonic()
            time.sleep(STALL_S)
            limit.write_text(f"{device} 0")
            done.update(after_s=begin - before, for_s=time.monotonic() - begin)

    thread = threading.Thread(target=stall)
    thread.start()
    yield done
    ended.set()
    thread.join()


@pytest.mark.needs("blkio throttle")
def test_a_stall_of_the_device_is_reported_with_what_an_open_loop_would_have_seen(
    tmp_path: Path, loop_file_system: Callable[..., LoopFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(wrapped_engine(tmp_path, "exec chrt --fifo 1")))
    mounted = loop_file_system(size="64M", direct_io=True)
    number = Path(f"/sys/class/block/{Path(mounted.device).name}/dev").read_text().strip()
    plan = expand(parse(STUDY), open_target(str(mounted.directory)))
    with stalling(mounted.directory, number) as stall:
        [record] = execute(plan, tmp_path / "set").records()
    assert record.verdict, record.failure
    codes = {warning.code: warning.message for warning in record.warnings}
    assert stall or "engine_stalled" in codes, "the load ended before the device was throttled"
    if "engine_stalled" in codes or stall["after_s"] + stall["for_s"] > 7.5:
        # The machine itself paused the engine, or this test until the stall was no longer inside the measurement.
        assert record.verdict.kind != "device-limited" or "engine_stalled" not in codes
        return
    assert "device_stalled" in codes, (codes, record.verdict)
    assert (record.verdict.evidence["device_stall_ns"] or 0) > 0.8 * STALL_S * 1e9
    found = re.search(
        r"an open loop at the same rate would have had p99 ([\d.]+) (ms|s) or more", codes["device_stalled"]
    )
    assert found, codes["device_stalled"]
    open_p99_s = float(found[1]) * {"ms": 1e-3, "s": 1.0}[found[2]]
    # Of 8 s a second stalled: one request in a hundred waits for nearly all of it. The closed loop had a single one.
    assert 0.8 * STALL_S < open_p99_s <= 1.5 * stall["for_s"]
