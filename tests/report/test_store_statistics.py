"""The table of what a store or server reports about itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from iosonde.report.content.store_statistics import statistics_tables
from iosonde.results.schema import Record

STATISTICS = {"statistics_at_start": {"commits": 7, "deadlocks": 0}, "statistics_at_end": {"commits": 30}}
STORE: dict[str, Any] = {"kind": "fjall", "version": "3", **STATISTICS}
SERVER: dict[str, Any] = {"kind": "postgresql", "version": "16.1", **STATISTICS}


def record(kind: str, workload: dict[str, Any], **accounts: Any) -> Record:
    spec = {"workload": {"kind": kind, "measurement": {"terminals": 2}, "streams": [{"jobs": 1}], **workload}}
    result = {"begin_ns": 0, **accounts.pop("result", {})}
    return Record.model_construct(run_id="r1", case_id="main", part="main", spec=spec, result=result, **accounts)


@pytest.mark.parametrize(
    ("of_kind", "kind"),
    [
        (record("kv", {"store": {"kind": "fjall"}}, result={"store": STORE}), "kv"),
        (record("commit", {"server": {"kind": "postgresql"}}, server=SERVER), "commit"),
    ],
)
def test_the_table_starts_with_the_values_at_the_start_of_the_measurement(of_kind: Record, kind: str) -> None:
    frame = pl.DataFrame(
        [
            {"interval": number, "end_ns": (number + 1) * 10**9, "statistic": name, "value": value}
            for number, value in enumerate((10, 30))
            for name, value in (("commits", value), ("deadlocks", 0))
        ]
    )
    source = SimpleNamespace(
        label="a",
        results=SimpleNamespace(sql=lambda _: frame),
        complete_of=lambda wanted: [of_kind] if wanted == kind else [],
    )
    [table] = statistics_tables(SimpleNamespace(sources=[source]))  # type: ignore[arg-type]
    assert table.heads == ["Statistic", "start", "1 s", "2 s"]
    assert [[cell.text for cell in row] for row in table.rows] == [["commits", "7", "10", "30"]]
