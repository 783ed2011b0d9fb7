"""Finding and table of a comparison of volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.features.rate_limits.rules import Parameter
from iosonde.features.rate_limits.sharing import Sharing
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.features.rate_limits.walk import load_text
from iosonde.findings.finding import FIRST, Finding
from iosonde.plan import Case
from iosonde.procedure.observations import Conclusion
from iosonde.units import format_bandwidth, format_count


class LimitOfVolumes(Finding, kind="limit of volumes", topic="limits", place=FIRST):
    """A limit that all volumes share, or separate ones."""

    found: Sharing

    def _sentence(self) -> str:
        found = self.found
        load = load_text(found.load)
        if found.verdict == "undecided" or found.sum is None:
            return f"{load}: not decided whether the volumes share a limit: {found.reason}"
        alone = _listed([f"{format_count(each.value)} IOPS" for each in found.alone])
        if found.verdict == "separate":
            return f"{load}: the volumes do not share a limit: all keep their rates of {alone} while all are loaded"
        further = ", in addition to limits of their own" if found.is_further_limit else ""
        bandwidth = format_bandwidth(found.sum.value * found.load.block_size)
        return (
            f"{load}: the volumes share a limit of {format_count(found.sum.value)} IOPS ({bandwidth}){further}: alone "
            f"they reach {alone}"
        )

    def _evidence(self) -> str:
        if self.found.sum is None:
            return "stages without a result"
        together = _listed([_interval(each) for each in self.found.together])
        return f"all loaded: {together}, sum {_interval(self.found.sum)} ({len(self.found.sum.estimates)} repeats)"


def _listed(values: Sequence[str]) -> str:
    *first, last = values
    return f"{', '.join(first)} and {last}"


def _interval(found: Parameter) -> str:
    low, high = format_count(found.low), format_count(found.high)
    return f"{low} IOPS" if low == high else f"{low} to {high} IOPS"


def conclusions(procedures: Sequence[tuple[Case, Conclusion | None]]) -> Iterator[Finding]:
    """Return the finding of each comparison that has ended."""
    for case, conclusion in procedures:
        if isinstance(conclusion, SharingConclusion) and not conclusion.found.failure:
            yield LimitOfVolumes(
                found=conclusion.found,
                strength="moderate" if conclusion.found.verdict == "undecided" else "strong",
                case_ids=conclusion.stages,
                part=case.part,
            )


def rows(found: Sharing) -> Iterator[tuple[str, str, str, str]]:
    """Yield parameter, value, interval and estimates."""
    named = [
        *((f"volume {number} alone", each) for number, each in enumerate(found.alone, start=1)),
        *((f"volume {number}, all loaded", each) for number, each in enumerate(found.together, start=1)),
        *((("sum, all loaded", found.sum),) if found.sum else ()),
    ]
    for name, each in named:
        estimates = "; ".join(f"{one.method}: {format_count(one.value)} IOPS" for one in each.estimates)
        yield f"{load_text(found.load)}: {name}", f"{format_count(each.value)} IOPS", _interval(each), estimates
    yield f"{load_text(found.load)}: limit", found.verdict, "", found.reason
