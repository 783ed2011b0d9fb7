"""Unavailable time of storage during an outage, its backlog, and whether acknowledged writes were lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
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


def find(question: Question) -> Iterator[Finding]:
    """State the unavailable time of each case of the part."""
    for case_id in question.cases.filter(pl.col("part") == question.part.name)["case_id"]:
        ended = _outcomes(question, case_id)
        failed = sum(each != "complete" for each in ended)
        found = {name: _values(question, case_id, name) for name in (UNAVAILABLE, LENGTH, CAUGHT_UP)}
        about: dict[str, Any] = {"load": question.load({}, case_id), "case_ids": (case_id,), "part": question.part.name}
        if not len(found[UNAVAILABLE]):
            yield NotUnavailable(**about, repeats=len(ended), failed=failed, strength="strong")
            continue
        unavailable = repeats_interval(found[UNAVAILABLE])
        gaps = len(found[UNAVAILABLE])
        wrong = _values(question, case_id, "wrong_sectors")
        yield Unavailability(
            **about,
            outage=repeats_interval(found[LENGTH]) if len(found[LENGTH]) else None,
            unavailable=unavailable,
            caught_up=repeats_interval(found[CAUGHT_UP]) if len(found[CAUGHT_UP]) == gaps else None,
            backlog=float(max(_values(question, case_id, "outage_backlog_max"), default=0.0)),
            gaps=gaps,
            complete=len(ended) - failed or gaps,
            failed=failed,
            verified=_verified(question, case_id),
            wrong_sectors=int(wrong.sum()),
            strength=question.support.strength((case_id,), unavailable),
        )


def _verified(question: Question, case_id: str) -> int:
    """Runs that compared all data afterwards; those that verify during the load check only what is read."""
    case = question.cases.row(by_predicate=pl.col("case_id") == case_id, named=True)
    return int((_values(question, case_id, "verified_bytes") > 0).sum()) if case.get("verify") == "after" else 0


def _outcomes(question: Question, case_id: str) -> list[str]:
    if question.outcomes is None or "outcome" not in question.outcomes.columns:
        return []
    return question.outcomes.filter(pl.col("case_id") == case_id)["outcome"].to_list()


def _values(question: Question, case_id: str, metric: str) -> np.ndarray:
    """The values of a metric in the runs of a case."""
    found = question.runs.filter(pl.col("case_id") == case_id, pl.col("metric") == metric, pl.col("operation") == "all")
    return found.unique(["run_id"], maintain_order=True).sort("repeat")["value"].to_numpy()
