"""The session of one target, in a process of its own: a request as JSON in, progress and outcome as JSON Lines out.

Its standard input stays open as long as it may run: at the end of input, also because its parent was killed, it stops
like after Ctrl-C, and completed runs are kept.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from iosonde.errors import IosondeError
from iosonde.execution import Interrupted, resume
from iosonde.plan import Case, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import Record
from iosonde.storage.safety.consent import Consent

STOPPED, FAILED, ENDED, NOTE = "stopped", "failed", "ended", "note"


def answer(name: str, **facts: Any) -> None:
    """Write one message."""
    print(json.dumps({"is": name, **facts}), flush=True)


class Relay:
    """Passes notes of the session on."""

    def run_started(self, run: Run, case: Case) -> None:
        """Not reported."""

    def event(self, run: Run, event: Event) -> None:
        """Not reported."""

    def run_ended(self, run: Run, record: Record) -> None:
        """Not reported: records are on disk."""

    def note(self, text: str) -> None:
        """Report a message for the user."""
        answer(NOTE, text=text)


def main() -> None:
    """Carry out the missing runs of one result set."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    try:
        resume(
            request["directory"],
            observer=Relay(),
            retry_failed=request["retry_failed"],
            time_limit_s=request["time_limit_s"],
            consent=Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"])),
        )
    except (Interrupted, KeyboardInterrupt):
        answer(STOPPED)
    except IosondeError as error:
        answer(FAILED, because=str(error))
    else:
        answer(ENDED)


def _stop_at_end_of_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
