"""The answer of a result set to the question of its study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from iosonde.report.material.result_sets import Material, Source
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.findings.answer import Answer


def unanswered(study: Study, source: Source) -> Answer:
    """Return the answer of a result set whose findings could not be computed: verdicts and outcomes only."""
    from iosonde.findings.answer import Answer, trust_from

    ended = [
        (
            record.outcome,
            record.failure.code if record.failure else "",
            record.verdict.kind if record.verdict else "",
        )
        for record in source.records
    ]
    trust = trust_from(ended, single=False, drift=None, simulated=source.simulated)
    return Answer(question=study.question, summary=(), trust=trust, rest=())


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
