"""Stragglers: hosts that are slower than the others in every repeat of a case, and what distinguishes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from iosonde.features.many_hosts.record import Hosts, HostShare
from iosonde.findings.finding import Finding
from iosonde.findings.question import Results
from iosonde.metrics import wording
from iosonde.metrics.verdict.rules import rules
from iosonde.plan import Case
from iosonde.results.schema import Record

SLOWER = 0.8
"""Share of the median rate of the others below which a host is a straggler."""
LATER = 2.0
"""Its p99 latency over the median of theirs from which it is one."""
LEAST_REPEATS = 3
RETRANSMITTED = 0.001
"""Share of TCP segments sent again from which the network of a host is named, if it is 3 times that of any other."""
BUSY, IDLE = 0.95, 0.8
"""Utilization from which the device of a host is named, if that of all others is below the second."""


class Straggler(Finding, kind="straggler", topic="quality"):
    """A host that is slower than the others in every repeat."""

    load: str
    host: str
    share: float
    """Its rate over the median rate of the others, the median of the repeats."""
    p99_ratio: float | None
    """The same of p99 latency."""
    others: int
    repeats: int
    cause: str
    """The part of it that differs from the others; empty if none does."""
    warnings: tuple[str, ...]
    """Codes of warnings that most of its runs have, and none of any other host."""
    numbers: str

    def _sentence(self) -> str:
        theirs = "the other host" if self.others == 1 else f"the other {self.others} hosts (median)"
        tail = f", {wording.ratio_text(self.p99_ratio)} times their p99 latency" if self.p99_ratio else ""
        rate = f"{100 * self.share:.0f} % of the rate of {theirs}"
        return f"{self.load}: `{self.host}` is a straggler with {rate}{tail}; {self._distinction}"

    @property
    def _distinction(self) -> str:
        if self.cause:
            return f"distinguished by {self.cause}"
        titles = {code: rules()[code].title if code in rules() else "" for code in self.warnings}
        named = [f"`{code}`" + (f" ({title})" if title else "") for code, title in titles.items()]
        if named:
            return f"only this host has the warning{'s' * (len(named) > 1)} {wording.listing(named)}"
        return "the cause is not separable"

    def _evidence(self) -> str:
        return f"{self.numbers}; in each of {wording.counted(self.repeats, 'run')}"


def find(results: Results) -> Iterator[Finding]:
    """Return the stragglers of a result set."""
    yield from stragglers(results.result_set.known_cases(), results.result_set.records())


def stragglers(cases: Sequence[Case], records: Sequence[Record]) -> Iterator[Straggler]:
    """Return those of each case."""
    by_case: dict[str, list[Hosts]] = {}
    for record in records:
        if (part := record.of(Hosts)) and not record.failure:
            by_case.setdefault(record.case_id, []).append(part)
    for case in cases:
        parts = by_case.get(case.case_id, [])
        names = {tuple(share.host for share in part.shares) for part in parts}
        if len(parts) < LEAST_REPEATS or len(names) != 1 or len(parts[0].shares) < 2:
            continue
        load = wording.case_words(case.parameters, case.levels, case.case_id)
        for number in range(len(parts[0].shares)):
            if found := _straggler(load, number, parts, case_id=case.case_id, part=case.part):
                yield found


def _straggler(load: str, number: int, parts: Sequence[Hosts], *, case_id: str, part: str) -> Straggler | None:
    own = [each.shares[number] for each in parts]
    others = [[share for at, share in enumerate(each.shares) if at != number] for each in parts]
    rates = [
        share.count / max(1.0, median(each.count for each in rest)) for share, rest in zip(own, others, strict=True)
    ]
    tails = [_tail(share, rest) for share, rest in zip(own, others, strict=True)]
    known = [each for each in tails if each is not None]
    is_late = len(known) == len(tails) and min(known) >= LATER
    if max(rates) >= SLOWER and not is_late:
        return None
    cause = _cause(own, others)
    return Straggler(
        load=load,
        host=own[0].host,
        share=median(rates),
        p99_ratio=median(known) if is_late else None,
        others=len(others[0]),
        repeats=len(parts),
        cause=cause,
        warnings=_alone(own, others),
        numbers=_numbers(own),
        strength="strong" if cause else "moderate",
        case_ids=(case_id,),
        part=part,
    )


def _tail(share: HostShare, rest: Sequence[HostShare]) -> float | None:
    theirs = [each.completion_latency_ns_p99 for each in rest]
    known = [each for each in theirs if each]
    own = share.completion_latency_ns_p99
    return own / median(known) if own and len(known) == len(theirs) else None


def _cause(own: Sequence[HostShare], others: Sequence[Sequence[HostShare]]) -> str:
    """Return a clause that is true of this host in most repeats, and of no other in any.

    Hosts of a machine share all but CPUs.
    """
    rest = [share for each in others for share in each]
    most = len(own) / 2
    cpu = [share.verdict == "harness-limited" for share in own]
    if sum(cpu) > most and not any(share.verdict == "harness-limited" for share in rest):
        return "its CPU"
    if own[0].machine in {share.machine for share in rest}:
        return ""
    theirs = max((share.retransmitted_share or 0.0 for share in rest), default=0.0)
    lost = [share.retransmitted_share or 0.0 for share in own]
    if sum(each >= max(RETRANSMITTED, 3 * theirs) for each in lost) > most:
        return "its network"
    busy = [share.device_busy_share or 0.0 for share in own]
    if sum(each >= BUSY for each in busy) > most and all((share.device_busy_share or 0.0) < IDLE for share in rest):
        return "its device"
    return ""


def _alone(own: Sequence[HostShare], others: Sequence[Sequence[HostShare]]) -> tuple[str, ...]:
    theirs = {code for each in others for share in each for code in share.warnings}
    counts = Counter(code for share in own for code in share.warnings if code not in theirs)
    return tuple(code for code, count in counts.items() if count > len(own) / 2)


def _numbers(own: Sequence[HostShare]) -> str:
    """The evidence about this host, whether it distinguishes it or not."""
    named: Mapping[str, Sequence[float | None]] = {
        "device busy": [share.device_busy_share for share in own],
        "TCP segments sent again": [share.retransmitted_share for share in own],
    }
    known = {name: median(found) for name, each in named.items() if (found := [one for one in each if one is not None])}
    reasons = ", ".join(dict.fromkeys(f"{share.verdict or 'no verdict'} ({share.because})" for share in own))
    return "; ".join([reasons, *(f"{name} {100 * value:.2g} %" for name, value in known.items())])


OF_RESULTS = (find,)
