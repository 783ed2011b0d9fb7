"""Array efficiency: measured over expected throughput of each RAID level, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iosonde.features.arrays.loads import EVERYTHING, Loads, Row
from iosonde.features.arrays.performance import BOUND_WORDS, level_name, level_words
from iosonde.features.arrays.setup import PARITIES
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import WELCH, Estimate

KEPT = 0.95
"""From this share of the expected throughput on no limit is looked for."""
BUSY = 0.9
"""A core or a link from this share on is the limit."""
UNEVEN = 1.25
NOTABLE = 1.1
"""The busiest member's bytes over the mean from which on it is the limit, and from which on it is mentioned."""
BEYOND = 1.2
"""Above this share of the expected throughput the model does not apply, unless the interval contains 1."""
UNNEEDED = 1.1
"""Bytes that members move over those that the layout requires, or the inverse, from which on they explain a rate."""
READS_FOR_WRITES = 0.1
"""Member reads for each write from which on they are a read-modify-write."""
POLLING = ("submission_polling", "completion_polling")


class ArrayEfficiency(Finding, kind="array efficiency", topic="arrays"):
    """Measured over expected throughput of one RAID level under one load, over numbers of devices."""

    array: str
    """The level, with the kind of array and its state."""
    load: str
    """Empty for all loads."""
    metric: str
    efficiency: tuple[float, float]
    """Smallest and largest of all cells."""
    devices: tuple[int, int]
    applies: bool
    """True if no cell is more than 20 % above the model with its whole interval above the model."""
    reason: str
    """Limit of the cell with the lowest efficiency, or why the model does not apply there; empty if unknown."""
    lowest: Row
    """Row of the cell with the lowest efficiency."""
    lowest_cell: str
    """The levels of that cell that the load does not name; empty with a single cell."""
    speedup: float
    """Largest ratio to one device."""
    fastest_cell: str
    """The same of the cell with that ratio."""
    cells: int
    of_load: int
    """Cells that the words for load and devices include."""

    def _sentence(self) -> str:
        first, last = self.devices
        devices = f"{last} devices" if first == last else f"{first} to {last} devices"
        subject = f"{self.array} {self.load}" if self.load else self.array
        operations = self.load.partition(" with ")[0].partition(" at ")[0]
        verb = "reach" if operations.endswith(("reads", "writes", "trims")) else "reaches"
        share = wording.percent_range(*self.efficiency)
        some = f" in {self.cells} of {self.of_load} cells" if self.cells < self.of_load else ""
        where = f"lowest with {self.lowest_cell}: " if self.lowest_cell else ""
        reason = f"; {where}{self.reason}" if self.reason else ""
        if not self.applies:
            model = "the expected-throughput model does not apply"
            return f"{subject} with {devices}{some}: {model} ({share} of it){reason}"
        fastest = f" with {self.fastest_cell}" if self.fastest_cell else ""
        best = f", up to {wording.times_text(self.speedup)} one device{fastest}" if self.efficiency[0] >= KEPT else ""
        return f"{subject} {verb} {share} of the expected throughput with {devices}{some}{best}{reason}"

    def _evidence(self) -> str:
        row = self.lowest
        measured, expected, one = (
            wording.value_text(self.metric, row[name]) for name in ("measured", "expected", "baseline")
        )
        interval = "" if row["low"] is None else f" (95 % CI {wording.percent_range(row['low'], row['high'])}, {WELCH})"
        which = "lowest of " + wording.counted(self.cells, "cell") + ", " if self.cells > 1 else ""
        parts = [
            f"{which}{level_words(row['array'], row['devices'])}: {measured}, {expected} expected "
            f"({row['multiple']:.3g} "
            f"times one device's {one}), efficiency {wording.percent_text(row['efficiency'])}{interval}",
            *_bound_evidence(self.metric, row),
            *_member_evidence(row),
            f"{wording.counted(row['repeats'], 'run')} each",
        ]
        return "; ".join(parts)


def find(question: Question) -> Iterator[Finding]:
    """Return the efficiency of each level, with loads of similar results in one finding."""
    if question.is_open_loop:
        return
    loads = Loads(question)
    answers = loads.answers()
    for level in dict.fromkeys((row["array"], row["array_kind"], row["state"]) for row in answers):
        rows = [row for row in answers if (row["array"], row["array_kind"], row["state"]) == level]
        beyond = [row for row in rows if _exceeds(row)]
        kept = [row for row in rows if row["efficiency"] >= KEPT and not _exceeds(row)]
        short = [row for row in rows if row["efficiency"] < KEPT]
        for chosen in (kept, short, beyond):
            for key, group in loads.together(loads.divide(chosen), _efficiency):
                yield _finding(loads, key, group, of_level=rows)


def _efficiency(row: Row) -> float:
    return float(row["efficiency"])


def _exceeds(row: Row) -> bool:
    """Return whether a cell exceeds the model. An interval that contains the expected throughput does not show it."""
    return bool(row["efficiency"] > BEYOND and (row["low"] is None or row["low"] > 1))


def _finding(loads: Loads, key: Mapping[str, Any], rows: Sequence[Row], *, of_level: Sequence[Row]) -> ArrayEfficiency:
    question = loads.question
    lowest = min(rows, key=_efficiency)
    shares = sorted(map(_efficiency, rows))
    applies = not any(map(_exceeds, rows))
    words = loads.words(key, lowest["case_id"])
    estimates = [Estimate(row["efficiency"], row["low"], row["high"]) for row in rows]
    case_ids = tuple(row["case_id"] for row in rows)
    case = question.case(lowest["case_id"])
    short = why(lowest, is_polling=any(case.get(name) for name in POLLING)) if shares[0] < KEPT else ""
    fastest = max(rows, key=lambda row: float(row["speedup"]))
    several = len(rows) > 1
    return ArrayEfficiency(
        array=level_name(rows[0]),
        load=f"{'' if words == EVERYTHING else words}{_quantities(loads, rows, of_level)}".strip(),
        metric=question.analysis.metric,
        efficiency=(shares[0], shares[-1]),
        devices=(min(row["devices"] for row in rows), max(row["devices"] for row in rows)),
        applies=applies,
        reason=short if applies else _beyond(lowest),
        lowest=lowest,
        lowest_cell=loads.cell(lowest, key, rows) if several else "",
        speedup=float(fastest["speedup"]),
        fastest_cell=loads.cell(fastest, key, rows) if several else "",
        cells=len(rows),
        of_load=sum(loads.includes(key, rows, row) for row in of_level),
        strength=question.support.strength((*case_ids, *(row["baseline_case_id"] for row in rows)), *estimates),
        case_ids=case_ids,
        part=question.part.name,
    )


def _quantities(loads: Loads, rows: Sequence[Row], of_level: Sequence[Row]) -> str:
    """Name block sizes and queue depths, if the rows do not cover all of those of the level."""
    words = []
    for name in loads.quantities:
        every, chosen = (sorted({row[name] for row in each}) for each in (of_level, rows))
        if every != chosen:
            words.append(wording.range_words(name, every, chosen))
    return "".join(words)


def why(row: Row, *, is_polling: bool = False) -> str:
    """Return what limits an array, as far as bound, members' counters or CPU time show it; else nothing.

    A polling thread is busy whatever limits the array.
    """
    extra_reads, of_bound = _extra_reads(row), row["of_bound"] or 0.0
    if thread := _saturated_thread(row):
        return thread
    if extra_reads:
        return extra_reads
    if row["bound_by"] == "parallelism" and BUSY <= of_bound <= 1 / BUSY and row["bound"] < row["expected"]:
        return f"this load keeps {_count(row['members_in_use'])} of {row['devices']} members busy at once"
    if row["bound_by"] in ("link", "pcie", "memory") and of_bound >= 0.8:
        return f"limited by {BOUND_WORDS[row['bound_by']]}"
    if (row["core_utilisation"] or 0) >= BUSY and not is_polling:
        return f"CPU-limited: a thread used {wording.percent_text(row['core_utilisation'])} of one core"
    if (row["member_imbalance"] or 0) >= UNEVEN:
        return f"uneven load: the busiest member moves {wording.times_text(row['member_imbalance'])} the mean"
    if row["needed_bytes"] and (row["member_bytes_per_byte"] or 0) > UNNEEDED * row["needed_bytes"]:
        return _moved(row)
    if row["bound"] is not None and of_bound >= KEPT:
        return "at the layout's bound for this request size"
    if row["member_utilisation"] is None:
        return ""
    busy, uneven = row["member_utilisation"], row["member_imbalance"] or 1
    if busy < KEPT:
        most = f", the busiest moving {wording.times_text(uneven)} the mean" if uneven >= NOTABLE else ""
        return f"members are idle {wording.percent_text(1 - busy)} of the time{most}"
    return f"members are busy {wording.percent_text(busy)} of the time"


def _saturated_thread(row: Row) -> str:
    """Return whether the array's own thread has no CPU time left while the members could do more."""
    share = row["array_thread_utilisation"] or 0.0
    if share < BUSY or (row["of_bound"] or 0.0) >= KEPT:
        return ""
    return f"CPU-limited: `{row['array_thread']}` used {wording.percent_text(share)} of one core"


def _beyond(row: Row) -> str:
    """Return why a cell exceeds the model, as far as counters of the members or the layout show it."""
    needed, moved, of_bound = (row[name] for name in ("needed_bytes", "member_bytes_per_byte", "of_bound"))
    if needed and moved is not None and UNNEEDED * moved < needed:
        return _moved(row)
    bound = f"; {wording.percent_text(of_bound)} of the layout bound" if of_bound is not None else ""
    if row["array"] in PARITIES and row["writes_only"] and of_bound is not None and of_bound <= BEYOND:
        return f"the model assumes partial-stripe writes{bound}"
    return f"cause unknown{bound}"


def _moved(row: Row) -> str:
    """State the bytes that the members moved and those that the layout requires."""
    moved, needed = (wording.ratio_text(row[name]) for name in ("member_bytes_per_byte", "needed_bytes"))
    return f"members move {moved} bytes per host byte, the layout requires {needed}"


def _extra_reads(row: Row) -> str:
    """Return the cost of partial-stripe writes of a parity level, if the members read under a load of writes."""
    reads, ios, moved = (
        row[name] for name in ("member_reads_per_operation", "member_ios_per_operation", "member_bytes_per_byte")
    )
    if row["array"] not in PARITIES or not row["writes_only"] or (reads or 0) < READS_FOR_WRITES:
        return ""
    split = "" if abs(ios - moved) < 0.3 * moved else f" of {wording.ratio_text(moved)} times its bytes"
    return f"{_count(ios)} member I/Os{split} per host write, {_count(reads)} of them reads"


def _count(value: float) -> str:
    """Write a number of I/Os or members: one decimal, none if it is whole."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 or value >= 20 else f"{value:.1f}"


def _bound_evidence(metric: str, row: Row) -> Iterator[str]:
    if row["bound"] is not None:
        bound, share = wording.value_text(metric, row["bound"]), wording.percent_text(row["of_bound"])
        yield f"layout bound {bound} ({BOUND_WORDS[row['bound_by']]}), {share} of it"


def _member_evidence(row: Row) -> Iterator[str]:
    if row["member_ios_per_operation"] is not None:
        ios, moved = _count(row["member_ios_per_operation"]), wording.ratio_text(row["member_bytes_per_byte"])
        busy, uneven = wording.percent_text(row["member_utilisation"]), wording.ratio_text(row["member_imbalance"] or 1)
        yield f"members: {ios} I/Os and {moved} bytes per host I/O and byte, {busy} busy"
        yield f"busiest member {uneven} times the mean"
    if row["cpu_ns_per_byte"] is not None:
        yield f"CPU {row['cpu_ns_per_byte']:.2g} ns per byte"
    if row["core_utilisation"] is not None:
        yield f"busiest thread {wording.percent_text(row['core_utilisation'])} of a core"
    if row["array_thread_utilisation"] is not None:
        yield f"`{row['array_thread']}` {wording.percent_text(row['array_thread_utilisation'])} of a core"
    if row["array_cpu_ns_per_byte"]:
        yield f"array threads {row['array_cpu_ns_per_byte']:.2g} ns per byte"
    if row["busiest_core_utilisation"] is not None:
        yield f"busiest core {wording.percent_text(row['busiest_core_utilisation'])}"


KINDS = (QuestionKind("array_efficiency", find),)
