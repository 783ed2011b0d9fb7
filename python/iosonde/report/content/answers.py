"""The answer of a result set to the question of its study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from iosonde.core.features import contributed
from iosonde.report.material.result_sets import Material, Source
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.findings.answer import Answer


def unanswered(study: Study, source: Source) -> Answer:
    """Return the answer of a result set whose findings could not be computed: verdicts and outcomes only."""
    from iosonde.findings.answer import Answer, trust_from

    ended = [record.ended for record in source.records]
    trust = trust_from(ended, single=False, drift=None, simulated=source.simulated)
    return Answer(question=study.question, summary=(), trust=trust, rest=())


def answer(material: Material, source: Source) -> Answer:
    """Return the answer of one result set, with every other finding."""
    from iosonde.findings.findings import answer
    from iosonde.findings.observations.disturbance import disturbances
    from iosonde.findings.question import OfResults, Results

    results = source.results
    run_metrics = material.run_metrics.filter(pl.col("result_set") == source.label)
    measured = Results(
        study=material.study,
        result_set=results,
        facts=source.facts,
        metrics=run_metrics,
        long_runs=source.long_runs,
        states=material.device_states[source.label],
    )
    of_features: tuple[OfResults, ...] = contributed("questions", "OF_RESULTS")
    return answer(
        material.study,
        results.cases,
        run_metrics,
        runs=results.runs,
        warnings=results.warnings,
        procedures=source.procedures,
        long_runs=source.long_runs,
        disturbed=disturbances(results),
        of_results=[each for find in of_features for each in find(measured)],
        states=measured.states,
        hosts=len(results.plan.hosts),
        simulated=source.simulated,
    )
