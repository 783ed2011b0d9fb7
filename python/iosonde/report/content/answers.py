"""The answer of a result set to the question of its study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from iosonde.report.material.result_sets import Material, Source

if TYPE_CHECKING:
    from iosonde.findings.answer import Answer


def answer(material: Material, source: Source) -> Answer:
    """Return the answer of one result set, with every other finding."""
    from iosonde.findings.findings import answer
    from iosonde.findings.observations.disturbance import disturbances
    from iosonde.findings.observations.idle_recovery import idle_recoveries
    from iosonde.findings.observations.lasting_drop import lasting_drops

    results = source.results
    return answer(
        material.study,
        results.cases,
        material.run_metrics.filter(pl.col("result_set") == source.label),
        runs=results.runs,
        warnings=results.warnings,
        procedures=source.procedures,
        long_runs=source.long_runs,
        disturbed=disturbances(results),
        recovered=idle_recoveries(material.study, results),
        drops=lasting_drops(source.facts),
        states=material.device_states[source.label],
        simulated=source.simulated,
    )
