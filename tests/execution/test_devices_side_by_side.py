"""Devices of one run: all are guarded, claimed and written, and no byte beyond the planned ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from engines import real_engine
from loop_stacks import MIB, loop_devices

from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.execution.observer import Observer
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.plan import Plan, Run
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.signatures import EDGE_BYTES, MARK
from iosonde.storage.safety import guard
from iosonde.storage.safety.consent import Consent

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]

SIZE = 32 * MIB
SPAN = 8 * MIB
SETTINGS = {"span": "8MiB", "read_fraction": "0", "procedure.probe": "1s", "procedure.drain": "1s"}


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[Path]]:
    with loop_devices(tmp_path, SIZE, SIZE, SIZE) as found:
        yield found


def planned(devices: list[Path], **settings: str) -> Plan:
    target = open_target(",".join(map(str, devices)))
    return expand(load("shared-limits"), target, profile="quick", settings={**SETTINGS, **settings})


class Claims(Observer):
    """Notes after each run whether the devices are claimed."""

    def __init__(self, devices: list[Path]) -> None:
        self.numbers = [number_of(each) for each in devices]
        self.seen: list[bool] = []

    def run_ended(self, run: Run, record: Record) -> None:
        self.seen.append(all(map(guard.is_claimed, self.numbers)))


def test_all_devices_are_claimed_and_written_within_the_span(devices: list[Path], tmp_path: Path) -> None:
    plan = planned(devices)
    assert [each.path for each in plan.destroys] == list(map(str, devices))
    assert all(f"bytes 0 to {SPAN - 1} are lost (8 MiB of 32 MiB)" in each.what for each in plan.destroys)
    claims = Claims(devices)
    results = execute(plan, tmp_path / "set", consent=Consent(destroy=tuple(map(str, devices))), observer=claims)
    records = results.records()
    assert {record.outcome for record in records} == {"complete"}
    assert claims.seen == [True] * len(records)
    assert records[0].spec["workload"]["target"]["beside"] == [str(devices[1]), str(devices[2])]
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, SharingConclusion) and all(each.value > 0 for each in conclusion.found.together)
    written = results.usage.filter(pl.col("phase") == "measure", pl.col("write_bytes") > 0)
    assert set(written["device"].to_list()) >= {number_of(each) for each in devices}
    for number in range(3):
        content = (tmp_path / f"image-{number}").read_bytes()
        assert content.startswith(MARK)
        assert any(content[EDGE_BYTES:SPAN]) and not any(content[SPAN:])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_consent_for_each_device_is_required(devices: list[Path], place: int, tmp_path: Path) -> None:
    others = (*devices[:place], *devices[place + 1 :])
    with pytest.raises(TargetError, match=str(devices[place])):
        execute(planned(devices), tmp_path / "set", consent=Consent(destroy=tuple(map(str, others))))
    assert not any(any((tmp_path / f"image-{number}").read_bytes()) for number in range(3))


def test_a_second_device_that_another_program_holds_is_refused(devices: list[Path], tmp_path: Path) -> None:
    plan = planned(devices)
    holder = os.open(devices[1], os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(TargetError, match=f"`{devices[1]}`"):
            execute(plan, tmp_path / "set", consent=Consent(destroy=tuple(map(str, devices))))
    finally:
        os.close(holder)
    assert not any(any((tmp_path / f"image-{number}").read_bytes()) for number in range(3))
