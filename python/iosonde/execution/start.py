"""The start of a load at an instant that several hosts agree on."""

from __future__ import annotations

import os
from collections.abc import Callable


class Start:
    """The instant at which the load of one run starts, set from any thread once all hosts are ready.

    It has a file descriptor, so that one `select(2)` waits for it, for the engine's next event and for Ctrl-C.
    """

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
