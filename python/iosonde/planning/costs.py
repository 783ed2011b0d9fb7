"""Cost of a plan: time, and bytes written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Case, Cost, Run
from iosonde.planning.draft import Draft
from iosonde.planning.files import files_of
from iosonde.study.model import Study
from iosonde.workload.block.backends import BACKENDS

SESSION_SECONDS = 5.5
"""Start of a session, and its report at the end: imports, the plan, checks, figures."""
RUN_OVERHEAD_SECONDS = 0.15
"""Overhead of a run besides ramp and measurement: start, open, drain, record."""
SIMULATED_OVERHEAD_SECONDS = 0.05
"""The same on a simulated drive, which has no page cache, device counters or temperature."""
SIMULATED_SHARE = 0.1
"""Seconds in which a second of a simulated drive's time is computed; about 1 µs per I/O, so 100,000 IOPS."""


def elapsed_s(case: Case) -> float:
    """Return the time that a run of a case takes, overhead included: its cost is in the time of a simulated drive."""
    if _has_virtual_time(case):
        return case.cost.seconds * SIMULATED_SHARE + SIMULATED_OVERHEAD_SECONDS
    return case.cost.seconds + RUN_OVERHEAD_SECONDS


def _has_virtual_time(case: Case) -> bool:
    backend = BACKENDS.get(str(case.parameters.get("backend")))
    return backend is not None and backend.has_virtual_time


def total_cost(drafts: Sequence[Draft], whole: Sequence[Case], runs: Sequence[Run], layout_bytes: int) -> Cost:
    """Everything together: runs, what procedures can require, preparation and layout."""
    cases = {draft.case.case_id: draft.case for draft in drafts}
    decided = [draft.case for draft in drafts for _ in range(draft.most_measured)]
    prepared = [(case.procedure.preparation, _has_virtual_time(case)) for case in whole if case.procedure]
    measured = [cases[run.case_id] for run in runs] + decided
    written = [case.cost.write_bytes for case in measured] + [cost.write_bytes for cost, _ in prepared]
    seconds = SESSION_SECONDS + sum(map(elapsed_s, measured)) + layout_bytes / ASSUMED_BYTES_PER_SECOND
    seconds += sum(cost.seconds * (SIMULATED_SHARE if is_virtual else 1) for cost, is_virtual in prepared)
    return Cost(
        seconds=round(seconds, 3),
        write_bytes=None if None in written else sum(size or 0 for size in written) + layout_bytes,
    )


def laid_out_bytes(drafts: Sequence[Draft], order: Sequence[Draft]) -> int:
    """Missing files are written once per setup, others at every run."""
    always = 0
    missing: dict[tuple[Any, ...], list[Draft]] = {}
    for number, draft in enumerate([*order, *(each for each in drafts for _ in range(each.max_runs))]):
        layout = draft.workload.layout(draft.streams)
        if layout == "always":
            always += sum(draft.workload.files(draft.streams).values())
        elif layout == "missing":
            is_own = draft.case.setup is not None and draft.case.setup.fresh == "run"
            missing.setdefault((*draft.case.setup_key, number if is_own else None), []).append(draft)
    return always + sum(sum(files_of(group).values()) for group in missing.values())


def preparation_cost(draft: Draft, study: Study) -> Cost:
    """Return the cost of preparation and of stages after the rounds, in all repeats."""
    if draft.kind != "rounds" and not draft.following:
        return Cost(seconds=0, write_bytes=0)
    from iosonde.procedure import preparation

    prepared = [preparation.cost(draft.streams)] if draft.kind == "rounds" else []
    each = [*prepared, *map(draft.workload.cost, draft.following)]
    written = None if any(cost.write_bytes is None for cost in each) else sum(cost.write_bytes or 0 for cost in each)
    return Cost(
        seconds=sum(cost.seconds for cost in each) * study.repeats,
        write_bytes=None if written is None else written * study.repeats,
    )
