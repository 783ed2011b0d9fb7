"""The order of runs: shuffled by the study's seed, the control among them, and what is dear to make kept together."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence

from iosonde.plan import Case
from iosonde.planning.draft import Draft
from iosonde.study.model import Study


def run_order(study: Study, drafts: Sequence[Draft]) -> list[Draft]:
    """The runs in their order, the control among them at even distances.

    Runs on the same setup follow each other, for it is dear to make; the setups come in a random order too. Cases with
    a procedure are not among them: theirs is decided when it comes to it (`procedure/__init__.py`).
    """
    measured = [draft for draft in drafts if not draft.case.control and draft.is_planned]
    groups: dict[tuple[str, ...], list[Draft]] = {}
    for draft in measured:
        groups.setdefault(_kept_together(draft.case), []).append(draft)
    keys = list(groups)
    if study.shuffle:
        random.Random(f"{study.seed}/setups").shuffle(keys)
    if not study.control:
        return [draft for key in keys for draft in _interleaved(groups[key], study)]
    every = study.control.every
    if len(keys) > 1:
        # A control within a group would cost two setups more, so it is between groups.
        blocks = [list(_interleaved(groups[key], study)) for key in keys]
    else:
        runs = [draft for key in keys for draft in _interleaved(groups[key], study)]
        blocks = [runs[begin : begin + every] for begin in range(0, len(runs), every)]
    return [drafts[0], *itertools.chain.from_iterable([*block, drafts[0]] for block in blocks)]


def _kept_together(case: Case) -> tuple[str, ...]:
    """Runs with the same follow each other; what is created for each run need not be."""
    return () if case.setup and case.setup.fresh == "run" else case.setup_key


def _interleaved(drafts: Sequence[Draft], study: Study) -> Iterator[Draft]:
    """Every case once before any comes again, each time in another order."""
    for repeat in range(study.repeats):
        yield from _shuffled(drafts, study, repeat)


def _shuffled(drafts: Sequence[Draft], study: Study, repeat: int) -> list[Draft]:
    ordered = list(drafts)
    if study.shuffle:
        random.Random(f"{study.seed}/{repeat}").shuffle(ordered)
    return ordered


def seed_of_run(seed: int, case_id: str, repeat: int) -> int:
    """Another seed for each run; below 2^53, so that every reader of JSON has it exactly."""
    digest = hashlib.sha256(f"{seed}/{case_id}/{repeat}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 11
