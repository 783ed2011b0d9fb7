"""Events: other differences between consecutive sessions, as far as records show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from iosonde.library.summary import Summary
from iosonde.metrics import wording

Kind = Literal["firmware", "kernel", "iosonde", "configuration"]
KINDS: tuple[Kind, ...] = ("firmware", "kernel", "iosonde", "configuration")
NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact that changed."""

    session: int
    """Position of the first session with the new value."""
    kind: Kind
    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change as a clause: `the kernel changed from 6.1 to 6.6`."""
        if self.name == "CPU mitigations":
            return "the CPU mitigations changed"
        named = self.name if self.name in ("iosonde", "SMT") or self.name.startswith("setting ") else f"the {self.name}"
        return f"{named} changed from {self.before} to {self.after}"


def events_of(sessions: Sequence[Summary]) -> list[Event]:
    """Return every change of a recorded fact between consecutive sessions.

    A fact that one of two sessions does not have did not change: another version of iosonde may not record it.
    Settings (`--set`) are an exception; a missing one is the study's default.
    """
    found = []
    for number in range(1, len(sessions)):
        before, after = sessions[number - 1].facts, sessions[number].facts
        for name in dict.fromkeys([*before, *after]):
            is_setting = name.startswith("setting ")
            if before.get(name) == after.get(name) or not (is_setting or (name in before and name in after)):
                continue
            values = (before.get(name, "default") or NONE, after.get(name, "default") or NONE)
            found.append(Event(session=number, kind=_kind(name), name=name, before=values[0], after=values[1]))
    return found


def between(events: Sequence[Event], first: int, last: int) -> list[Event]:
    """Return the events after session `first`, up to session `last`."""
    return [each for each in events if first < each.session <= last]


def in_words(events: Sequence[Event]) -> str:
    """List events as clauses, the most telling kinds first; at most four in full."""
    ordered = sorted(events, key=lambda each: KINDS.index(each.kind))
    clauses = [each.text for each in ordered[:4]]
    if len(ordered) > len(clauses):
        clauses.append(wording.counted(len(ordered) - len(clauses), "other setting") + " changed")
    return wording.listing(clauses) if clauses else ""


def _kind(name: str) -> Kind:
    if name.startswith("firmware"):
        return "firmware"
    if name == "kernel":
        return "kernel"
    return "iosonde" if name in ("iosonde", "engine", "engine build") else "configuration"
