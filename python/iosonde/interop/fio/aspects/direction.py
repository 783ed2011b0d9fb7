"""The option `rw`: which operations, and in which order of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from iosonde.interop.fio import units
from iosonde.interop.fio.given import Given

PLACES = ("read", "write", "trim")
"""In which order the values after commas count."""


@dataclass(frozen=True, kw_only=True)
class Direction:
    """The value of `rw`."""

    access: str
    operations: tuple[str, ...]
    hop: int


_DIRECTIONS = {
    "read": ("read",),
    "write": ("write",),
    "trim": ("trim",),
    "rw": ("read", "write"),
    "readwrite": ("read", "write"),
    "trimwrite": ("trim", "write"),
}

_KINDS = "`read`, `write`, `trim`, `rw`, `trimwrite`, or one of them after `rand`"


def direction_of(given: Given) -> Direction:
    """The value of `rw`, checked."""
    kind, _, modifier = given.text("rw", "read").partition(":")
    is_random = kind.startswith("rand")
    operations = _DIRECTIONS.get(kind.removeprefix("rand"))
    if operations is None:
        given.fail("rw", f"`{given.setting('rw')}` is not known", hint=f"it is one of {_KINDS}")
    hop = _hop(given, modifier, is_random=is_random) if modifier else 0
    access = "random" if is_random else "strided" if hop else "sequential"
    return Direction(access=access, operations=operations, hop=hop)


def _hop(given: Given, modifier: str, *, is_random: bool) -> int:
    """Bytes left out after each I/O of a sequential load."""
    if is_random:
        if modifier != "1":
            given.note("rw", why="every I/O has a random offset of its own", instead="the number after `:` is ignored")
        return 0
    if modifier.startswith("-"):
        given.note("rw", why="a stream cannot run backwards", instead="it runs forwards, block after block")
        return 0
    hop = given.read("rw", lambda _: units.size(modifier, kb_base=given.kb_base))
    if hop:
        given.note(
            "rw",
            why="at the end of the range, fio begins again at its start",
            instead="the stride begins again one block further",
        )
    return hop
