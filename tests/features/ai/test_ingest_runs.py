"""Ingest as runs: the system calls of one accelerator, and a search on a simulated drive of known bandwidth."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine

from iosonde.execution.session import execute
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.planning.procedure import conclusions
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.study.workload import named

INGEST = named("ai_ingest")
SMALL = {
    "files": 8,
    "samples_per_file": 2,
    "record_size": "1MiB",
    "batch": 2,
    "read_threads": 1,
    "prefetch": 1,
    "compute_time": "10ms",
    "request_size": "1MiB",
    "ramp": "0s",
    "duration": "300ms",
    "interval": "100ms",
}


def traced(target: Path, log: Path, **parameters: Any) -> list[list[tuple[str, str]]]:
    """Calls of each reading thread after the gate: name and the part of a file."""
    streams = {"main": INGEST.build({**SMALL, **parameters})}
    spec = INGEST.resolve(streams, open_target(str(target)), seed=1, run_id="r")
    Path(spec["workload"]["target"]["path"]).mkdir(parents=True, exist_ok=True)
    command = ["strace", "-f", "-y", "-s", "0", "-e", "trace=openat,pread64,close", "-o", str(log), str(real_engine())]
    subprocess.run(command, input=json.dumps(spec), text=True, capture_output=True, timeout=120, check=True)
    threads: dict[str, list[tuple[str, str]]] = {}
    started: dict[str, str] = {}
    for line in log.read_text().splitlines():
        thread, call = line.split(None, 1)
        if call.endswith("<unfinished ...>"):
            started[thread] = call.removesuffix("<unfinished ...>")
            continue
        call = re.sub(r"^<\.\.\. \w+ resumed>", lambda _, thread=thread: started.pop(thread), call)
        if "ingest-0" in call and "O_RDWR" not in call:
            name, arguments = call.split("(", 1)
            found = re.search(r"O_RDONLY[|\w]*|\d+, \d+(?=\)\s+=)", arguments)
            threads.setdefault(thread, []).append((name, found[0] if found else ""))
    return [calls for calls in threads.values() if any(name == "pread64" for name, _ in calls)]


@pytest.mark.system
@pytest.mark.needs("strace")
def test_one_reader_makes_the_declared_calls(tmp_path: Path) -> None:
    [calls] = traced(tmp_path, tmp_path / "log", loader="samples")
    names = [name for name, _ in calls]
    assert names[: 3 * (len(names) // 3)] == ["openat", "pread64", "close"] * (len(names) // 3)
    assert all("O_DIRECT" in detail for name, detail in calls if name == "openat")
    assert {detail for name, detail in calls if name == "pread64"} == {"1048576, 0", "1048576, 1048576"}

    [calls] = traced(tmp_path, tmp_path / "log", loader="interleaved", io_mode="buffered")
    names = [name for name, _ in calls]
    assert names[: 4 * (len(names) // 4)] == ["openat", "pread64", "pread64", "close"] * (len(names) // 4)
    assert not any("O_DIRECT" in detail for _, detail in calls)
    assert [detail for name, detail in calls if name == "pread64"][:2] == ["1048576, 0", "1048576, 1048576"]


STUDY = """
name = "fed"
title = "Fed"
question = "How many?"
workload = "ai_ingest"
repeats = 1
measurement = { files = 64, samples_per_file = 4, record_size = "256KiB", batch = 8, compute_time = "40ms", interval = "100ms" }

[[parts]]
name = "main"
title = "Main"
measurement = { ramp = "2s", duration = "10s" }

[parts.search]
over = "accelerators"
between = [1, 8]
holds = "accelerator_utilization >= 0.9"

[profiles.standard]
"""


@pytest.mark.engine
def test_a_search_ends_with_the_number_that_a_simulated_volume_feeds(tmp_path: Path) -> None:
    """128 MiB/s; an accelerator needs 2 MiB in 40 ms, so it feeds 2.56."""
    plan = expand(parse(STUDY), open_target("sim:gp2-100g"), profile="standard")
    results = execute(plan, tmp_path / "results", consent=Consent())
    [(_, found)] = conclusions(results)
    assert isinstance(found, SearchConclusion)
    assert (found.value, found.fails_at) == (2, 3)
    rows = run_metrics(results).filter(pl.col("metric") == "accelerator_utilization", pl.col("operation") == "all")
    utilization = dict(zip((row.rpartition("=")[2] for row in rows["case_id"]), rows["value"], strict=True))
    expected = {"1": 1.0, "2": 1.0, "3": 2.56 / 3, "4": 2.56 / 4}
    assert utilization == pytest.approx(expected, rel=0.02)
