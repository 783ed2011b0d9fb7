#!/usr/bin/env -S python3 -S
"""The real engine, in which processes are killed at an instant that depends on what it does.

`KILL` has JSON: `engine`, the real engine; `home`, with the target `data` and the result set `out`; `victim`, the process
group of the `session` that started the engine, or the `engine`; `at`: `bytes`, a file in the target has content;
`measure`, the measurement starts; `next`, the engine is about to start after another run. It happens once.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

GIVEN = json.loads(os.environ["KILL"])
HOME = Path(GIVEN["home"])
DONE = HOME / "killed"
"""Exists after the kill."""


def is_due(at: str) -> bool:
    return at == GIVEN["at"] and not DONE.exists()


def kill(engine: "subprocess.Popen[bytes]") -> None:
    DONE.touch()
    if GIVEN["victim"] == "session":
        os.killpg(os.getppid(), signal.SIGKILL)
    else:
        engine.kill()
        engine.wait()
        os.kill(os.getpid(), signal.SIGKILL)


def has_bytes() -> bool:
    with suppress(FileNotFoundError):  # Checkpoints come and go.
        return any(path.is_file() and path.stat().st_size for path in (HOME / "data").rglob("*"))
    return False


def main() -> NoReturn:
    command = [GIVEN["engine"], *sys.argv[1:]]
    if not any(argument.startswith(f"--identity={HOME}/") for argument in command):
        os.execv(command[0], command)  # It measures the cost of measuring.
    if is_due("next") and any((HOME / "out/records").glob("c*")):
        DONE.touch()
        os.killpg(os.getppid(), signal.SIGKILL)
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, close_fds=False)
    assert engine.stdout
    for line in engine.stdout:
        event = json.loads(line)
        if is_due("bytes") and event["event"] == "phase":
            while not has_bytes() and engine.poll() is None:
                pass
            kill(engine)
        elif is_due("measure") and event.get("phase") == "measure":
            kill(engine)
        with suppress(BrokenPipeError):
            os.write(1, line)
    sys.exit(engine.wait())


if __name__ == "__main__":
    main()
