"""Latency of network storage divided among client, network and server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from iosonde.features.network_storage.facts import DIVIDED, PARTS, SERVER_PARTS, part_of
from iosonde.findings.finding import FIRST, Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, repeats_interval

UNAVAILABLE, LENGTH, CAUGHT_UP = "unavailable_ns", "outage_length_ns", "outage_caught_up_ns"


class Unavailability(Finding, kind="unavailability", topic="path"):
    """An outage under one load: time without a completed I/O, and what became of data and backlog."""

    load: str
    outage: Estimate | None
    """Length in nanoseconds, as the others; None where iosonde did not cause it."""
    unavailable: Estimate
    caught_up: Estimate | None
    """Time to work off the backlog; None if it was not worked off in every run."""
    backlog: float
    """Largest of all runs."""
    gaps: int
    """Runs with an unavailable time."""
    complete: int
    failed: int
    """Runs that ended with an error."""
    verified: int
    """Runs whose data were compared with all acknowledged writes."""
    wrong_sectors: int

    def _sentence(self) -> str:
        times = f"unavailable for {wording.estimate_text(UNAVAILABLE, self.unavailable)}"
        if self.gaps < self.complete:
            times += f" in {self.gaps} of {self.complete} complete runs"
        if self.outage:
            times += f" with an outage of {wording.value_text(LENGTH, self.outage.value)}"
        return f"{self.load}: {times}; {self._data}"

    @property
    def _data(self) -> str:
        failed = f"{self.failed} of {self.failed + self.complete} runs failed; " if self.failed else ""
        if not self.verified:
            return f"{failed}data not verified"
        if self.wrong_sectors:
            return f"{failed}{wording.counted(self.wrong_sectors, 'sector')} differ from acknowledged writes"
        return f"{failed}no acknowledged write lost in {wording.counted(self.verified, 'verified run')}"

    def _evidence(self) -> str:
        backlog = f"largest backlog {self.backlog:.0f} I/Os"
        worked = f", worked off in {wording.estimate_text(CAUGHT_UP, self.caught_up)}" if self.caught_up else ""
        return f"{backlog}{worked}; each end of the unavailable time is known to half an interval"


class NotUnavailable(Finding, kind="no unavailability", topic="path"):
    """An outage without a gap in completed I/O, or after which none completed."""

    load: str
    repeats: int
    failed: int

    def _sentence(self) -> str:
        if self.repeats and self.failed == self.repeats:
            return f"{self.load}: {wording.counted(self.failed, 'run')} failed"
        return f"{self.load}: unavailable time not decided: no gap in completed I/O, or none that ended"

    def _evidence(self) -> str:
        return wording.counted(self.repeats, "run")


def outages(question: Question) -> Iterator[Finding]:
    """State the unavailable time of each case of the part."""
    runs = _runs(question, "outcome")
    for case_id in question.cases.filter(pl.col("part") == question.part.name)["case_id"]:
        ended = runs.filter(pl.col("case_id") == case_id)["outcome"].to_list()
        failed = sum(each != "complete" for each in ended)
        found = {name: question.repeats(name, case_id) for name in (UNAVAILABLE, LENGTH, CAUGHT_UP)}
        about: dict[str, Any] = {"load": question.load({}, case_id), "case_ids": (case_id,), "part": question.part.name}
        if not len(found[UNAVAILABLE]):
            yield NotUnavailable(**about, repeats=len(ended), failed=failed, strength="strong")
            continue
        unavailable = repeats_interval(found[UNAVAILABLE])
        gaps = len(found[UNAVAILABLE])
        compared = question.repeats("verified_bytes", case_id) > 0
        wrong = question.repeats("wrong_sectors", case_id)
        yield Unavailability(
            **about,
            outage=repeats_interval(found[LENGTH]) if len(found[LENGTH]) else None,
            unavailable=unavailable,
            caught_up=repeats_interval(found[CAUGHT_UP]) if len(found[CAUGHT_UP]) == gaps else None,
            backlog=float(max(question.repeats("outage_backlog_max", case_id), default=0.0)),
            gaps=gaps,
            complete=len(ended) - failed or gaps,
            failed=failed,
            # Runs that verify during the load check only what is read.
            verified=int(compared.sum()) if question.case(case_id).get("verify") == "after" else 0,
            wrong_sectors=int(wrong.sum()),
            strength=question.support.strength((case_id,), unavailable),
        )


def _runs(question: Question, *columns: str) -> pl.DataFrame:
    """The runs of the part in the view `runs`; none where it has not these columns."""
    found = question.outcomes
    if found is None or not set(columns) <= set(found.columns):
        return pl.DataFrame(schema=dict.fromkeys(("case_id", *columns), pl.String))
    cases = question.cases.filter(pl.col("part") == question.part.name)["case_id"].to_list()
    return found.filter(pl.col("case_id").is_in(cases))


LATENCY = "completion_latency_ns_mean"
WORDS = {"server_queue": "server's CPU and queue", "server_device": "server's device"}


class DividedLatency(Finding, kind="divided latency", topic="path"):
    """The mean latency of a load by the part of the path that took it; the parts add up to the total."""

    load: str
    total: Estimate
    """In nanoseconds."""
    parts: tuple[tuple[str, Estimate], ...]
    """Part and its time, the longest first."""
    repeats: int

    def _sentence(self) -> str:
        listed = [f"{part} {wording.estimate_text(LATENCY, time)}" for part, time in self.parts]
        return f"{self.load}: mean latency {wording.estimate_text(LATENCY, self.total)}: {wording.listing(listed)}"

    def _evidence(self) -> str:
        runs = wording.counted(self.repeats, "run")
        return f"{runs}; network: probes of the same path; server: the rest of the round trip of a call"


class UndividedLatency(Finding, kind="latency not separable", topic="path"):
    """Loads whose latency is not divided for the same reason."""

    loads: tuple[str, ...]
    of: int
    """Loads that were measured."""
    reason: str

    def _sentence(self) -> str:
        if len(self.loads) == 1:
            return f"{self.loads[0]}: latency not separable: {self.reason}"
        return f"latency not separable for {len(self.loads)} of {self.of} loads: {self.reason}"

    def _evidence(self) -> str:
        return f"{'; '.join(self.loads)} (docs/network.md)"


class NoNetworkStorage(Finding, kind="no network storage", topic="path", place=FIRST):
    """A target below which no transport of network storage was recognized, such as a local disk."""

    evidence_text = "mount and devices of the target (docs/network.md)"
    runs: int

    def _sentence(self) -> str:
        runs = wording.counted(self.runs, "run")
        return f"no network storage was recognized below the target in {runs}: latency is not divided"


def find(question: Question) -> Iterator[Finding]:
    """Divide the latency of each case, or state why it is not divided."""
    factors = [question.analysis.over, *question.by]
    divided = question.cells_by(DIVIDED, factors)
    for row in divided.iter_rows(named=True):
        yield _divided(question, row)
    complete = _runs(question, "outcome", "network_transport").filter(pl.col("outcome") == "complete")
    if complete.is_empty() or complete["network_transport"].null_count() < len(complete):
        yield from _undivided(question, known=set(divided["case_id"]))
    else:
        case_ids = tuple(complete["case_id"].unique(maintain_order=True))
        yield NoNetworkStorage(runs=len(complete), strength="strong", case_ids=case_ids, part=question.part.name)


def _divided(question: Question, row: Mapping[str, Any]) -> DividedLatency:
    case_id = row["case_id"]
    total = repeats_interval(np.asarray(row["values"], dtype=float))
    values = {name: question.repeats(part_of(name), case_id) for name in (*PARTS, *SERVER_PARTS)}
    if all(len(values[name]) == len(row["values"]) for name in SERVER_PARTS):
        del values["server"]
    parts = {WORDS.get(name, name): repeats_interval(each) for name, each in values.items() if len(each)}
    return DividedLatency(
        load=_load(question, row, case_id),
        total=total,
        parts=tuple(sorted(parts.items(), key=lambda item: -item[1].value)),
        repeats=len(row["values"]),
        **question.claim([case_id], total),
    )


def _load(question: Question, levels: Mapping[str, Any], case_id: str) -> str:
    """The load of a case, with its level of the factor over which it is divided."""
    over = question.analysis.over
    named = question.load({name: levels[name] for name in question.by if name in levels}, case_id)
    return f"{named}, {wording.level_words(over, levels[over])}" if over in levels else named


def _undivided(question: Question, *, known: set[str]) -> Iterator[UndividedLatency]:
    runs = _runs(question, "network_unseparated")
    measured = question.cases.filter(pl.col("part") == question.part.name)["case_id"].to_list()
    alike: dict[str, list[str]] = {}
    for case_id in measured:
        reasons = runs.filter(pl.col("case_id") == case_id)["network_unseparated"]
        reason = next((str(each) for each in reasons if each), "")
        if case_id not in known and reason:
            alike.setdefault(reason, []).append(case_id)
    for reason, case_ids in alike.items():
        yield UndividedLatency(
            loads=tuple(_load(question, question.case(each), each) for each in case_ids),
            of=len(measured),
            reason=reason,
            strength="weak",
            case_ids=tuple(case_ids),
            part=question.part.name,
        )


KINDS = (
    QuestionKind("network_path", find, explains_missing=True),
    QuestionKind("outage", outages, explains_missing=True),
)
