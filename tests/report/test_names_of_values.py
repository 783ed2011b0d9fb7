"""Values are named by their own metric and statistic: figures, the tables under them, the summary and the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.report.charts.figure import Figure
from iosonde.report.content.report import Chapter, collect
from iosonde.report.material.quantities import metric_title
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = pytest.mark.engine

STUDY = """
name = "imported"
title = "A load as in a job file"
question = "?"
repeats = 3
shuffle = false

[measurement]
span = "64MiB"
duration = "500ms"
ramp = "0s"
interval = "100ms"
access = "sequential"
{measurement}

[[parts]]
name = "r"

[profiles.standard]

[[views]]
kind = "percentiles"
title = "Latency"
part = "r"
series = "operation"

[[views]]
kind = "tradeoff"
title = "Latency over rate"
part = "r"
x = "iops"

[[views]]
kind = "timeseries"
title = "IOPS over time"
part = "r"
y = "iops"
series = "operation"
"""


def measured(directory: Path, measurement: str) -> ResultSet:
    study = parse(STUDY.format(measurement=measurement), name="imported.toml")
    target = open_target("simulated:servers=4,read=100us,write=10us,service=exponential,size=1GiB")
    return execute(expand(study, target, settings={}), directory / "set")


def report_on(directory: Path, measurement: str) -> Chapter:
    [chapter] = collect([measured(directory, measurement)]).chapters
    return chapter


def axis_title(figure: Figure) -> str:
    titles = {layer["encoding"]["y"].get("title") for layer in figure.panels[0].chart["layer"]}
    [title] = titles - {None}
    return str(title)


def test_every_figure_and_its_table_have_the_name_of_the_metric_on_its_axis(tmp_path: Path) -> None:
    chapter = report_on(tmp_path, "read_fraction = 1.0")
    drawn = {figure.title: figure for figure in chapter.figures}
    assert {title: metric_title(figure.metric) for title, figure in drawn.items()} == {
        "Latency": "Completion latency",
        "Latency over rate": "Completion latency, p99",
        "IOPS over time": "IOPS",
    }
    for section in chapter.sections:
        assert section.figure and axis_title(section.figure).startswith(metric_title(section.figure.metric))
        for table in section.tables:
            assert table.caption.startswith(f"{metric_title(section.figure.metric)}.")


def test_the_summary_of_a_percentile_figure_is_the_median_and_p99_of_completion_latency(tmp_path: Path) -> None:
    results = measured(tmp_path, "read_fraction = 1.0")
    [chapter] = collect([results]).chapters
    summary = chapter.summary
    assert summary
    assert summary.heads[-2:] == ["Completion latency, p50", "Completion latency, p99"]
    [row] = summary.rows
    assert row[0].text == "read"
    counted = results.sql(
        "SELECT min(completion_latency_ns_min) AS low, max(completion_latency_ns_max) AS high FROM intervals"
    ).row(0)
    assert counted[0] < (row[-2].number or 0) < (row[-1].number or 0) < counted[1]


def test_the_answer_on_writes_with_flushes_states_the_time_per_durable_write(tmp_path: Path) -> None:
    """With one I/O in flight it is the inverse of the rate, and the flush is the larger part of it."""
    results = measured(tmp_path, 'read_fraction = 0.0\ndurability = "flush:1"')
    [chapter] = collect([results]).chapters
    [(_, answer)] = chapter.answers
    found = {finding.kind: finding for finding in answer.summary}
    assert "unloaded latency" not in found
    durable, rate = found["durable writes"], found["throughput"]
    assert durable.time.value * rate.value.value == pytest.approx(1e9, rel=0.02)  # type: ignore[attr-defined]
    assert durable.sentence.startswith("4 KiB sequential writes with a flush after each write, 1 I/O in flight: ")
    assert " per durable write; median flush latency " in durable.sentence
    assert chapter.summary and {row[0].text for row in chapter.summary.rows} == {"write", "flush"}
