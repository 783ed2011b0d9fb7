"""Names of metrics inside sentences."""

from __future__ import annotations

import pytest

from iosonde.metrics.wording import load_words, metric_words

pytestmark = pytest.mark.unit


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
