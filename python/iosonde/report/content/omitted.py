"""Parts of a report that cannot be computed because a library failed: they are named, and the others are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from iosonde.results.interpreting import LIBRARY_HINT, is_panic, panic_words

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class Omitted:
    """A part of a report that is missing."""

    title: str
    why: str
    hint: str = LIBRARY_HINT


def computed(omitted: list[Omitted], title: str, compute: Callable[[], Part], *, instead: Part) -> Part:
    """Compute a part of a report; where a library panics, note that in `omitted` and return `instead`."""
    try:
        return compute()
    except BaseException as error:
        if not is_panic(error):
            raise
        missing = Omitted(title=title, why=panic_words(error))
        omitted += [missing] if missing not in omitted else []
        return instead
