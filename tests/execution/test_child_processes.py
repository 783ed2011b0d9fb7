"""Waiting for child processes: their exit, a time limit, and signal handlers that raise."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from iosonde.base.tools import Process, run


@pytest.mark.parametrize(
    "wait",
    [lambda each: each.wait(0.001), lambda each: each.communicate(timeout=0.001), Process.poll],
    ids=["wait", "communicate", "poll"],
)
def test_a_process_can_be_waited_for_after_a_handler_has_raised_at_any_instant(wait: Callable[[Process], Any]) -> None:
    """`Popen.wait` did not return after one that raised between the acquisition of its lock and the `try` after it."""
    for instant in itertools.count():
        process = Process(["sleep", "infinity"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        was_raised = raise_after(instant, partial(wait, process))
        process.kill()
        waiting = Thread(target=process.wait, daemon=True)
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive(), f"raised after {instant} calls"
        assert process.returncode == -signal.SIGKILL
        process.communicate()
        if not was_raised:
            break
    assert instant > 5


def raise_after(calls: int, function: Callable[[], Any]) -> bool:
    """Raise `KeyboardInterrupt` after that many calls of C functions, where Python calls signal handlers."""
    left = itertools.count(calls, -1)

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "c_return" and frame.f_globals["__name__"] != __name__ and next(left) == 0:
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        function()
    except KeyboardInterrupt:
        return True
    except subprocess.TimeoutExpired:
        pass
    finally:
        sys.setprofile(None)
    return False


def test_exits_and_time_limits_are_distinguished() -> None:
    with Process(["sh", "-c", "read -r line; exit 3"], stdin=subprocess.PIPE) as process:
        assert (process.exits_within(0), process.poll()) == (False, None)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.001)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        assert (process.exits_within(300), process.returncode, process.poll(), process.wait(0)) == (True, 3, 3, 3)


def test_a_program_is_run_to_its_end_or_killed_after_its_time() -> None:
    done = run(["sh", "-c", "cat; echo error >&2; exit 3"], timeout_s=300, given=b"\xff\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "\ufffd\n", "error\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "infinity"], timeout_s=0.01)
