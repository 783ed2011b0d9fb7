"""Instruments around a run: their order, their readings, and their release after errors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments import conditions
from iosonde.execution.instruments.conditions import shared_devices
from iosonde.execution.instruments.database_server import accounts_of
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading, start, stop
from iosonde.execution.session import execute
from iosonde.features.swap_areas.run import SwapAreas
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Failure, RecordWarning
from iosonde.storage import open_target

CONTEXT: Any = SimpleNamespace()
DONE = EngineRun(failure=Failure(code="killed", message="killed"))


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
    instruments = [kind(CONTEXT) for kind in made]
    with ExitStack() as closing:
        start(instruments, closing)
        reading = stop(instruments, DONE)
    assert log == ["a start", "b start", "b stop", "a stop", "b close", "a close"]
    assert reading.facts == {"a": 1, "b": 1}
    assert [warning.code for warning in reading.warnings] == ["b", "a"]


def test_what_was_started_is_closed_after_an_error() -> None:
    made, log = kinds("a", "b", "c")

    def refuse(self: Instrument) -> None:
        raise NotStartedError("refused", TargetError("no"))

    made[1].start = refuse  # type: ignore[method-assign]
    with pytest.raises(NotStartedError, match="no"), ExitStack() as closing:
        start([kind(CONTEXT) for kind in made], closing)
    assert log == ["a start", "b close", "a close"]


def test_more_swap_is_suggested_only_where_it_was_full() -> None:
    """The kernel also kills where it cannot swap as fast as memory is used."""
    killed = Failure(code="killed", message="killed", context="", hint="")
    for peak, size, is_full in ((13 << 20, 512 << 20, False), (510 << 20, 512 << 20, True), (None, 0, False)):
        memory = {"oom_kills": 1, "limit_bytes": 112 << 20, "swap_peak_bytes": peak}
        found = conditions._out_of_memory(memory, killed, is_external=False, swap_bytes=size)
        assert found and found.message.startswith("the kernel killed the engine at its memory limit of 112 MiB")
        assert ("more swap" in found.hint) == is_full


def group(*devices: tuple[str, int, int], memory: dict[str, Any] | None = None) -> dict[str, Any]:
    counted = [{"device": name, "read_bytes": read, "write_bytes": written} for name, read, written in devices]
    return {"cpu_ns": 7, "devices": counted, "memory": memory}


def test_bytes_of_a_server_are_those_of_the_devices_of_its_data() -> None:
    """The kernel counts the same bytes at a loop device and at the disk below it."""
    found = accounts_of(group(("7:0", 4096, 0), ("254:0", 4096, 512)), {"7:0"})
    assert found == {"server_cpu_ns": 7, "group_read_bytes": 4096, "group_write_bytes": 0}
    two = group(("8:0", 1, 2), ("8:16", 10, 20))
    assert accounts_of(two, {"8:0", "8:16"})["group_read_bytes"] == 11
    assert accounts_of(two, {"0:33"})["group_write_bytes"] == 22, "a file system without a number of its own takes all"
    assert accounts_of(group(memory={"statistics": {"pgmajfault": 5}}), set())["server_major_faults"] == 5
    assert "group_read_bytes" not in accounts_of(group(), set())


def test_two_directories_of_a_file_system_share_its_device(tmp_path: Path) -> None:
    for name in ("data", "log"):
        (tmp_path / name).mkdir()
    assert shared_devices(tmp_path / "data", tmp_path / "log")
    assert shared_devices(tmp_path, Path("/proc")) == []


STUDY = """
name = "short"
title = "Short"
question = "?"
repeats = 3
measurement = { span = "1MiB", duration = "100ms", interval = "100ms" }
[[parts]]
[profiles.standard]
"""


def test_the_record_is_kept_when_swap_cannot_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to_close(instrument: SwapAreas) -> None:
        raise TargetError("cannot turn off the swap area", hint="`iosonde cleanup` tries again")

    monkeypatch.setattr(SwapAreas, "close", refuse_to_close)
    (tmp_path / "data").mkdir()
    with pytest.raises(TargetError, match="cannot turn off"):
        execute(expand(parse(STUDY), open_target(str(tmp_path / "data"))), tmp_path / "results")
    [record] = ResultSet.open(tmp_path / "results").records()
    assert record.failure is None
    [warning] = [each for each in record.warnings if each.code == "not_restored"]
    assert "swap area" in warning.message
    assert "cleanup" in warning.hint
