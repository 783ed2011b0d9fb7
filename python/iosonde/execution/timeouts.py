"""Timeouts of the engine's steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """In seconds."""

    hello_s: float = 30
    """Until `hello`."""
    silence_s: float = 120
    """Without an event under load, beyond the length of an interval."""
    stop_s: float = 0.3
    """To exit after `stop`; then it gets SIGTERM."""
    terminate_s: float = 0.15
    """To exit after SIGTERM; then it gets SIGKILL. Ctrl-C must take less than a second in all."""
    end_s: float = 120
    """To end a measurement that is kept: I/O in flight completes, and the state of a simulated drive is written."""
    exit_s: float = 5
    """To exit after its last event."""
