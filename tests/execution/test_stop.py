"""Signals that stop a session."""

from __future__ import annotations

import os
import select
import signal
import threading

import pytest

from iosonde.execution.stop import Stop, stop_on_signals

pytestmark = pytest.mark.unit

LIMIT_S = 60.0


def test_a_signal_that_interrupts_no_system_call_of_the_main_thread_wakes_it() -> None:
    """As one does that arrives just before the call: here another thread receives it."""
    with stop_on_signals() as stop:
        waiting = threading.Event()

        def receive() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            waiting.wait()

        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        receiver = threading.Thread(target=receive)
        receiver.start()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        try:
            ready, _, _ = select.select([stop], [], [], LIMIT_S)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            waiting.set()
            receiver.join()
        assert ready and stop.woken()


def test_another_signal_does_not_stop() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert select.select([stop], [], [], LIMIT_S)[0] and not stop.woken()
            assert not select.select([stop], [], [], 0)[0], "it waits again"
            stop.set()
            assert select.select([stop], [], [], LIMIT_S)[0] and stop.woken()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_setting_it_often_does_not_block() -> None:
    stop = Stop()
    for _ in range(100_000):
        stop.set()
    assert stop.woken()
    stop.close()
