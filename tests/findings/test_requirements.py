"""Requirements of a study on simulated devices of known latency: outcome, value, interval, margin, order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from iosonde.errors import StudyError
from iosonde.execution import execute
from iosonde.findings.outcome import Result
from iosonde.findings.requirements import overall, results_of
from iosonde.planning import expand, parse
from iosonde.report.content.report import collect
from iosonde.report.writers import html, markdown, terminal
from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict, RecordWarning
from iosonde.storage import open_target
from iosonde.units import format_latency

pytestmark = pytest.mark.engine

STUDY = """
name = "log"
title = "Log device"
question = "Is it fast enough?"
repeats = {repeats}

[measurement]
access = "sequential"
read_fraction = 0.0
durability = "flush:1"
span = "16MiB"
ramp = "1s"
duration = "{duration}"
interval = "100ms"

[[parts]]
name = "wal"

[profiles.standard]
"""
REQUIREMENT = """
[[requirement]]
name = "{name}"
part = "wal"
holds = "{holds}"
level = "{level}"
means = "Commits wait."

[requirement.source]
title = "Manual"
publisher = "Example"
version = "1.0"
"""


def study(*requirements: tuple[str, str, str], duration: str = "60s", repeats: int = 1) -> str:
    tables = [REQUIREMENT.format(name=name, holds=holds, level=level) for name, holds, level in requirements]
    return STUDY.format(duration=duration, repeats=repeats) + "".join(tables)


def measured(directory: Path, text: str, target: str = "servers=1,write=1ms,service=exponential") -> ResultSet:
    return execute(expand(parse(text), open_target(f"simulated:{target},size=1GiB")), directory / "set")


P99 = 4.605
"""99th percentile of an exponential service time, in means: a flush takes 4.6 ms where the mean is 1 ms."""


def outcomes(results: ResultSet) -> dict[str, Result]:
    return {each.requirement.name: each for each in results_of(results)}


def test_each_requirement_passes_fails_or_is_undecided_and_the_worst_is_first(tmp_path: Path) -> None:
    text = study(
        ("p99 far below", "flush.completion_latency_ns_p99 < 10ms", "required"),
        ("p99 above", "flush.completion_latency_ns_p99 < 3 ms", "required"),
        ("p99 at the limit", "flush.completion_latency_ns_p99 < 4.6ms", "recommended"),
        ("mean", "flush.completion_latency_ns_mean < 1.2ms", "required"),
        ("rate", "write.iops >= 400 IOPS", "required"),
        ("high rate", "iops >= 1k", "recommended"),
        ("bandwidth", "bandwidth >= 1MB/s", "required"),
        ("share", "flush.completion_latency over 5ms < 5%", "required"),
    )
    results = measured(tmp_path, text)
    listed = results_of(results)
    assert [(each.requirement.name, each.outcome) for each in listed] == [
        ("p99 above", "fail"),
        ("high rate", "fail"),
        ("p99 at the limit", "undecided"),
        ("mean", "pass"),
        ("rate", "pass"),
        ("p99 far below", "pass"),
        ("share", "pass"),
        ("bandwidth", "pass"),
    ]
    by_name = outcomes(results)
    p99 = by_name["p99 far below"]
    assert p99.value and p99.low and p99.high and p99.margin
    assert p99.low < P99 * 1e6 < p99.high < 10e6 and abs(p99.margin - (1 - p99.value / 10e6)) < 1e-9
    metrics = results.sql(
        "SELECT value FROM metrics WHERE operation = 'flush' AND metric = 'completion_latency_ns_p99'"
    )
    assert p99.value == metrics["value"].item()
    assert by_name["rate"].margin == pytest.approx(0.25, abs=0.05)
    assert by_name["p99 at the limit"].reason == "the interval contains the limit"
    assert re.fullmatch("median flush [0-9]+ µs, median write [0-9]+ µs", by_name["p99 above"].reason)
    assert by_name["high rate"].reason == ""
    assert overall(listed) == "fail"
    assert overall([each for each in listed if each.requirement.level == "recommended"]) == "fail"


def test_a_short_run_decides_nothing(tmp_path: Path) -> None:
    [result] = results_of(
        measured(tmp_path, study(("p99", "flush.completion_latency_ns_p99 < 10ms", "required"), duration="3s"))
    )
    assert (result.outcome, result.reason) == ("undecided", "measured for 3 s; at least 10 s required")


def test_other_metrics_are_judged_by_the_interval_of_their_repeats(tmp_path: Path) -> None:
    requirement = ("extreme", "flush.completion_latency_ns_max < 1s", "required")
    [once] = results_of(measured(tmp_path / "once", study(requirement, duration="1s")))
    assert (once.outcome, once.reason) == ("undecided", "1 repeat; at least 3 required")
    [often] = results_of(measured(tmp_path / "often", study(requirement, duration="1s", repeats=5)))
    assert often.outcome == "pass" and often.high and often.high < 1e9


@pytest.mark.parametrize("kind", ["cache-served", "harness-limited", "undetermined"])
def test_a_run_that_the_device_did_not_limit_neither_passes_nor_fails(tmp_path: Path, kind: Any) -> None:
    results = measured(tmp_path, study(("p99", "flush.completion_latency_ns_p99 < 10ms", "required")))
    assert results_of(results)[0].outcome == "pass"
    verdict = RecordVerdict(kind=kind, because=["something else did"], evidence={})
    judged = {key: each.model_copy(update={"verdict": verdict}) for key, each in results._contents.records.items()}
    results._contents.records.update(judged)
    [result] = results_of(results.only(list(judged)))
    assert (result.outcome, result.reason) == ("undecided", f"{kind}: something else did")
    assert result.value


LATENCY, RATE = "flush.completion_latency_ns_p99 < 10ms", "write.iops >= 300 IOPS"
NO_CPU = {"stalled_share": 0.01, "cpu_wait_share": 0.02, "steal_share": 0.03}


def under(directory: Path, holds: str, *codes: str, kind: Any = "undetermined", lost: Any = None) -> Result:
    """Return the result of a requirement on a run with these warnings."""
    results = measured(directory, study(("p99", holds, "required")))
    verdict = RecordVerdict(kind=kind, because=["someone else"], evidence=NO_CPU if lost is None else lost)
    warnings = [RecordWarning(code=code, message="someone else") for code in codes]
    change = {"verdict": verdict, "warnings": warnings}
    judged = {key: each.model_copy(update=change) for key, each in results._contents.records.items()}
    results._contents.records.update(judged)
    return results_of(results.only(list(judged)))[0]


@pytest.mark.parametrize(
    ("holds", "codes", "kind"),
    [
        (LATENCY, ["steal_time"], "undetermined"),
        (LATENCY, ["other_io", "cpu_contention", "cpu_governor"], "undetermined"),
        (RATE, ["engine_stalled", "foreign_interrupts"], "undetermined"),
        (RATE, ["core_saturated"], "harness-limited"),
    ],
)
def test_a_clear_pass_in_spite_of_what_only_slows_is_a_pass(
    tmp_path: Path, holds: str, codes: list[str], kind: Any
) -> None:
    result = under(tmp_path, holds, *codes, kind=kind)
    assert (result.outcome, result.reason) == (
        "pass",
        "in spite of a disturbance that only slows: someone else",
    )


RULE = "a disturbed run passes only if its value is 30 % within the limit, and never fails"


@pytest.mark.parametrize(
    "holds",
    [
        LATENCY.replace("10ms", "3ms"),  # Beyond the limit.
        LATENCY.replace("10ms", "5.5ms"),  # Within it, and not clear of it.
        RATE.replace("300", "600"),
        RATE.replace("300", "450"),
    ],
)
def test_a_disturbed_run_never_fails_and_passes_with_a_margin_only(tmp_path: Path, holds: str) -> None:
    result = under(tmp_path, holds, "steal_time")
    assert (result.outcome, result.reason) == ("undecided", f"undetermined: someone else; {RULE}")


@pytest.mark.parametrize(
    ("holds", "codes", "changes"),
    [
        (LATENCY, ["steal_time", "reads_from_memory"], {}),
        (RATE, ["other_io", "span_fits_device_cache"], {}),
        (RATE, ["cpu_contention", "burst_rate"], {}),
        (RATE, ["hot_device"], {}),
        (RATE, ["late_counters", "steal_time"], {}),
        (RATE, ["queue_too_short"], {}),
        (RATE, ["null_backend"], {"kind": "harness-limited"}),
        (RATE, ["steal_time"], {"kind": "cache-served"}),
        (RATE.replace(">= 300", "< 900"), ["steal_time"], {}),
        (LATENCY.replace("p99", "max"), ["steal_time"], {}),
        (LATENCY, ["core_saturated"], {"kind": "harness-limited"}),
        (LATENCY, ["cpu_contention"], {"lost": {**NO_CPU, "cpu_wait_share": 0.3}}),
        (LATENCY, ["cpu_contention"], {"lost": {}}),
    ],
)
def test_what_can_make_storage_look_faster_leaves_a_requirement_undecided(
    tmp_path: Path, holds: str, codes: list[str], changes: dict[str, Any]
) -> None:
    """A cache, credits, heat and a load that was not applied: a closed loop without a CPU submits less."""
    assert under(tmp_path, holds, *codes, **changes).outcome == "undecided"


@pytest.mark.parametrize("write_cache", ["write back", "write through", None])
def test_a_failed_limit_on_flushes_states_what_was_measured_and_no_cause(
    tmp_path: Path, write_cache: str | None
) -> None:
    """A slow flush after a fast write is what a drive without power-loss protection shows, and not proof of one."""
    results = measured(tmp_path, study(("p99", "flush.completion_latency_ns_p99 < 3ms", "required")))
    device = {"name": "sda"} | ({"write_cache": write_cache} if write_cache else {})
    changed = {
        key: each.model_copy(update={"target": {**each.target, "devices": [device]}})
        for key, each in results._contents.records.items()
    }
    results._contents.records.update(changed)
    [result] = results_of(results.only(list(changed)))
    rows = results.sql(
        "SELECT operation, value FROM metrics WHERE metric = 'completion_latency_ns_p50' AND operation <> 'all'"
    )
    p50 = {name: format_latency(value) for name, value in rows.iter_rows()}
    shown = f"; write cache of the device: {write_cache}" if write_cache else ""
    assert result.outcome == "fail"
    assert result.reason == f"median flush {p50['flush']}, median write {p50['write']}{shown}"


def test_a_case_that_was_not_measured_is_undecided(tmp_path: Path) -> None:
    results = measured(tmp_path, study(("p99", "flush.completion_latency_ns_p99 < 10ms", "required")))
    [result] = results_of(results.only([]))
    assert (result.outcome, result.reason, result.value) == ("undecided", "not measured", None)


def test_levels_select_the_cases(tmp_path: Path) -> None:
    text = study(
        ("small", "write.iops >= 400", "required"), ("p99", "flush.completion_latency_ns_p99 < 10ms", "required")
    )
    text = text.replace('name = "wal"\n\n[pro', 'name = "wal"\n[parts.factors]\nblock_size = ["4KiB", "8KiB"]\n\n[pro')
    text = text.replace('name = "small"\n', 'name = "small"\nwhere = { block_size = "4KiB" }\n')
    results = measured(tmp_path, text)
    assert sorted((each.requirement.name, each.case_id) for each in results_of(results)) == [
        ("p99", "wal/block_size=4KiB"),
        ("p99", "wal/block_size=8KiB"),
        ("small", "wal/block_size=4KiB"),
    ]


def test_the_table_is_the_first_of_every_format(tmp_path: Path) -> None:
    text = study(
        ("p99 of flushes", "flush.completion_latency_ns_p99 < 3ms", "required"),
        ("writes", "write.iops >= 400 IOPS", "recommended"),
    )
    report = collect([measured(tmp_path, text)])
    console = Console(width=80, file=(tmp_path / "terminal.txt").open("w", encoding="utf-8"))
    terminal.show(report, console)
    console.file.close()
    shown = (tmp_path / "terminal.txt").read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"Requirements\nResult +Requirement .*\nfail +p99 of flushes .*\npass +writes .*\n", shown)
    assert "- p99 of flushes: Commits wait. median flush" in shown and shown.index("Requirements") < shown.index(
        "Answer"
    )
    markdown.write(report, tmp_path / "report.md")
    written = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert written.index("## Requirements") < written.index("## Answer") and "Manual, Example, 1.0" in written
    page = html.render(report)
    assert page.index('id="table-requirements-1"') < page.index('class="findings headline"')
    assert report.chapters[0].tables[0].title == "Requirements"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p99 < 10ms", "p98 < 10ms", "there is no metric `flush.completion_latency_ns_p98`"),
        ("p99 < 10ms", "p99 < 10", "has no unit"),
        ("flush.", "flushes.", "`flushes` is neither stream nor operation"),
        ('part = "wal"', 'part = "data"', "there is no part `data`"),
        ('level = "required"', 'level = "nice"', "`level` is wrong"),
        ('means = "Commits wait."', "", "`means` is missing"),
        ('title = "Manual"', "", "`title` is missing"),
    ],
)
def test_a_wrong_requirement_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    text = study(("p99", "flush.completion_latency_ns_p99 < 10ms", "required"))
    assert old in text
    with pytest.raises(StudyError) as caught:
        parse(text.replace(old, new), name="mine.toml")
    assert message.replace("flush.completion", "completion") in str(caught.value)
    assert "at `requirement[p99]" in str(caught.value) and "line 2" in str(caught.value)


def test_two_requirements_of_one_name_are_refused() -> None:
    requirement = ("p99", "flush.completion_latency_ns_p99 < 10ms", "required")
    with pytest.raises(StudyError, match="two requirements are called `p99`"):
        parse(study(requirement, requirement))


def test_json_has_each_requirement(tmp_path: Path) -> None:
    from iosonde.cli import documents

    results = measured(tmp_path, study(("p99", "flush.completion_latency_ns_p99 < 10ms", "required")))
    [found] = json.loads(json.dumps(documents.of_result_set(results)))["requirements"]
    assert found["outcome"] == "pass" and found["requirement"]["source"]["publisher"] == "Example"
    assert found["low"] < found["value"] < found["high"] < found["limit"] == 10e6
