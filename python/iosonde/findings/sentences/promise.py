"""What an array delivers of its promise, and where the rest went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iosonde.findings.expected import PARITIES, level_words
from iosonde.findings.finding import Finding, Strength, Untyped
from iosonde.findings.loads import EVERYTHING, Loads, Row
from iosonde.findings.promise import BOUND_WORDS
from iosonde.findings.question import Question
from iosonde.metrics import wording

KEPT = 0.95
"""From this share of the promise on it counts as kept."""
BUSY = 0.9
"""A core or a link from this share on is the limit."""
UNEVEN = 1.25
NOTABLE = 1.1
"""The busiest member's bytes over the mean from which on it is the reason, and from which on it is said beside one."""
BEYOND = 1.2
"""More of its promise than this says that the model does not fit the load."""
READS_FOR_WRITES = 0.1
"""Member reads for each write from which on they are told as read-modify-write."""


def tell(question: Question) -> Iterator[Finding]:
    """Say of each level which loads keep its promise, and then of each that does not why."""
    loads = Loads(question)
    answers = loads.answers()
    for level in dict.fromkeys((row["array"], row["array_kind"], row["state"]) for row in answers):
        rows = [row for row in answers if (row["array"], row["array_kind"], row["state"]) == level]
        divided = loads.divide(rows)
        kept = [load for load in divided if min(row["efficiency"] for row in load[1]) >= KEPT]
        short = [load for load in divided if load not in kept]
        yield _overview(loads, rows, kept, short)
        for key, group in sorted(loads.together(short, _efficiency), key=lambda load: min(map(_efficiency, load[1]))):
            yield _shortfall(loads, key, group)


def _efficiency(row: Row) -> float:
    return float(row["efficiency"])


def _overview(
    loads: Loads, rows: Sequence[Row], kept: Sequence[tuple[dict[str, Any], list[Row]]], short: Sequence[Any]
) -> Finding:
    """Say it for a level as a whole, as the paper sums up: how much is lost at most, and where nothing is."""
    name = _name(rows[0])
    worst = min(rows, key=_efficiency)
    merged = loads.together(kept, _efficiency)
    words = [loads.words(key, group[0]["case_id"]) for key, group in merged]
    if not short:
        title = f"{name} keeps its promise: {_range(rows)} of it{_devices(rows)}{_beyond(rows)}"
    else:
        of_worst = loads.words({name: worst[name] for name in loads.apart}, worst["case_id"])
        title = f"{name} loses up to {_overhead(worst)} of its promise ({of_worst}{_at(loads, worst)})"
        title += f" and keeps it for {wording.listing(words)}" if words else ""
    best = max(float(row["speedup"]) for row in rows)
    return Untyped(
        kind="promise",
        title=wording.sentence(f"{title}; at best {wording.times_text(best)} one device"),
        note=f"measured / promised is {_range(rows)} over {wording.counted(len(rows), 'case')}, each beside one "
        f"device under the same load, and software overhead is the rest; {_best_speedup(loads, rows)}",
        strength=_strength(rows),
        case_ids=tuple(row["case_id"] for row in rows),
        part=loads.question.part.name,
    )


def _shortfall(loads: Loads, key: Mapping[str, Any], rows: Sequence[Row]) -> Finding:
    """Say how much of the promise a load gets, and where the rest went."""
    worst = min(rows, key=_efficiency)
    several = len(rows) > 1
    where = _devices(rows) if several else _at(loads, worst, words="with")
    reason = why(worst)
    lowest = (
        f"; least{_at(loads, worst, words='with')}"
        if several and max(map(_efficiency, rows)) > 1.25 * worst["efficiency"]
        else ""
    )
    words = loads.words(key, worst["case_id"])
    subject = f"{_name(worst)} reaches" if words == EVERYTHING else f"{_name(worst)} {words} reach"
    under = f" under {EVERYTHING}" if words == EVERYTHING else ""
    title = f"{subject} {_range(rows)} of the promise{under}{where}{lowest}"
    return Untyped(
        kind="promise",
        title=f"{title}: {reason}" if reason else title,
        note=_evidence(loads.question, worst),
        strength=_strength(rows),
        case_ids=tuple(row["case_id"] for row in rows),
        part=loads.question.part.name,
    )


def why(row: Row) -> str:
    """Say where the promise was lost, if the bound, the members' counters or the processor tell; else nothing."""
    writes, of_bound = _extra_reads(row), row["of_bound"] or 0.0
    if thread := _saturated_thread(row):
        return thread
    if writes:
        return writes
    if row["bound_by"] == "parallelism" and BUSY <= of_bound <= 1 / BUSY and row["bound"] < row["promised"]:
        return f"this load keeps {_count(row['members_in_use'])} of {row['devices']} members busy at once"
    if row["bound_by"] in ("link", "pcie", "memory") and of_bound >= 0.8:
        return f"{BOUND_WORDS[row['bound_by']]} is the ceiling"
    if (row["core_utilisation"] or 0) >= BUSY:
        return f"a thread saturates its core ({wording.percent_text(row['core_utilisation'])} busy)"
    if (row["member_imbalance"] or 0) >= UNEVEN:
        return f"the busiest member moves {wording.times_text(row['member_imbalance'])} the mean"
    if row["needed_bytes"] and (row["member_bytes_per_byte"] or 0) > 1.1 * row["needed_bytes"]:
        moved, needed = (wording.ratio_text(row[name]) for name in ("member_bytes_per_byte", "needed_bytes"))
        return f"members move {moved} bytes for each of the host, where the layout needs {needed}"
    if row["bound"] is not None and of_bound >= KEPT:
        return "all that requests of this size can get from this layout"
    if row["member_utilisation"] is None:
        return ""
    busy, uneven = row["member_utilisation"], row["member_imbalance"] or 1
    if busy < KEPT:
        most = f", the busiest moving {wording.times_text(uneven)} the mean" if uneven >= NOTABLE else ""
        return f"members are idle {wording.percent_text(1 - busy)} of the time{most}"
    return f"members are busy {wording.percent_text(busy)} of the time, and slower than one alone"


def _saturated_thread(row: Row) -> str:
    """Say that the array's own thread is the limit, where it has no time left and the members could do more."""
    share = row["array_thread_utilisation"] or 0.0
    if share < BUSY or (row["of_bound"] or 0.0) >= KEPT:
        return ""
    whose = "md's single thread" if row["array_kind"] == "md" else "that thread"
    return (
        f"`{row['array_thread']}` was busy {wording.percent_text(share)} of one core: the array is held back by "
        f"{whose}, not by its members"
    )


def _beyond(rows: Sequence[Row]) -> str:
    """Say that the model takes writes of a parity level for smaller ones than these, and what bounds them instead."""
    more = [row for row in rows if row["writes_only"] and row["efficiency"] > BEYOND and row["of_bound"] is not None]
    if not more:
        return ""
    shares = [row["of_bound"] for row in more]
    return (
        "; the model takes every write for a partial one of a chunk, and writes of this size reach "
        f"{_percents(min(shares), max(shares))} of the bound of their layout"
    )


def _extra_reads(row: Row) -> str:
    """Say what a partial write of a parity level costs, where the members read under a load of writes."""
    reads, ios, moved = (
        row[name] for name in ("member_reads_per_operation", "member_ios_per_operation", "member_bytes_per_byte")
    )
    if row["array"] not in PARITIES or not row["writes_only"] or (reads or 0) < READS_FOR_WRITES:
        return ""
    split = "" if abs(ios - moved) < 0.3 * moved else f" of {wording.ratio_text(moved)} times its bytes"
    return f"{_count(ios)} member I/Os{split} for each host write, {_count(reads)} of them reads"


def _count(value: float) -> str:
    """Write a number of I/Os or members: one decimal, none where it is whole."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 or value >= 20 else f"{value:.1f}"


def _evidence(question: Question, row: Row) -> str:
    metric = question.analysis.metric
    measured, promised, one = (wording.value_text(metric, row[name]) for name in ("measured", "promised", "baseline"))
    interval = "" if row["low"] is None else f", 95 % interval {_percents(row['low'], row['high'])}"
    parts = [
        f"{level_words(row['array'], row['devices'])}: {measured} of {promised} promised ({_multiple(row['multiple'])} "
        f"times one device's {one}), efficiency {wording.percent_text(row['efficiency'])}{interval}, "
        f"software overhead {_overhead(row)}, {wording.times_text(row['speedup'])} one device",
        *_bound_evidence(metric, row),
        *_member_evidence(row),
        f"{wording.counted(row['repeats'], 'run')} each",
    ]
    return "; ".join(parts)


def _bound_evidence(metric: str, row: Row) -> Iterator[str]:
    if row["bound"] is not None:
        bound, share = wording.value_text(metric, row["bound"]), wording.percent_text(row["of_bound"])
        yield f"the layout bounds it to {bound} ({BOUND_WORDS[row['bound_by']]}): {share}"


def _member_evidence(row: Row) -> Iterator[str]:
    if row["member_ios_per_operation"] is not None:
        ios, moved = _count(row["member_ios_per_operation"]), wording.ratio_text(row["member_bytes_per_byte"])
        busy, uneven = wording.percent_text(row["member_utilisation"]), wording.ratio_text(row["member_imbalance"] or 1)
        yield f"members: {ios} I/Os and {moved} bytes for each of the host, {busy} busy"
        yield f"the busiest moves {uneven} times the mean"
    if row["cpu_ns_per_byte"] is not None:
        yield f"CPU {row['cpu_ns_per_byte']:.2g} ns a byte"
    if row["core_utilisation"] is not None:
        yield f"busiest thread {wording.percent_text(row['core_utilisation'])} of a core"
    if row["array_thread_utilisation"] is not None:
        yield f"`{row['array_thread']}` {wording.percent_text(row['array_thread_utilisation'])} of a core"
    if row["array_cpu_ns_per_byte"]:
        yield f"the array's threads {row['array_cpu_ns_per_byte']:.2g} ns a byte"
    if row["busiest_core_utilisation"] is not None:
        yield f"busiest core {wording.percent_text(row['busiest_core_utilisation'])}"


def _multiple(value: float) -> str:
    return f"{value:.3g}"


def _name(row: Row) -> str:
    kind = "" if row["array_kind"] in ("", "md") else f" ({row['array_kind']})"
    state = f", {row['state']}" if row["state"] in ("degraded", "rebuilding") else ""
    return f"{level_words(row['array'])}{kind}{state}"


def _devices(rows: Sequence[Row]) -> str:
    """Name the numbers of devices: ` with 2 to 8 devices`."""
    numbers = sorted({row["devices"] for row in rows})
    span = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f" with {span} devices"


def _at(loads: Loads, row: Row, *, words: str = ",") -> str:
    lead = f" {words} " if words.isalpha() else f"{words} "
    quantities = loads.quantities_words(row).removeprefix(" with ")
    return f"{lead}{row['devices']} devices{', ' if quantities else ''}{quantities}"


def _range(rows: Sequence[Row]) -> str:
    shares = sorted(map(_efficiency, rows))
    return _percents(shares[0], shares[-1])


def _percents(low: float, high: float) -> str:
    first, last = wording.percent_text(low), wording.percent_text(high)
    return last if first == last else f"{first.removesuffix(' %')}..{last}"


def _overhead(row: Row) -> str:
    return wording.percent_text(max(0.0, row["overhead"]))


def _best_speedup(loads: Loads, rows: Sequence[Row]) -> str:
    best = max(rows, key=lambda row: float(row["speedup"]))
    words = loads.words({name: best[name] for name in loads.apart}, best["case_id"])
    return f"most over one device: {wording.times_text(best['speedup'])} ({words}{_at(loads, best)})"


def _strength(rows: Sequence[Row]) -> Strength:
    """By how wide the intervals of the shares are."""
    if any(row["low"] is None for row in rows):
        return "weak"
    widths = sorted((row["high"] - row["low"]) / row["efficiency"] for row in rows)
    return "strong" if widths[len(widths) // 2] <= 0.2 else "moderate"
