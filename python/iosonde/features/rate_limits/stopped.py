"""Conclusions of an identification whose study was stopped: from the stages that were completed, and from no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from iosonde.features.rate_limits.first_touch import LAST_PASS
from iosonde.features.rate_limits.series import Segment, Series
from iosonde.features.rate_limits.walk import Walk, load_text
from iosonde.units import format_count, format_duration

_QUESTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("touch",), "whether first accesses take longer"),
    (("drain",), "which rate is sustained"),
    (("size",), "what a limit counts"),
    (("depth",), "whether the rate depends on the queue depth"),
    (("small",), "credits and their refill"),
    (("sequential",), "whether sequential I/O is merged"),
    (("large",), "whether large blocks have a limit of their own"),
    (("writes", "mix"), "whether reads and writes share a budget"),
    (("latency",), "the latency that a limiter adds"),
    (("last",), "whether the limit changed during the study"),
)
"""Beginnings of the names of stages, in their order, and what they decide."""


def conclude(walk: Walk, stage: str) -> None:
    """Keep what is known without this stage, and name what it and later ones would decide."""
    known = replace(walk.known, stopped_at=stage)
    if stage.startswith(LAST_PASS):  # The stages that decide on a limit are complete.
        walk.known = known
        return
    if known.verdict != "limited":
        reasons = [known.reason or _drained(walk), f"the study was stopped in the stage `{stage}`"]
        known = replace(known, verdict="undecided", reason="; ".join(filter(None, reasons)))
    walk.notes.undecided += _open(walk, stage)
    walk.known = known


def _open(walk: Walk, stage: str) -> Sequence[str]:
    """Questions of the last stages that were started, and of all that follow."""
    names = [each.name for each in walk.history] + [stage]
    reached = max((place for name in names if (place := _place(name)) is not None), default=0)
    has_both = walk.settings.reads and walk.settings.writes
    return [text for starts, text in _QUESTIONS[reached:] if has_both or "mix" not in starts]


def _place(stage: str) -> int | None:
    return next((place for place, (starts, _) in enumerate(_QUESTIONS) if stage.startswith(starts)), None)


def _drained(walk: Walk) -> str:
    """State the rates of the first load so far; empty without any."""
    parts = [each for each in walk.history if each.name.startswith("drain")]
    if not parts:
        return ""
    whole = reduce(Series.then, parts)
    return f"{load_text(whole.load)}: {', then '.join(map(_segment_text, whole.segments()))}"


def _segment_text(segment: Segment) -> str:
    constant = "constant at " if segment.is_constant else ""
    return f"{constant}{format_count(segment.rate)} IOPS for {format_duration(round(segment.seconds) * 10**9)}"
