"""Events and errors of the engine arrive unchanged in Python."""

from __future__ import annotations

from typing import Any

import pytest
from engines import real_engine
from plans import null_spec

from iosonde import protocol
from iosonde.execution.engine import EngineRun, drive
from iosonde.execution.stop import Stop


def carry_out(spec: dict[str, Any]) -> EngineRun:
    stop = Stop()
    try:
        return drive(spec, on_event=lambda event: None, stop=stop, engine=real_engine())
    finally:
        stop.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": 99}, f"protocol {protocol.VERSION}, the spec "),
        ({"surprise": 1}, "the spec cannot be read: unknown field `surprise`"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_in_the_engines_own_words(change: dict[str, Any], message: str) -> None:
    done = carry_out({**null_spec("refused"), **change})
    assert done.failure
    assert done.failure.code == "invalid_spec"
    assert message in done.failure.message
    assert done.failure.hint
    assert done.child["exit_status"] == 1
