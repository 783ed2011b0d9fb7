"""An engine that is stopped while `iosonde run` measures: a verdict, marked intervals, and no claim from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from command_line import CHECKOUT
from engines import measuring_engine, real_engine

from iosonde.metrics.metrics import stalled_intervals
from iosonde.report import figures
from iosonde.results import ResultSet

MEASURED_S = 14
STUDY = f"""
name = "stopped"
title = "A stopped engine"
question = "How fast is it?"
repeats = 1

[measurement]
span = "16MiB"
ramp = "0s"
duration = "{MEASURED_S}s"
interval = "500ms"

[[parts]]
name = "main"

[parts.factors]
queue_depth = [16]

[profiles.standard]

[[views]]
kind = "timeseries"
title = "IOPS over time"
part = "main"
x = "queue_depth"
y = "iops"
"""
STOPPED_S = 3.0


@pytest.mark.needs("disk")
def test_an_engine_stopped_for_three_seconds_is_no_slow_device(tmp_path: Path) -> None:
    (tmp_path / "stopped.toml").write_text(STUDY)
    target, output = tmp_path / "data", tmp_path / "results"
    target.mkdir()
    command = [sys.executable, "-m", "iosonde", "run", tmp_path / "stopped.toml", "--target", target, "-o", output]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        before = time.monotonic()
        while (engine := measuring_engine(running.pid, target)) is None:
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
            before = time.monotonic()
        time.sleep(0.7)
        os.kill(engine, signal.SIGSTOP)
        # Least part of the stop in the measurement: this process may have waited for a CPU before.
        inside_s = min(STOPPED_S, MEASURED_S - (time.monotonic() - before))
        time.sleep(STOPPED_S)
        os.kill(engine, signal.SIGCONT)
        printed, _ = running.communicate(timeout=300)
    assert running.returncode == 0, printed.decode()
    assert inside_s > 0.5, "stopped too late to be observed"
    done = ResultSet.open(output)
    [record] = done.records()
    assert record.verdict
    assert record.verdict.kind == "undetermined", record.verdict
    assert "engine_stalled" in {warning.code for warning in record.warnings}
    assert (record.verdict.evidence["longest_stall_ns"] or 0) > 0.9 * inside_s * 1e9
    stalled = done.intervals.filter(pl.col("engine_stalled_ns") > 0)
    assert stalled["engine_stalled_ns"].sum() > 0.9 * inside_s * 1e9
    marked = stalled_intervals(done)
    assert len(marked) >= inside_s / 0.5 - 1
    [figure] = [each for each in figures([done]) if each.title == "IOPS over time"]
    assert figure.rows["stalled"].sum() == len(marked)
    assert "stalled" in figure.caption
