"""Findings about searches and offered rates, on a simulated device whose limits are known."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.execution.session import execute
from iosonde.findings.finding import Finding
from iosonde.findings.searches import AlsoMet, Boundary, NoBoundary
from iosonde.findings.throughput import OfferedRates
from iosonde.planning import expand, parse
from iosonde.report.content import collect
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
ramp = "200ms"
duration = "1s"

[[parts]]
name = "capacity"
measurement = { duration = "10s", interval = "5s" }
search = { over = "rate", between = [5000, "8k"], holds = "response_latency_ns_p99_9 <= 1ms", precision = 0.02 }

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
measurement = { arrival = "constant", ramp = "1s", duration = "2s" }
factors.rate = [9000, 20000]

[profiles.quick]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    plan = expand(parse(STUDY), open_target("simulated:servers=1,read=100us,size=1TiB"), profile="quick")
    return execute(plan, tmp_path_factory.mktemp("one-server") / "set")


@pytest.fixture(scope="module")
def findings(results: ResultSet) -> list[Finding]:
    [(_, found)] = collect([results]).chapters[0].findings
    return found


def of_part(findings: list[Finding], kind: type[Finding], part: str) -> list[Any]:
    return [finding for finding in findings if isinstance(finding, kind) and finding.part == part]


M_D_1 = 6751
"""Requests a second of which 0.1 % are not complete within 1 ms by one server that needs 100 µs for each (Crommelin 1932)."""


def test_a_search_finds_the_rate_that_queueing_theory_gives(results: ResultSet, findings: list[Finding]) -> None:
    [finding] = of_part(findings, Boundary, "capacity")
    assert finding.value < finding.fails_at <= 1.02 * finding.value
    # The rate is found to 2 %; the tail of the latency over 10 s varies as much.
    assert finding.value == pytest.approx(M_D_1, rel=0.04)
    assert finding.conditions == "`response_latency_ns_p99_9 <= 1ms`"
    assert (finding.met.split()[-1], finding.failed.split()[-1]) == ("µs", "ms")
    assert len(finding.case_ids) == 2


def test_searches_without_a_boundary_name_the_reason(findings: list[Finding]) -> None:
    [everywhere], [nowhere], [short] = (
        of_part(findings, NoBoundary, part) for part in ("everywhere", "nowhere", "too-short")
    )
    assert "hold up to 4000" in everywhere.reason
    assert "fail down to 1000" in nowhere.reason
    assert "too few samples at rate 4000 and below" in short.reason
    assert {each.what for each in (everywhere, nowhere, short)} == {"no boundary found"}


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
    rates = ["4,000", "8,000", "16,000", "20,000"]
    assert [[cell.text for cell in row][:2] for row in table.rows] == [[rate, "holds"] for rate in rates]
    assert [row[3].text[0] for row in table.rows] == ["✓", "✓", "✗", "✗"]
