"""Repeats until precise: a case is repeated until the confidence intervals of its metrics are narrow enough.

The plan lists the first repeats of every case, shuffled like any others. Whether another one follows is decided from
the records alone, so a study that was stopped continues at the same point. A case ends when every metric that the study
requires is known within the half-width after two repeats in a row, at the maximum of repeats, or when the time budget
of the study is spent. With one repeat as the rule, a case would end when its interval is narrow by chance, and the
coverage of intervals would fall to 92 % (`bench/intervals.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from iosonde.metrics.registry import find
from iosonde.metrics.statistics import RepeatNoise, repeats_interval
from iosonde.plan import Case, Run
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RunGenerator,
    procedure_of,
    seed_of,
)
from iosonde.study.model import Part, Study
from iosonde.units import format_duration, parse_duration

INTERLEAVED = True

DEFAULT_METRICS = ("iops", "ops_per_sec")
"""Metrics of a part that no view and no analysis requires."""

Reason = Literal["precise", "maximum", "budget", "no result"]


@dataclass(frozen=True, kw_only=True)
class UntilConclusion(Conclusion):
    """Stop reason of a case's repeats; `reached` if they met the required precision."""

    stopped_by: Reason
    repeats: int
    half_widths: Mapping[str, float | None]
    """Half the width of each metric's interval, as a share of its value; None without an interval."""
    wanted: float
    """The half-width that was required."""


def forecast(part: Part, study: Study) -> Forecast:
    """Settings and bounds, from the study's `until`."""
    until = study.until
    assert until.minimum, "settled by study.effective"
    maximum = max(until.maximum, until.minimum)
    budget = f", or for {until.budget} in all" if until.budget else ""
    return Forecast(
        settings={
            "half_width": until.half_width,
            "minimum": until.minimum,
            "maximum": maximum,
            "budget_s": parse_duration(until.budget) / 1e9 if until.budget else None,
            "metrics": list(until.metrics) or metrics_of(part, study),
        },
        extremes=[{}],
        decided=[],
        max_runs=maximum - until.minimum,
        text=f"{until.minimum} to {maximum} repeats, until intervals are within {100 * until.half_width:g} %{budget}",
    )


def metrics_of(part: Part, study: Study) -> list[str]:
    """Return the metrics that views and analyses of a part show, where more or less of them is better."""
    shown = [name for view in study.views if view.part == part.name for name in (view.x, view.y, *view.metrics)]
    asked = [each.metric for each in study.analysis if each.part == part.name]
    named = dict.fromkeys(name for layer in (study.measurement, part.measurement) for name in layer.get("metrics", ()))
    known = [name for name in (*asked, *shown, *named) if (metric := find(str(name))) and metric.better != "neither"]
    return list(dict.fromkeys(known)) or list(DEFAULT_METRICS)


def runs(case: Case, observations: Observations) -> RunGenerator:
    """Further repeats, after those of the plan."""
    settings = procedure_of(case).settings
    done = [observations.observation(_repeat(case, repeat)) for repeat in range(1, settings["minimum"] + 1)]
    seen = [each for each in done if each is not None]
    if len(seen) < settings["minimum"]:
        return _conclusion(case, "no result", seen, observations)
    while True:
        run = _repeat(case, len(seen) + 1)
        # A repeat that exists was decided from fewer records: later ones of other cases change what is known of noise.
        if observations.observation(run) is None and (reason := _reason(case, seen, observations)):
            return _conclusion(case, reason, seen, observations)
        seen.append((yield run))


def _reason(case: Case, seen: Sequence[Observation], observations: Observations) -> Reason | None:
    """Reason to stop; None if another repeat follows."""
    if all(each.failure for each in seen):
        return "no result"
    if len(seen) >= procedure_of(case).settings["maximum"]:
        return "maximum"
    budget_s = procedure_of(case).settings["budget_s"]
    if budget_s is not None and observations.elapsed_s() >= budget_s:
        return "budget"
    return "precise" if all(_is_precise(case, each, observations) for each in (seen, seen[:-1])) else None


def _is_precise(case: Case, seen: Sequence[Observation], observations: Observations) -> bool:
    widths = _half_widths(case, seen, observations)
    return all(width is not None and width <= procedure_of(case).settings["half_width"] for width in widths.values())


def _half_widths(case: Case, seen: Sequence[Observation], observations: Observations) -> dict[str, float | None]:
    """Of each metric that the case has; the interval is the one that reports show."""
    found: dict[str, float | None] = {}
    for metric in procedure_of(case).settings["metrics"]:
        values = [value for each in seen if not each.failure and (value := each.value(metric)) is not None]
        if values:
            found[metric] = _half_width(values, metric, observations.noise())
    return found


def _half_width(values: Sequence[float], metric: str, noise: RepeatNoise) -> float | None:
    # The whole width: an interval that is cut off at 0 is not more precise.
    estimate = repeats_interval(values, noise=noise, metric=metric, least=-math.inf)
    if estimate.low is None or estimate.high is None:
        return None
    width = estimate.high - estimate.low
    return width / 2 / abs(estimate.value) if estimate.value else None if width else 0.0


def _conclusion(case: Case, reason: Reason, seen: Sequence[Observation], observations: Observations) -> UntilConclusion:
    settings = procedure_of(case).settings
    texts = {
        "precise": "",
        "maximum": f"not precise after {len(seen)} repeats, the maximum",
        "budget": f"not precise when the time budget of {format_duration((settings['budget_s'] or 0) * 1e9)} was spent",
        "no result": "too few repeats have a result",
    }
    widths = _half_widths(case, seen, observations)
    if reason == "maximum" and all(_is_precise(case, each, observations) for each in (seen, seen[:-1])):
        reason = "precise"
    return UntilConclusion(
        case_id=case.case_id,
        reached=reason == "precise",
        reason=texts[reason],
        stopped_by=reason,
        repeats=len(seen),
        half_widths=widths,
        wanted=settings["half_width"],
    )


def _repeat(case: Case, repeat: int) -> Run:
    """Another repeat of the case, with the id that the plan would give it and a seed of its own."""
    run_id = f"{procedure_of(case).stem}-r{repeat}"
    spec = procedure_of(case).spec
    spec = {**spec, "run_id": run_id, "seed": seed_of(spec["seed"], str(repeat))}
    return Run(run_id=run_id, case_id=case.case_id, repeat=repeat, order=-1, spec=spec)
