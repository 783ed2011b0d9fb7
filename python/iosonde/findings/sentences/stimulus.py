"""Which changes of load a device recovers from, and which slow it down for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.stimulus import Change, near
from iosonde.metrics import wording
from iosonde.units import format_duration


def tell(changes: Sequence[Change]) -> Iterator[Finding]:
    """Say of each change of load where the new one begins and settles, and whether an old one comes back."""
    for change in changes:
        yield _of_course(change)
        if change.once is not None:
            yield _of_recovery(change, change.once)


def _of_course(change: Change) -> Finding:
    first, level, share = change.first, change.level, near(change.course.steady.criteria)
    stage = f"`{change.after}` after `{change.before}`"
    better, worse = (level < first, level > first) if change.lower_is_better else (level > first, level < first)
    if abs(first - level) <= share * level or not (better or worse):
        title = f"{stage} is at its level from the first round: the change costs nothing that lasts"
    else:
        verb = "improves" if better else "degrades"
        when = f"within {format_duration((change.settled_s or 0) * 1e9)}" if change.settled_s else "in its first round"
        title = f"{stage} {verb} from {_text(change, first)} to {_text(change, level)} {when}"
    length = format_duration(change.course.round_s * 1e9)
    return _finding(change, title, f"{_text(change, first)} in the first round of {length}")


def _of_recovery(change: Change, once: float) -> Finding:
    share = near(change.course.steady.criteria)
    length = format_duration(len(change.course.values) * change.course.round_s * 1e9)
    stage = f"`{change.after}`"
    if change.recovered_s == 0:
        title = f"{stage} is at once within {100 * share:.0f} % of what `{change.earlier}` was: nothing was lost by it"
    elif change.recovered_s is not None:
        title = (
            f"{stage} recovers from `{change.before}`: within {100 * share:.0f} % of what `{change.earlier}` was after "
            f"{format_duration(change.recovered_s * 1e9)}"
        )
    else:
        best = change.course.peak
        ratio = once / best if change.lower_is_better else best / once
        title = (
            f"{stage} does not recover from `{change.before}` within {length}: at best "
            f"{wording.percent_text(ratio)} of what `{change.earlier}` was"
        )
    return _finding(
        change, title, f"{_text(change, once)} before, {_text(change, change.first)} in the first round after"
    )


def _finding(change: Change, title: str, begin: str) -> Finding:
    """With the level that it came to as the end of its evidence."""
    achieved = change.course.steady.achieved
    settled = "in steady state" if achieved else "in the last rounds, which were not steady"
    return Untyped(
        kind="recovery",
        title=wording.sentence(title),
        note=f"{begin}, {_text(change, change.level)} {settled}",
        strength="strong" if achieved else "weak",
        case_ids=(change.course.case_id,),
        part=change.course.part,
    )


def _text(change: Change, value: float) -> str:
    return wording.value_text(change.course.tracking, value)
