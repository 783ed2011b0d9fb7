"""Shipped studies of other benchmarks, each with the real program, as short as it goes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import polars as pl
import pytest

from iosonde.data import adapters
from iosonde.execution.session import execute
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import commands
from iosonde.planning import expand, load
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

SHORT: dict[str, dict[str, str]] = {
    "command-fio": {"queue_depth": "4", "duration": "1s", "size": "4M", "space": "16MiB"},
    "command-db-bench": {"threads": "2", "cache_size": "8MiB", "records": "2000", "reads": "1000", "space": "64MiB"},
    "command-db-bench-read-cache": {"threads": "2", "read_cache": "on the target", "records": "2000", "reads": "1000"},
    "command-pgbench": {"clients": "2", "duration": "1s"},
    "command-sysbench-fileio": {"threads": "1", "mode": "buffered", "duration": "5s", "size": "4M", "space": "16MiB"},
    "command-sysbench-oltp": {"threads": "1", "duration": "5s", "rows": "100"},
    "command-memcaslap": {"tier": "extstore", "clients": "4", "duration": "1s"},
}
"""Settings by study; each leaves one case and its control. sysbench reports what was done each second."""

NEEDS = {
    "command-fio": ("fio",),
    "command-db-bench": ("db_bench",),
    "command-db-bench-read-cache": ("db_bench",),
    "command-pgbench": ("pgbench", "postgres"),
    "command-sysbench-fileio": ("sysbench",),
    "command-sysbench-oltp": ("sysbench", "mariadbd"),
    "command-memcaslap": ("memcaslap", "memcached", "root"),
}

CASES = [pytest.param(name, marks=pytest.mark.needs(*NEEDS[name])) for name in SHORT]


@pytest.mark.extended
@pytest.mark.system
@pytest.mark.parametrize("name", CASES)
def test_an_adapter_reads_every_metric_of_the_real_program(name: str, reachable: Path, tmp_path: Path) -> None:
    plan = expand(load(name), open_target(str(reachable)), profile="quick", repeats=1, settings=SHORT[name])
    result_set = execute(plan, tmp_path / "set", consent=Consent(commands=commands.commands_hash(plan)))
    assert [record.failure for record in result_set.records() if record.failure] == []
    named = load(name).measurement["metrics"]
    values = run_metrics(result_set).filter(pl.col("metric").is_in(list(named)), ~pl.col("control"))
    assert set(values["metric"]) == set(named) and values["value"].min() > 0  # type: ignore[operator]
    programs = [(record.result or {})["command"]["programs"] for record in result_set.records()]
    assert all(any(each["version"] for each in found.values()) for found in programs)
    assert not list(reachable.iterdir())
    if NEEDS[name][-1] in ("postgres", "mariadbd"):
        assert all((record.server or {})["shutdown"]["orderly"] for record in result_set.records())


def test_every_adapter_is_tested_with_its_program_but_those_that_need_a_cluster_or_a_drive() -> None:
    assert set(adapters()) - set(SHORT) == {"command-rados-bench", "command-fio-xnvme", *IMITATED}


IMITATED = {
    "command-spdk-perf": (
        "spdk_nvme_perf",
        f"""#!{sys.executable}
import getopt, sys
options = dict(getopt.getopt(sys.argv[1:], "r:w:o:q:t:c:L")[0])
kinds, depth, name = {{"-r", "-w", "-o", "-q", "-t", "-c", "-L"}}, int(options["-q"]), "PCIE (0000:03:00.0) NSID 1"
assert set(options) == kinds and options["-w"] == "randread" and options["-r"] == "trtype:PCIe traddr:0000:03:00.0"
numbers = (1e7 * depth, 1e7 * depth * int(options["-o"]) / 2**20, 9.87, 8.12, 123456.789)
print("Initializing NVMe Controllers")
print("========================================================")
print("%*s" % (len(name) + 60, "Latency(us)"))
heads = ("Device Information", "IOPS", "MiB/s", "Average", "min", "max")
print("%-*s: %10s %10s %10s %10s %10s" % (len(name) + 13, *heads))
print("%-*.*s from core %2u: %10.2f %10.2f %10.2f %10.2f %10.2f" % (len(name), len(name), name, 0, *numbers))
print("========================================================")
print("%-*s: %10.2f %10.2f %10.2f %10.2f %10.2f" % (len(name) + 13, "Total", *numbers))
print()
print("Summary latency data for %-43.43s from core %u:" % (name, 0))
print("=================================================================================")
for fraction, microseconds in ((0.5, 9.728), (0.99, 114208.123), (0.9999999, 123456.789)):
    print("%9.5f%% : %9.3fus" % (fraction * 100, microseconds))
""",
        {"address": "0000:03:00.0", "queue_depth": "4", "duration": "1s"},
        {"spdk_iops": 4e7, "spdk_latency": 9_870, "spdk_p99": 114_208_123},
    ),
}
"""A program in the place of one that no package has, with settings and expected values. It prints with the formats of
`print_performance` and `check_cutoff` in SPDK's `app/spdk_nvme_perf/perf.c`, and numbers as wide as they get."""


def test_an_adapter_reads_every_metric_of_an_imitated_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = IMITATED
    program, script, settings, expected = IMITATED[name]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(script)
    (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "target").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    target = open_target(str(tmp_path / "target"))
    plan = expand(load(name), target, profile="quick", repeats=1, settings=settings)
    results = execute(plan, tmp_path / "set", consent=Consent(commands=commands.commands_hash(plan)))
    assert [record.failure for record in results.records() if record.failure] == []
    values = run_metrics(results).filter(~pl.col("control"))
    found = dict(values.select("metric", "value").iter_rows())
    named = load(name).measurement["metrics"]
    assert set(named) <= set(found) and all(found[each] > 0 for each in named), found
    assert {each: found[each] for each in expected} == pytest.approx(expected)


def test_options_of_fio_in_adapters_are_those_of_fio() -> None:
    known = set((Path(__file__).parents[1] / "interop" / "fio_options.txt").read_text().split())
    known |= {"output-format"}  # An option of the program, not of a job.
    for name in ("command-fio", "command-fio-xnvme"):
        given = load(name).measurement["command"][1:]
        assert {each.removeprefix("--").partition("=")[0] for each in given} <= known
    read, of_xnvme = (
        [each["json"] for each in load(name).measurement["metrics"].values()]
        for name in ("command-fio", "command-fio-xnvme")
    )
    assert read == of_xnvme, "fio with another I/O engine prints the same"
    # xNVMe's `nil` completes every I/O without carrying it out; SPDK's driver is its interface `nvme`.
    study = load("command-fio-xnvme")
    advised = re.findall(r"interface=(\w+)", study.description)
    assert [study.measurement["interface"], *advised] == ["io_uring_cmd", "nvme"]
