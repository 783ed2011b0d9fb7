"""docs/metrics.md and the list of metrics are the same list; names of metrics inside sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iosonde.metrics.registry import METRICS
from iosonde.metrics.wording import case_words, factor_words, load_words, metric_words

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<unit>[^|]+) \| (?P<formula>[^|]+) \| (?P<better>\w+) \|$", re.MULTILINE)


def test_every_metric_is_on_the_page_with_its_unit_and_formula_and_no_other() -> None:
    rows = [match.groupdict() for match in ROW.finditer(PAGE.read_text())]
    documented = {row["name"]: (row["unit"], row["formula"], row["better"]) for row in rows}
    assert len(rows) == len(documented)
    assert documented == {name: (each.unit or "-", each.formula, each.better) for name, each in METRICS.items()}


def test_names_of_latencies_contain_the_unit() -> None:
    for name, metric in METRICS.items():
        assert ("_ns" in name) == (metric.unit == "ns"), name


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("bandwidth", "bandwidth"),
        ("iops", "IOPS"),
        ("cpu_ns_per_operation", "CPU time per operation"),
        ("completion_latency_ns_p99", "p99 completion latency"),
        ("completion_latency_ns_mean", "mean completion latency"),
        ("path_total_ns_mean", "mean I/O path"),
    ],
)
def test_acronyms_keep_their_case_and_statistics_come_first(metric: str, words: str) -> None:
    assert metric_words(metric) == words


def test_a_command_is_named_by_its_program_also_when_it_connects_to_a_server() -> None:
    case = {"command": ["/usr/bin/pgbench", "-n"], "server": "postgresql"}
    assert load_words(case) == {"command": "pgbench"}
    assert case_words(case, {"size": {"label": "small"}, "scale": 3}, "id") == "pgbench, size small, scale 3"
    assert [factor_words(each) for each in ("block_size", "writer.block_size")] == [
        "block size",
        "block size of writer",
    ]
