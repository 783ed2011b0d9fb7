"""Cases with a parameter that is derived from the results of an earlier part, such as a share of the highest rate."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from iosonde.errors import StudyError
from iosonde.plan import Case, JsonObject
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observations,
    RunGenerator,
    probe,
    procedure_of,
    rounded,
)
from iosonde.study.model import Derived, Part, Study
from iosonde.study.workload.block.parameters import SCALABLE, WHOLE_NUMBERS

INTERLEAVED = True
"""Once the value is known these are ordinary cases, so that drift of the machine affects all of them alike."""

PLACEHOLDER = 1000
"""Value for the checks before the real one is known; valid as a rate, a queue depth and a number of jobs."""


def runs(case: Case, observations: Observations) -> RunGenerator:
    """Every repeat, with the derived parameters."""
    settings = procedure_of(case).settings
    parameters: JsonObject = {}
    for name, source in settings["derived"].items():
        value = _derived(case, source, observations)
        if not value:
            reason = f"`{name}` comes from part `{source['part']}`, which has no result"
            return Conclusion(case_id=case.case_id, reached=False, reason=reason)
        parameters[name] = max(1, round(value)) if name in settings["whole"] else rounded(value)
    for repeat in range(1, settings["repeats"] + 1):
        yield probe(case, "", repeat, levels={}, parameters=parameters)
    return Conclusion(case_id=case.case_id, reached=True)


def forecast(part: Part, study: Study) -> Forecast:
    """Settings and bounds; the text names the source part of each derived parameter."""
    earlier = {each.name: each for each in itertools.takewhile(lambda each: each.name != part.name, study.parts)}
    for name, source in part.derived.items():
        _check(name, source, part, earlier)
    names = [f"{name} derived from {source.part}" for name, source in part.derived.items()]
    whole = [name for name in part.derived if name.rpartition(".")[2] in WHOLE_NUMBERS]
    return Forecast(
        settings={
            "derived": {name: source.model_dump() for name, source in part.derived.items()},
            "whole": whole,
            "repeats": study.repeats,
        },
        extremes=[dict.fromkeys(part.derived, PLACEHOLDER)],
        decided=list(part.derived),
        max_runs=study.repeats,
        rates_known=False,
        uncertain=False,
        text=", ".join(names),
    )


def _check(name: str, source: Derived, part: Part, earlier: Mapping[str, Part]) -> None:
    """Check that the parameter is a number, and that an earlier part can provide it."""
    if name.rpartition(".")[2] not in SCALABLE:
        listed = ", ".join(f"`{each}`" for each in SCALABLE)
        raise StudyError(f"`{name}` cannot be derived", hint=f"derive one of {listed}, of all streams or of one")
    if source.part not in earlier:
        raise StudyError(
            f"there is no part `{source.part}` before `{part.name}` that could provide `{name}`",
            hint=f"there are {', '.join(f'`{each}`' for each in earlier)}" if earlier else "it is the first part",
        )
    if not source.metric and not earlier[source.part].search:
        raise StudyError(
            f"the part `{source.part}` has no search, so it provides no value by itself",
            hint='name a metric, whose best value there is taken: `metric = "iops"`',
        )


def _derived(case: Case, source: JsonObject, observations: Observations) -> float | None:
    if source["metric"]:
        return observations.best(source["part"], source["metric"], case.levels)
    found = observations.conclusion(source["part"], case.levels)
    return found.value if found else None
