"""Time that burst credits last at the load of a result set: by the published rule of the volume, and as observed.

A published rule needs the type and the size of the volume. Its type is known from the device's model string, or from a
drop in which both rates are those of one type only. That a run exceeds the sustained rate then shows that it spends
credits, even if its load is far below the burst rate. Without a type, only a drop that a run has seen is stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, ClassVar

import polars as pl

from iosonde.features.rate_limits import PROCEDURES, context, known_limits
from iosonde.features.rate_limits.known_limits import AGREEMENT, FirstTouch, PublishedLimit, TouchedRegion, TouchVerdict
from iosonde.features.rate_limits.record import RateLimits
from iosonde.features.rate_limits.series import Load, Region, Series, Stage
from iosonde.findings.cells import case_words
from iosonde.findings.finding import FIRST, Finding
from iosonde.findings.question import Results
from iosonde.plan import PREPARATION
from iosonde.results.schema import Record
from iosonde.units import format_bytes, format_count, format_duration

RATE = 50
"""Operations per second of a pass."""
SECONDS = 1.0
REGIONS = 3
_STRIDE = 4 << 20
"""Largest distance between blocks, above the sizes in which providers fetch blocks of a snapshot."""
_RANGES = 3.0
"""Ranges of the later passes that a certain difference exceeds."""
_LEAST = 0.1
"""Smallest difference that counts, as a share of the latency of a later access."""

Passes = dict[Region, list[Series]]
"""Passes over each region, in order."""
Request = Callable[[Stage], Generator[Stage, Series, Series]]


def regions(span: int, block_size: int) -> tuple[Region, ...]:
    """Return regions of as many blocks as a pass accesses."""
    blocks = round(RATE * SECONDS)
    # Two more, so that a pass never starts again.
    stride = min(_STRIDE, span // REGIONS // (blocks + 2)) // block_size * block_size
    if not stride:
        return ()
    starts = (place * span // REGIONS // block_size * block_size for place in range(REGIONS))
    return tuple(Region(offset=start, bytes=(blocks + 2) * stride, stride=stride) for start in starts)


def measure(request: Request, load: Load, span: int) -> Generator[Stage, Series, Passes]:
    """Request three passes over each region."""
    passes: Passes = {region: [] for region in regions(span, load.block_size)}
    for number in (1, 2, 3):
        yield from _pass(number, request, load, passes)
    return passes


def again(request: Request, load: Load, passes: Passes) -> Generator[Stage, Series, None]:
    """Request the last pass over each region."""
    yield from _pass(4, request, load, passes)


LAST_PASS = "touch4"
"""Start of the names of its stages, which follow all others."""


def _pass(number: int, request: Request, load: Load, passes: Passes) -> Generator[Stage, Series, None]:
    for place, (region, found) in enumerate(passes.items(), start=1):
        name = f"touch{number}-region{place}"
        found.append((yield from request(Stage(name=name, load=load, seconds=SECONDS, region=region, rate=RATE))))


def is_slower(passes: Passes) -> bool:
    """Return True if the first access took longer than later ones in any region."""
    return any(each.is_slower for each in _regions(passes))


def judge(passes: Passes, *, between: float, span: int) -> FirstTouch:
    """Conclude from all passes; `between` are the bytes accessed before the last one."""
    verdict, reason = _verdict(passes, between, span)
    found = _regions(passes)
    return FirstTouch(verdict=verdict, reason=reason, regions=found, bound_s=max(each.high_s for each in found))


def _verdict(passes: Passes, between: float, span: int) -> tuple[TouchVerdict, str]:
    early = _regions({region: each[:3] for region, each in passes.items()})
    slower = [each for region, each in zip(early, passes.values(), strict=True) if region.is_slower]
    if not slower:
        return "none", ""
    if any(each.is_disturbed for found in passes.values() for each in found):
        return "undecided", "other load took CPU time while first accesses were measured"
    if any(len(each) < 4 for each in slower):
        return "undecided", (
            "a read cache would have the same effect; no time for a last access, or a rate limit below 100 IOPS"
        )
    amount = format_bytes(round(between))
    if any(_latency(each[3]) > (_latency(each[0]) + _later(each[:3])) / 2 for each in slower):
        return "cache", f"after {amount} of other accesses the blocks are slow again, so a read cache had served them"
    if not is_slower(passes):
        return "undecided", "the latency of later accesses varies as much"
    if between < span:
        return "undecided", f"a read cache of {amount} would have the same effect: other stages accessed no more"
    return "penalty", (
        f"the blocks are as fast after {amount} of other accesses, which a smaller read cache would not have kept"
    )


def _regions(passes: Passes) -> tuple[TouchedRegion, ...]:
    later = [_latency(each) for found in passes.values() for each in found[1:]]
    scale = max(later, default=0.0) - min(later, default=0.0)
    return tuple(_region(region, found, scale) for region, found in passes.items())


def _region(region: Region, passes: Sequence[Series], scale: float) -> TouchedRegion:
    added = _latency(passes[0]) - _later(passes)
    error = scale + _standard_error(passes[0].latencies_s)
    return TouchedRegion(
        offset=region.offset,
        stride=region.stride,
        latencies_s=tuple(map(_latency, passes)),
        added_s=added,
        low_s=added - error,
        high_s=added + error,
        is_slower=added > max(_RANGES * scale, _LEAST * _later(passes)),
    )


def _latency(found: Series) -> float:
    return median(found.latencies_s)


def _later(passes: Sequence[Series]) -> float:
    return median(map(_latency, passes[1:]))


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the median, from the median absolute deviation."""
    middle = median(values)
    deviation = 1.4826 * median(abs(each - middle) for each in values)
    return 1.2533 * deviation / math.sqrt(len(values))


_SECOND = 1_000_000_000


class CreditDuration(Finding, kind="credit duration", topic="limits", place=FIRST):
    """Time that a full bucket of a known volume lasts at the heaviest load."""

    states_duration: ClassVar[bool] = True
    words: str
    """Of the case with the heaviest load."""
    rate: float
    """Rate at which that load uses the limit, per second in the unit that the limit counts."""
    limit: PublishedLimit
    size_bytes: int
    known_by: str
    """Source of the type of the volume."""
    cases: int
    """Cases."""

    @property
    def seconds(self) -> float:
        """Time that a full bucket lasts."""
        return self.limit.seconds_at(self.rate)

    def _sentence(self) -> str:
        limit, lasting = self.limit, _time(self.seconds)
        used, sustained = (known_limits.quantity(each, limit.counts) for each in (self.rate, limit.rate))
        volume = f"{limit.title} with {format_bytes(self.size_bytes)}"
        if self.cases == 1:
            return (
                f"{self.words} at {used}: at this load, the credits of {volume} last {lasting}, then the rate drops to "
                f"{sustained}"
            )
        return (
            f"{len(self.case_ids)} of {self.cases} cases spend the credits of {volume}: they last {lasting} at the "
            f"heaviest load ({self.words}, {used}), then the rate drops to {sustained}"
        )

    def _evidence(self) -> str:
        limit = self.limit
        assert limit.bucket, "a limit with a bucket"
        return (
            f"{limit.describe()} ({limit.source}, {limit.date}); volume type by {self.known_by}; assumes a full bucket "
            f"at the start and no other I/O on the volume; refilling takes {_time(limit.bucket / limit.rate)}"
        )


class BurstEnd(Finding, kind="burst end", topic="limits", place=FIRST):
    """A drop from one rate to a constant one that a run has seen."""

    states_duration: ClassVar[bool] = True
    words: str
    run_id: str
    before: float
    """I/Os per second."""
    after: float
    seconds: float
    """Time under load until the drop, with earlier runs of the case at the same rate."""
    runs: int
    """Runs of that time."""

    def _sentence(self) -> str:
        before, after = (f"{format_count(each)} IOPS" for each in (self.before, self.after))
        return f"{self.words}: {before} lasted {_time(self.seconds)} at this load, then the rate dropped to {after}"

    def _evidence(self) -> str:
        runs = "" if self.runs == 1 else f" and the {self.runs - 1} before it, between which credits may have returned"
        return (
            f"`{self.run_id}`{runs}; burst credits that were spent, or a limit that changed; the credits at the start "
            "are not known, and a full bucket may last longer"
        )


def find(results: Results) -> Iterator[Finding]:
    """Return how long a burst lasted, and how long the credits last at the heaviest load."""
    records = sorted(_judged(results), key=lambda each: each.started_at)
    words = case_words(results.study, results.result_set.cases)
    yield from _observed(records, words)
    rates = _rates(results)
    cases = len({each.case_id for each in records})
    found = [
        each for record in records for each in _spending(record, records, rates.get(record.run_id, {}), words, cases)
    ]
    if found:
        worst = min(found, key=lambda each: each.seconds)
        spending = {case_id for each in found if each.limit == worst.limit for case_id in each.case_ids}
        yield replace(worst, case_ids=tuple(sorted(spending)))


def _judged(results: Results) -> Iterator[Record]:
    """Complete runs of block I/O that were measured for their values."""
    result_set = results.result_set
    # Identifications say it themselves. The cases of their stages have no procedure, but the part of one that has.
    parts = {case.part for case in result_set.plan.cases if case.procedure and case.procedure.kind in PROCEDURES}
    left_out = {case.case_id for case in result_set.known_cases() if case.control or case.part in {PREPARATION, *parts}}
    for record in result_set.records():
        is_block = (record.spec or {}).get("workload", {}).get("kind") == "block"
        if record.outcome == "complete" and is_block and record.case_id not in left_out:
            yield record


def _observed(records: Sequence[Record], words: Mapping[str, str]) -> Iterator[Finding]:
    for place, record in enumerate(records):
        part = record.of(RateLimits)
        if part is None or part.before_iops is None or part.suspected_iops is None:
            continue
        earlier = _same_rate_before(records[:place], record.case_id, part.before_iops)
        yield BurstEnd(
            words=words.get(record.case_id, f"`{record.case_id}`"),
            run_id=record.run_id,
            before=(earlier[0].suspected_iops if earlier else None) or part.before_iops,
            after=part.suspected_iops,
            seconds=sum(each.constant_s or 0.0 for each in earlier) + (part.dropped_at_s or 0.0),
            runs=1 + len(earlier),
            strength="moderate",
            case_ids=(record.case_id,),
        )


def _same_rate_before(records: Sequence[Record], case_id: str, rate: float) -> list[RateLimits]:
    """Return the runs directly before one that had the same constant rate."""
    found = []
    for record in reversed(records):
        part = record.of(RateLimits)
        is_same = part and part.suspected_iops and abs(part.suspected_iops / rate - 1) <= AGREEMENT
        if record.case_id != case_id or not part or not is_same:
            break
        found.append(part)
    return found


def _spending(
    record: Record,
    records: Sequence[Record],
    rates: Mapping[str, tuple[float, float]],
    words: Mapping[str, str],
    cases: int,
) -> Iterator[CreditDuration]:
    """The limits of known volumes whose sustained rate the load of a run exceeds."""
    size_bytes = context.size_of(record.target)
    part = record.of(RateLimits)
    provider = context.provider_of(part.context) if part else None
    if not provider:
        return
    models = [str(device.get("model", "")).lower() for device in record.target.get("devices", ())]
    for limit in known_limits.limits(size_bytes=size_bytes, provider=provider):
        if limit.burst_seconds is None or limit.burst_rate is None or limit.operations != "all":
            continue
        used = _used(limit, record.spec["workload"]["streams"], rates)
        known_by = ""
        if models and all(limit.title.lower() in each for each in models):
            known_by = "the device's model"
        elif any(_is_drop_of(limit, each) for each in records):
            known_by = "a drop between its published rates"
        if known_by and (1 + AGREEMENT) * limit.rate < used <= (1 + AGREEMENT) * limit.burst_rate:
            yield CreditDuration(
                words=words.get(record.case_id, f"`{record.case_id}`"),
                rate=used,
                limit=limit,
                size_bytes=size_bytes,
                known_by=known_by,
                cases=cases,
                strength="moderate",
                case_ids=(record.case_id,),
            )


def _is_drop_of(limit: PublishedLimit, record: Record) -> bool:
    """Return True if a run dropped from the burst rate to the sustained rate of this limit, and of no other type."""
    part = record.of(RateLimits)
    if part is None or part.before_iops is None or not part.suspected_iops or part.suspected_bytes_per_second is None:
        return False
    bytes_per_io = part.suspected_bytes_per_second / part.suspected_iops
    size_bytes = context.size_of(record.target)
    provider = context.provider_of(part.context)

    def agrees(candidate: PublishedLimit) -> bool:
        scale = bytes_per_io if candidate.counts == "bytes" else 1.0
        after, before = (scale * each for each in (part.suspected_iops or 0.0, part.before_iops or 0.0))
        return candidate.agreeing(after) == "rate" and candidate.agreeing(before) == "burst rate"

    agreeing = {each.volume for each in known_limits.limits(size_bytes=size_bytes, provider=provider) if agrees(each)}
    return agreeing == {limit.volume}


def _rates(results: Results) -> dict[str, dict[str, tuple[float, float]]]:
    """Return IOPS and bytes per second of each stream of each run."""
    rows = results.metrics.filter((pl.col("operation") == "all") & pl.col("metric").is_in(["iops", "bandwidth"]))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for run_id, stream, metric, value in rows.select("run_id", "stream", "metric", "value").iter_rows():
        found.setdefault(run_id, {}).setdefault(stream, {})[metric] = value
    return {
        run_id: {stream: (each.get("iops") or 0.0, each.get("bandwidth") or 0.0) for stream, each in streams.items()}
        for run_id, streams in found.items()
    }


def _used(
    limit: PublishedLimit, streams: Sequence[Mapping[str, Any]], rates: Mapping[str, tuple[float, float]]
) -> float:
    """Return what streams use of a limit per second, as it counts them."""
    total = 0.0
    for stream in streams:
        iops, bandwidth = rates.get(stream["name"], (0.0, 0.0))
        total += bandwidth if limit.counts == "bytes" else iops * _cost(limit, stream)
    return total


def _cost(limit: PublishedLimit, stream: Mapping[str, Any]) -> float:
    """Return the mean cost of an operation."""
    if not limit.unit_bytes:
        return 1.0
    is_merged = limit.merge and stream["access"]["kind"] == "sequential"
    weights = sum(each["weight"] for each in stream["block_sizes"])
    costs = (
        each["weight"]
        * (each["bytes"] / limit.unit_bytes if is_merged else math.ceil(each["bytes"] / limit.unit_bytes))
        for each in stream["block_sizes"]
    )
    return float(sum(costs) / weights)


def _time(seconds: float) -> str:
    return format_duration(round(seconds) * _SECOND)
