"""Cases that the target and this machine can carry out and tell apart, and why others are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iosonde.errors import IosondeError, TargetError
from iosonde.plan import LeftOut
from iosonde.planning.distinct import distinct_drafts
from iosonde.planning.draft import Draft, drafts_of, left_out_for
from iosonde.planning.feasible import check_direct, check_room, requirements_of_features
from iosonde.planning.files import files_of
from iosonde.planning.setup_targets import SetupTargets
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.storage import Target


def possible_drafts(study: Study, stages: SetupTargets[Target], left_out: list[LeftOut]) -> list[Draft]:
    """The drafts of a study; impossible cases of optional parts, and those that a simulated target cannot tell from
    others, go to `left_out`. An error if none is possible.
    """
    optional = {part.name for part in study.parts if part.optional}
    first: IosondeError | None = None
    kept = []
    for draft in drafts_of(study, stages, left_out=left_out):
        try:
            if draft.case.part in optional:
                _check(draft, stages, study)
        except IosondeError as error:  # Its parameters are valid: the target or the machine lacks something.
            first = first or error
            left_out.append(left_out_for(error, draft.case.case_id, draft.case.part))
        else:
            kept.append(draft)
    if not any(not draft.case.control for draft in kept):
        raise _none_possible(left_out, first, study)
    chosen, repeated = distinct_drafts(kept, study, stages.base)
    left_out += repeated
    return chosen


def _none_possible(left_out: Sequence[LeftOut], first: IosondeError | None, study: Study) -> IosondeError:
    """The error of the only case, or one with the first case of each reason."""
    reasons = {each.reason: each for each in reversed(left_out)}
    each = left_out[0]
    if len(reasons) == 1:
        return first or TargetError(each.reason, where=f"in case `{each.case_id}`, like all others", hint=each.hint)
    lines = [f"in case `{each.case_id}`: {each.reason}" for each in reversed(reasons.values())]
    return TargetError(
        f"the study `{study.name}` has no case that is possible here", where="\n  ".join(lines), hint=each.hint
    )


def _check(draft: Draft, stages: SetupTargets[Target], study: Study) -> None:
    """An error if the case by itself is impossible."""
    place = stages.on(draft.case.setup)
    list(requirements_of_features([draft], place, study))
    check_room([draft], files_of([draft], place), place)
    check_direct([draft], place)
    draft.workload.resolve(draft.streams, place, seed=0, run_id="possible")
