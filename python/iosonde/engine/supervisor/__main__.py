"""`python -m iosonde.engine.supervisor`: read a spec from standard input, carry it out, write events to its output."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from iosonde.engine.supervisor.run import CommandRun, Events
from iosonde.engine.supervisor.watch import FailedError, StoppedError

_IDENTITY = "--identity="


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    identities = dict(each.removeprefix(_IDENTITY).rsplit("=", 1) for each in arguments if each.startswith(_IDENTITY))
    signal.signal(signal.SIGTERM, _stop)
    events = Events(os.dup(1))
    os.dup2(2, 1)
    try:
        line = _first_line()
        if not line:
            return 0
        events.hello()
        spec = json.loads(line)
        if "start" in spec:
            raise FailedError(
                "unsupported",
                "`start` is not supported for external commands",
                hint="compare hosts with a workload of the engine, or run the study on each host by itself",
            )
        CommandRun(spec, events, identities).carry_out()
    except StoppedError:
        return 0
    except FailedError as error:
        events.write("error", code=error.code, message=error.message, context=error.context, hint=error.hint)
        return 1
    except OSError as error:
        named = f"`{error.filename}`: " if error.filename else ""
        events.write("error", code="io", message=f"{named}{error.strerror or error}", context="", hint="")
        return 1
    return 0


def _first_line() -> bytes:
    """The spec, and nothing beyond it: what follows is a request to stop."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 1 << 16)
        if not data:
            return bytes(line)
        line += data
    return bytes(line)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
