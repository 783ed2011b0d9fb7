"""The engines that tests drive: the real one, and one that misbehaves on demand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iosonde.errors import EngineError
from iosonde.execution.engine import find_engine

FAKE = Path(__file__).with_name("fake_engine.py")


def real_engine() -> Path:
    """The engine that was built for this checkout; without one the test is skipped, and says so."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[1] / "target"))
    built = [path for path in (target / "release/iosonde-engine", target / "debug/iosonde-engine") if path.exists()]
    try:
        return built[0] if built else find_engine()
    except EngineError as error:
        pytest.skip(f"needs the engine, which is not built: {error.what}")
