"""Instruments around a run: their order, their readings, and their release after errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plans import hand_plan

from iosonde.errors import TargetError
from iosonde.execution import attempt as attempt_module
from iosonde.execution import execute
from iosonde.execution.engine import EngineRun, without_engine
from iosonde.execution.instruments import memory_limit
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading, RunInstruments
from iosonde.execution.instruments.memory_limit import MemoryLimit
from iosonde.results.schema import Failure, RecordWarning

CONTEXT: Any = SimpleNamespace()
DONE = without_engine(Failure(code="killed", message="killed"))


class Logged(Instrument):
    log: list[str]
    name = "logged"

    def start(self) -> None:
        self.log.append(f"{self.name} start")

    def stop(self, done: EngineRun) -> Reading:
        self.log.append(f"{self.name} stop")
        return Reading(facts={self.name: 1}, warnings=[RecordWarning(code=self.name, message="")])

    def close(self) -> None:
        self.log.append(f"{self.name} close")


def kinds(*names: str) -> tuple[list[type[Instrument]], list[str]]:
    log: list[str] = []
    return [type(name, (Logged,), {"name": name, "log": log}) for name in names], log


def test_the_last_to_start_is_the_first_to_stop() -> None:
    made, log = kinds("a", "b")
    with RunInstruments(made, CONTEXT) as around:
        around.start()
        reading = around.stop(DONE)
    assert log == ["a start", "b start", "b stop", "a stop", "b close", "a close"]
    assert reading.facts == {"a": 1, "b": 1}
    assert [warning.code for warning in reading.warnings] == ["b", "a"]


def test_what_was_started_is_closed_after_an_error() -> None:
    made, log = kinds("a", "b", "c")

    def refuse(self: Instrument) -> None:
        raise NotStartedError("refused", TargetError("no"))

    made[1].start = refuse  # type: ignore[method-assign]
    with pytest.raises(NotStartedError, match="no"), RunInstruments(made, CONTEXT) as around:
        around.start()
    assert log == ["a start", "b close", "a close"]


def test_a_row_in_the_list_is_all_that_a_new_instrument_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Extra(Instrument):
        def engine_started(self, pid: int) -> None:
            self.pid = pid

        def stop(self, done: EngineRun) -> Reading:
            return Reading(warnings=[RecordWarning(code="extra", message=str(self.pid == done.hello["pid"]))])

    monkeypatch.setattr(attempt_module, "INSTRUMENTS", [*attempt_module.INSTRUMENTS, Extra])
    result_set = execute(hand_plan(name="null:1MiB", repeats=1), tmp_path / "set")
    for record in result_set.records():
        assert ("extra", "True") in [(each.code, each.message) for each in record.warnings]


def test_a_kill_at_the_memory_limit_is_the_reason_of_the_failure() -> None:
    class Group:
        def facts(self) -> dict[str, Any]:
            return {"oom_kills": 1, "limit_bytes": 1 << 20, "swap_peak_bytes": None}

    ready = SimpleNamespace(swap_bytes=0)
    context: Any = SimpleNamespace(run=SimpleNamespace(spec={"workload": {"kind": "block"}}), ready=ready)
    limit = MemoryLimit(context)
    limit._group = Group()  # type: ignore[assignment]
    reading = limit.stop(DONE)
    assert reading.failure and reading.failure.code == "out_of_memory"
    assert reading.facts["memory"]["oom_kills"] == 1


@pytest.mark.parametrize(
    ("swap_peak", "swap_size", "message", "suggests_swap"),
    [
        (13 << 20, 512 << 20, "the kernel killed the engine with 13 MiB of 512 MiB swap used", False),
        (510 << 20, 512 << 20, "the kernel killed the engine with 510 MiB of 512 MiB swap used", True),
        (None, 0, "the kernel killed the engine", False),
    ],
)
def test_more_swap_is_suggested_only_where_it_was_full(
    swap_peak: int | None, swap_size: int, message: str, suggests_swap: bool
) -> None:
    """The kernel also kills where it cannot swap as fast as memory is used."""
    memory = {"oom_kills": 1, "limit_bytes": 112 << 20, "swap_peak_bytes": swap_peak}
    killed = Failure(code="killed", message="killed", context="", hint="")
    found = memory_limit._out_of_memory(memory, killed, is_external=False, swap_bytes=swap_size)
    assert found and found.message == f"the memory limit of 112 MiB is too small: {message}"
    assert ("more swap" in found.hint) == suggests_swap
