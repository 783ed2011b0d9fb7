"""The engines that tests drive: the real one, and one that misbehaves on demand."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution.engine import find_engine

FAKE = Path(__file__).with_name("fake_engine.py")


def real_engine() -> Path:
    """The engine that setup installed beside this Python, or that `$IOSONDE_ENGINE` names: a release build."""
    return find_engine()
