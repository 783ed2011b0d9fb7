"""The engines that tests drive: the real one, and one that misbehaves on demand."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution.engine import find_engine

FAKE = Path(__file__).with_name("fake_engine.py")


def real_engine() -> Path:
    """The engine that setup installed next to this Python, or that `$IOSONDE_ENGINE` names: a release build."""
    return find_engine()


def wrapped_engine(directory: Path, command: str) -> Path:
    """A program that runs the engine after or through a shell command."""
    script = directory / "iosonde-engine"
    script.write_text(f'#!/bin/sh\n{command} {real_engine()} "$@"\n')
    script.chmod(0o755)
    return script
