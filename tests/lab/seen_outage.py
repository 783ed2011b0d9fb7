"""An outage of a server under verified writes, as its record has it."""

from __future__ import annotations

from iosonde.features.network_storage.record import OutageReading
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet

WRITTEN = 4 << 20


def check(results: ResultSet, case: str) -> None:
    """No acknowledged write is lost, and no I/O completes during the outage.

    A busy machine makes the unavailable time longer, not shorter; or the outage ends after the measurement, which is stated.
    """
    [record] = [each for each in results.records() if each.case_id.endswith(f"={case}")]
    assert record.outcome == "complete", record.failure
    outage = record.of(OutageReading)
    assert outage
    assert outage.began_ns
    if any(warning.code == "outage_failed" for warning in record.warnings):
        assert outage.unavailable_ns is None
    else:
        assert outage.length_ns
        assert outage.unavailable_ns
        assert outage.resolution_ns
        assert outage.length_ns >= outage.requested_ns
        assert outage.unavailable_ns >= outage.requested_ns - outage.resolution_ns
        assert outage.backlog_max
    found = run_metrics(results).filter(run_id=record.run_id, operation="all")
    values = dict(found.select("metric", "value").iter_rows())
    assert values["verified_bytes"] >= WRITTEN
    assert values["wrong_sectors"] == 0
