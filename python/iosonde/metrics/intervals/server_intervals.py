"""What a database server counted in each interval of a run, from its statistics at the end of each.

PostgreSQL publishes the counters of a session once a second at most: shorter intervals show steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from iosonde.metrics.applications.oltp import SERVER_FACTS
from iosonde.metrics.facts import Facts
from iosonde.metrics.registry import METRICS
from iosonde.metrics.scopes import ALL, RUN_KEYS
from iosonde.results.run_facts.server_counters import COUNTERS, DATA_BYTES, SOURCES, STATES, counters

_KEYS = (*RUN_KEYS, "phase", "interval")


def are_needed(metrics: Sequence[str]) -> bool:
    """Whether some of these metrics follow from statistics of a server."""
    expressions = [METRICS[name].expression for name in metrics if name in METRICS]
    roots = {root for each in expressions if each is not None for root in each.meta.root_names()}
    return not roots.isdisjoint(SERVER_FACTS)


def with_server(table: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Replace the facts of runs on servers by those of the interval, at operation `all`; null if unknown."""
    own = table.drop(name for name in SERVER_FACTS if name in table.columns)
    found = own.join(increases(facts.server_statistics()), on=_KEYS, how="left", maintain_order="left")
    return found.with_columns(pl.when(pl.col("operation") == ALL).then(name).alias(name) for name in SERVER_FACTS)


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
