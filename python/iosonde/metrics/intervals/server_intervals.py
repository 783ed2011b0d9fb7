"""Counters of a database server per interval of a run, from its statistics at the end of each interval.

PostgreSQL publishes the counters of a session once a second at most: shorter intervals show steps.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.intervals.interval_facts import IntervalFacts
from iosonde.metrics.scopes import RUN_KEYS
from iosonde.metrics.server import SERVER_FACTS
from iosonde.results.run_facts.server_counters import COUNTERS, DATA_BYTES, SOURCES, STATES, counters

_KEYS = (*RUN_KEYS, "phase", "interval")


def increases(statistics: pl.DataFrame) -> pl.DataFrame:
    """Return `result_set, run_id, phase, interval` and `SERVER_FACTS`: increases of counters, and states as they were.

    Of the first interval that was polled only the states are known. A counter that was reset has no increase.
    """
    chosen = statistics.filter(pl.col("statistic").is_in([*SOURCES, *STATES]))
    place = (*_KEYS, "end_ns")
    polls = [
        {**dict(zip(place, key, strict=True)), **_canonical(dict(group.select("statistic", "value").iter_rows()))}
        for key, group in chosen.group_by(*place)
    ]
    schema = {name: statistics.schema[name] for name in place} | dict.fromkeys(SERVER_FACTS, pl.Int64())
    table = pl.DataFrame(polls, schema=schema).sort(*RUN_KEYS, "end_ns")
    grown = (pl.col(name).diff().over(RUN_KEYS) for name in (*COUNTERS, DATA_BYTES))
    return table.with_columns(pl.when(each >= 0).then(each) for each in grown).drop("end_ns")


def _canonical(statistics: dict[str, int]) -> dict[str, int]:
    return counters(statistics) | {name: statistics[name] for name in STATES if name in statistics}


FACTS = IntervalFacts(names=SERVER_FACTS, of_intervals=lambda facts: increases(facts.server_statistics()))
