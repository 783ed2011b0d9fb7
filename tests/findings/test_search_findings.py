"""Findings about searches and offered rates, on a simulated device whose limits are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.findings.finding import Finding
from iosonde.findings.observations.open_loop import OfferedRates
from iosonde.findings.observations.search import AlsoMet, Boundary, NoBoundary
from iosonde.planning import expand, parse
from iosonde.procedure.observations import conclusions
from iosonde.procedure.search import SearchConclusion
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = pytest.mark.engine

STUDY = """
name = "one-server"
title = "One server"
question = "Up to which rate?"
repeats = 1

[measurement]
queue_depth = 1024
arrival = "poisson"
ramp = "1s"
duration = "2s"

[[parts]]
name = "capacity"
measurement = { duration = "20s", interval = "5s" }
search = { over = "rate", between = [4000, "8k"], holds = "response_latency_ns_p99_9 <= 1ms", precision = 0.01 }

[[parts]]
name = "everywhere"
search = { over = "rate", between = [1000, 4000], holds = ["response_latency over 1ms < 5%"] }

[[parts]]
name = "nowhere"
search = { over = "rate", between = [1000, 4000], holds = "response_latency_ns_p50 < 100us" }

[[parts]]
name = "too-short"
search = { over = "rate", between = [1000, 4000], holds = "response_latency_ns_p99_99 < 1s" }

[[parts]]
name = "beside"
search = { over = "rate", between = [4000, "20k"], holds = "iops > 1", also_check = ["achieved_rate_fraction >= 0.99"] }

[[parts]]
name = "rates"
measurement = { arrival = "constant" }
factors.rate = [9000, 20000]

[profiles.quick]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOSONDE_ENGINE", str(real_engine()))
        plan = expand(parse(STUDY), open_target("simulated:servers=1,read=100us,size=1TiB"), profile="quick")
        return execute(plan, tmp_path_factory.mktemp("one-server") / "set")


@pytest.fixture(scope="module")
def findings(results: ResultSet) -> list[Finding]:
    [(_, found)] = collect([results]).chapters[0].findings
    return found


def of_part(findings: list[Finding], kind: type[Finding], part: str) -> list[Any]:
    return [finding for finding in findings if isinstance(finding, kind) and finding.part == part]


def waiting_beyond(rate: float, service_s: float, wait_s: float) -> float:
    """P(waiting time > t) of M/D/1 (Erlang; Crommelin for one server)."""
    load = rate * service_s
    terms = (
        (rate * (number * service_s - wait_s)) ** number
        / math.factorial(number)
        * math.exp(-rate * (number * service_s - wait_s))
        for number in range(math.floor(wait_s / service_s + 1e-12) + 1)
    )
    return 1 - (1 - load) * sum(terms)


def highest_rate(*, service_s: float, bound_s: float, share: float) -> float:
    """The highest rate at which no more than a share of responses exceed a bound: by bisection on the formula."""
    low, high = 0.0, 1 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        if waiting_beyond(middle, service_s, bound_s - service_s) <= share:
            low = middle
        else:
            high = middle
    return low


def test_a_search_finds_the_rate_that_queueing_theory_gives(results: ResultSet) -> None:
    found = next(found for case, found in conclusions(results) if case.part == "capacity")
    assert isinstance(found, SearchConclusion) and found.value is not None and found.fails_at is not None
    expected = highest_rate(service_s=1e-4, bound_s=1e-3, share=0.001)
    assert found.fails_at / found.value <= 1.01
    # The rate is found to 1 %; the tail of the latency over 20 s varies by twice as much.
    assert found.value == pytest.approx(expected, rel=0.04)


def test_a_boundary_has_what_was_measured_on_both_sides(findings: list[Finding]) -> None:
    [finding] = of_part(findings, Boundary, "capacity")
    assert finding.conditions == "`response_latency_ns_p99_9 <= 1ms`"
    assert 6000 < finding.value < finding.fails_at < 7000
    assert (finding.met.split()[-1], finding.failed.split()[-1]) == ("µs", "ms")
    assert len(finding.case_ids) == 2


def test_searches_without_a_boundary_name_the_reason(findings: list[Finding]) -> None:
    [everywhere], [nowhere], [short] = (
        of_part(findings, NoBoundary, part) for part in ("everywhere", "nowhere", "too-short")
    )
    assert "hold up to 4000" in everywhere.reason
    assert "fail down to 1000" in nowhere.reason
    assert "too few samples at rate 4000 and below" in short.reason
    assert all(each.finished for each in (everywhere, nowhere, short))


def test_conditions_that_are_not_decisive_have_a_finding_of_their_own(findings: list[Finding]) -> None:
    [boundary], [also] = of_part(findings, NoBoundary, "beside"), of_part(findings, AlsoMet, "beside")
    assert "hold up to 20000" in boundary.reason
    assert (also.conditions, also.highest) == ("`achieved_rate_fraction >= 0.99`", 8000)


def test_a_target_that_cannot_keep_up_is_overloaded_with_the_rate_it_achieved(findings: list[Finding]) -> None:
    [finding] = of_part(findings, OfferedRates, "rates")
    kept, behind = finding.rates
    assert (kept.kept, behind.kept, behind.case_id) == (True, False, "rates/rate=20000")
    # 10,000 a second is what one server of 100 us does; the queue of 1024 took some of what came.
    assert (behind.achieved, behind.share) == (pytest.approx(10_000, rel=0.01), pytest.approx(0.52, abs=0.01))
    assert of_part(findings, OfferedRates, "everywhere") == [], "probes of a search are covered by its boundary"


def test_probes_are_laid_out_in_tables_run_by_run(results: ResultSet) -> None:
    tables = {table.title: table for table in collect([results]).chapters[0].tables}
    table = tables["Search of the highest rate: beside"]
    assert table.heads == ["Rate", "Verdict", "iops > 1", "also: achieved_rate_fraction >= 0.99"]
    assert [[cell.text for cell in row][:2] for row in table.rows] == [
        ["4,000", "holds"],
        ["8,000", "holds"],
        ["16,000", "holds"],
        ["20,000", "holds"],
    ]
    assert [row[3].text[0] for row in table.rows] == ["✓", "✓", "✗", "✗"]
