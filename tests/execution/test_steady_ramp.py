"""A ramp that ends once rate and hit ratio are steady, on simulated devices, stores and the page cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.study.model import Study

SECOND = 10**9
Measure = Callable[..., Record]
DRIVE = "simulated:servers=1,read=100us,size=1GiB"


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    numbers = iter(range(10))

    def run(target: str | Path, workload: str = "block", **measurement: Any) -> Record:
        study = Study.model_validate(
            {
                "name": "one", "title": "One case", "question": "When is it warm?", "repeats": 1,
                "workload": workload, "measurement": measurement, "parts": [{"name": "main"}],
                "profiles": {"standard": {}},
            }
        )  # fmt: skip
        [record] = execute(expand(study, open_target(str(target))), tmp_path / f"set{next(numbers)}").records()
        assert record.failure is None, record.failure
        return record

    return run


def ramp_ns(record: Record) -> int:
    assert record.result
    return int(record.result["begin_ns"])


def codes(record: Record) -> set[str]:
    return {warning.code for warning in record.warnings}


def test_a_constant_rate_is_steady_after_ten_intervals_and_every_time_the_same(measure: Measure) -> None:
    """Five intervals of 100 ms are compared with five before; the simulated clock makes it repeatable."""
    settings = {"ramp": "60s", "ramp_until": "steady", "duration": "1s", "interval": "100ms"}
    first, second = (measure(DRIVE, **settings) for _ in range(2))
    assert SECOND <= ramp_ns(first) < SECOND + SECOND // 5
    assert ramp_ns(first) == ramp_ns(second)
    assert "ramp_not_steady" not in codes(first)


def test_a_ramp_too_short_to_be_judged_ends_at_its_limit_with_a_warning(measure: Measure) -> None:
    record = measure(DRIVE, ramp="500ms", ramp_until="steady", duration="1s", interval="100ms")
    assert ramp_ns(record) == SECOND // 2
    assert "ramp_not_steady" in codes(record)


def test_without_it_the_ramp_lasts_its_time(measure: Measure) -> None:
    assert ramp_ns(measure(DRIVE, ramp="3s", duration="1s", interval="100ms")) == 3 * SECOND


@pytest.mark.needs("disk")
def test_a_cold_start_is_a_warning_unless_the_study_names_it(measure: Measure, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    buffered = {"io_mode": "buffered", "span": "16MiB", "duration": "300ms", "interval": "100ms"}
    assert "cold_start" in codes(measure(directory, **buffered, ramp="0s"))
    named = measure(directory, **buffered, start="cold")
    assert ramp_ns(named) == 0 or named.spec["workload"]["ramp"]["duration_ns"] == 0
    assert "cold_start" not in codes(named)


@pytest.mark.parametrize(
    ("phase", "ramp"), [("ycsb_a", "2s"), ("ycsb_d", "200ms"), ("ycsb_e", "200ms"), ("ycsb_f", "200ms")]
)
@pytest.mark.needs("disk")
def test_ycsb_reads_back_every_field_that_it_updates(measure: Measure, tmp_path: Path, phase: str, ramp: str) -> None:
    """Hashed keys, ten fields and a growing key space; every value that is read is compared."""
    directory = tmp_path / "data"
    directory.mkdir()
    record = measure(
        directory, "kv", phase=phase, store="lmdb", records="5000", value_size=1000, fields=10, key_order="hashed",
        jobs=2, page_cache="warm", ramp=ramp, ramp_until="steady", duration="60s", interval="100ms", limit_operations=5000,
        lmdb={"mapsize": 4 << 30},  # Where the CPUs are busy, a job may hold old pages for long.
    )  # fmt: skip
    [description] = [record.spec["workload"]["records"]]
    assert (description["fields"], description["key_order"]) == (10, "hashed")
    assert record.result
    checks = record.result["store"]["checks"]
    assert sum(check["values"] for check in checks) > 1000
    assert sum(check["missing"] + check["corrupted"] for check in checks) == 0
    operations = {check["operation"] for check in checks if check["values"]}
    assert operations >= {"ycsb_a": {"read", "write"}, "ycsb_d": {"read"}, "ycsb_e": {"scan"},
                          "ycsb_f": {"read", "read_modify_write"}}[phase]  # fmt: skip
