"""Questions that a study asks (`[[analysis]]`): arithmetic, typed findings, sentences, and `KINDS` with the names.

A study is checked without importing the questions, which need Polars and SciPy: `names` reads their sources.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.base.features import contributed, sources

if TYPE_CHECKING:
    from iosonde.findings.question import QuestionKind

_DECLARED = re.compile(r'QuestionKind\(\s*"(\w+)",([^()]*)\)')


def kinds() -> dict[str, QuestionKind]:
    return {kind.name: kind for kind in _all()}


def _all() -> Iterator[QuestionKind]:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        yield from getattr(importlib.import_module(module.name), "KINDS", ())
    yield from contributed("questions", "KINDS")


@cache
def names() -> dict[str, bool]:
    """Return the names of all kinds, and whether each compares with another part of the study (`device_part`)."""
    own = (path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
    declared = (match for text in (*own, *sources("questions")) for match in _DECLARED.finditer(text))
    return {match[1]: "needs_device_part=True" in match[2] for match in declared}
