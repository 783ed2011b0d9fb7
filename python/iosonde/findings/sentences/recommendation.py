"""Which of two systems to choose for which workload, in words with the numbers they stand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from iosonde.findings.recommendation import Choice, Recommendation
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, runs_needed


def tell(recommendations: Sequence[Recommendation], names: Mapping[str, str]) -> Iterator[str]:
    """Say it for each workload, and first of all of them; `names` are those of `baseline` and `contender`."""
    if len(recommendations) > 1:
        yield _all(recommendations, names)
    for each in recommendations:
        yield _one(each, names)


def _all(recommendations: Sequence[Recommendation], names: Mapping[str, str]) -> str:
    counts = Counter(each.choice for each in recommendations)
    words: dict[Choice, str] = {
        "baseline": names["baseline"],
        "contender": names["contender"],
        "either": "either",
        "unclear": "unclear",
    }
    said = ", ".join(f"{words[choice]} for {counts[choice]}" for choice in words if counts[choice])
    chosen = {each.choice for each in recommendations} - {"either", "unclear"}
    lead = "Choose by workload" if len(chosen) > 1 else "By workload"
    return f"{lead}: {said} of {len(recommendations)}"


def _one(each: Recommendation, names: Mapping[str, str]) -> str:
    tail = f"p99 latency {_ratio(each.tail)}" if each.tail else "no p99 latency"
    rate = f"{wording.metric_words(each.metric)} {_ratio(each.rate)}"
    evidence = (
        f"{names['contender']} over {names['baseline']}: {rate}; {tail}; "
        f"{wording.counted(each.cases, 'case')}, {wording.counted(each.repeats, 'run')} each"
    )
    return f"{wording.sentence(each.workload)}: {_advice(each, names)} ({evidence})"


def _advice(each: Recommendation, names: Mapping[str, str]) -> str:
    match each.choice:
        case "either":
            return "either will do"
        case "unclear":
            return f"unclear, {runs_needed(each.rate, each.repeats)}"
        case choice:
            why = {"rate": "it is faster", "tail": "as fast, with the shorter tail", "both": "faster, the tail shorter"}
            other = names["baseline" if choice == "contender" else "contender"]
            but = f", unless the tail matters more: there {other} is ahead" if each.against else ""
            return f"choose {names[choice]}, {why[each.by]}{but}"


def _ratio(estimate: Estimate) -> str:
    text = wording.times_text(estimate.value)
    if estimate.low is None or estimate.high is None:
        return f"{text}, no interval"
    return f"{text}, 95 % interval {wording.ratio_text(estimate.low)}..{wording.ratio_text(estimate.high)}"
