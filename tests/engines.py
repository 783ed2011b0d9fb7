"""The engines that tests drive: the real one, and one that misbehaves on demand."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from command_line import CHECKOUT

from iosonde.errors import EngineError
from iosonde.execution.engine import find_engine

FAKE = Path(__file__).with_name("fake_engine.py")


def real_engine() -> Path:
    """The engine that setup installed next to this Python, or that `$IOSONDE_ENGINE` names: a release build."""
    return find_engine()


def clients_engine() -> Path:
    """The program for clients, built here unless `make test` has done that: it takes minutes."""
    program = "iosonde-engine-clients"
    with suppress(EngineError):
        return find_engine(program)
    subprocess.run([CHECKOUT / "scripts/build-clients", Path(sys.executable).parent], check=True)
    return find_engine(program)


def wrapped_engine(directory: Path, command: str) -> Path:
    """A program that runs the engine after or through a shell command."""
    script = directory / "iosonde-engine"
    script.write_text(f'#!/bin/sh\n{command} {real_engine()} "$@"\n')
    script.chmod(0o755)
    return script
