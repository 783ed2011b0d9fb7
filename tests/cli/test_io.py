from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import FAKE, real_engine
from typer.testing import CliRunner, Result

from iosonde.cli import app
from iosonde.errors import IosondeError
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.verdict.verdict import KINDS

SHORT = ("--duration", "300ms", "--ramp", "100ms", "--set", "interval=100ms")


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def io(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["io", *arguments])


def test_a_device_that_may_be_overwritten_must_be_part_of_the_target(tmp_path: Path, iosonde: Iosonde) -> None:
    """One of the options names the wrong device."""
    for command in ("io",), ("run", "quick"):
        done = iosonde(*command, "--target", tmp_path, "--destroy", "/dev/nvme9n9")
        assert done.returncode == 1
        assert "`--destroy /dev/nvme9n9` must name a device of the target" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_measurement_is_a_line_an_interval_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = io(
        *("--target", str(tmp_path / "data"), "--access", "random", "--block-size", "4KiB", "--queue-depth", "8"),
        *("--read-fraction", "0.7", "--span", "4MiB", "--io-mode", "buffered", *SHORT),
    )
    assert done.exit_code == 0, done.exception
    lines = [line for line in done.stderr.splitlines() if re.search(r"IOPS .*B/s +p99 ", line)]
    assert any(line.endswith("(ramp)") for line in lines)
    assert any(not line.endswith("(ramp)") for line in lines)
    table = done.stdout.splitlines()
    assert table[0].split() == ["read", "write", "all"]
    assert table.pop(-2).split(": ")[0] in KINDS, "the verdict with its first reason"
    percentiles = [f"completion latency {name}" for name in ("mean", "p50", "p90", "p99", "p99.9", "max")]
    note = "closed loop: the next I/O starts when one completes"
    assert [line.split("  ")[0] for line in table[1:]] == ["IOPS", "bandwidth", *percentiles, note]
    assert list((tmp_path / "data").iterdir()) == []


def test_open_loop_has_two_latencies_and_a_percentile_with_too_few_samples_is_a_dash() -> None:
    done = io(
        "--target",
        "null:1MiB",
        "--span",
        "1MiB",
        "--rate",
        "2k",
        "--set",
        "limit_operations=60",
        *SHORT,
        "--duration",
        "1h",
    )
    assert done.exit_code == 0, done.exception
    rows = {line[:24].strip(): line[24:].strip() for line in done.stdout.splitlines()}
    assert rows["completion latency p99"] == "-"
    assert rows["response latency p50"] != "-"


def test_it_is_the_same_as_a_study_of_one_case(tmp_path: Path) -> None:
    done = io("--target", "null:1MiB", "--span", "1MiB", "--json", "--output", str(tmp_path / "set"), *SHORT)
    record = Record.model_validate_json(done.stdout)
    assert [record] == ResultSet.open(tmp_path / "set").records()
    assert record.outcome == "complete"
    assert record.parameters["block_size"] == 4096


@pytest.mark.parametrize(
    ("how", "arguments", "problem"),
    [
        ("no space", (), "cannot write to `/data/file`: no space left on device\n  phase `layout`\n\nhint: make room"),
        (
            "well",
            ("--block-size", "4KX"),
            "`block_size` cannot be `4KX`: `KX` is not a unit of size\n  in `--block-size 4KX`",
        ),
    ],
)
def test_a_failed_measurement_and_a_wrong_value_are_errors(
    how: str, arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": how}))
    done = io("--target", "null:1MiB", "--span", "1MiB", *arguments, *SHORT)
    assert isinstance(done.exception, IosondeError)
    assert str(done.exception).startswith(problem)
