"""A request to stop, set by a signal or a time limit, and the start of a load that several hosts agree on.

Each has a file descriptor, so that one `select(2)` waits for both and for the engine's next event without polling.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from iosonde.errors import ServerError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Like `threading.Event`, with a descriptor that is readable once it is set."""

    def __init__(self) -> None:
        self._is_set = False
        self.is_time_over = False
        """True if the time limit was the reason: a long run in progress is then kept."""
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def set(self) -> None:
        """Request to stop."""
        self._is_set = True
        with suppress(BlockingIOError):  # Full, so it is readable.
            os.write(self.writing, b"\0")

    def time_is_over(self) -> None:
        """Stop because of the time limit."""
        self.is_time_over = not self._is_set
        self.set()

    def is_set(self) -> bool:
        """Return True if a stop was requested."""
        return self._is_set

    def clear(self) -> None:
        """Withdraw the request, once the run that it was for has ended."""
        self._is_set = self.is_time_over = False
        self.woken()

    def check(self) -> None:
        """`ServerError` (`stopped`) once a stop was requested: for loops that wait for a server."""
        if self._is_set:
            raise ServerError("the session was stopped while it waited for a server", code="stopped")

    def fileno(self) -> int:
        """Readable once it is set; after another signal too, so ask `woken`."""
        return self._reading

    def woken(self) -> bool:
        """Return True if it is set, after its descriptor has become readable; otherwise the descriptor waits again."""
        if not self._is_set:
            with suppress(BlockingIOError):
                os.read(self._reading, 4096)
        # A handler that ran meanwhile has written after it set this, so the descriptor is readable again.
        return self._is_set

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._reading)
        os.close(self.writing)


@contextmanager
def after(seconds: float | None, stop: Stop) -> Iterator[None]:
    """Stop after a time limit; None: never."""
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop.time_is_over) if seconds is not None else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer:
            timer.cancel()
            timer.join()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A `Stop` that Ctrl-C, SIGTERM and SIGHUP set; the second such signal raises KeyboardInterrupt where it hits."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and not stop.is_time_over:
            raise KeyboardInterrupt
        stop.is_time_over = False
        stop.set()

    handled = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    # An ignored signal stays ignored: that is what nohup(1) does to SIGHUP.
    before = {number: signal.getsignal(number) for number in handled}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    # Python calls `handle` between two instructions. A signal just before `select` would wait for the engine's next
    # event without the byte that the interpreter's own handler writes at once.
    woken_before = signal.set_wakeup_fd(stop.writing, warn_on_full_buffer=False) if handled else -1
    try:
        for number in before:
            signal.signal(number, handle)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if handled:
            signal.set_wakeup_fd(woken_before)
        stop.close()


class Start:
    """The instant at which the load of one run starts, set from any thread once all hosts are ready."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called once everything before the first operation is done. It must return at once."""
        self.on_ready = on_ready
        self.unix_ns: int | None = None
        """Unix time of the start on this host's clock; None until it is set."""
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def at(self, unix_ns: int) -> None:
        """Set the instant. The load starts at once if it has passed."""
        self.unix_ns = unix_ns
        os.eventfd_write(self._event, 1)

    def fileno(self) -> int:
        """Readable once the instant is set."""
        return self._event

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._event)
