"""Questions that a study asks (`[[analysis]]`), one file each: arithmetic, typed findings, sentences, and `KINDS`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from iosonde.core.features import contributed
from iosonde.findings.question import QuestionKind


def kinds() -> dict[str, QuestionKind]:
    return {kind.name: kind for kind in _all()}


def _all() -> Iterator[QuestionKind]:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        yield from getattr(importlib.import_module(module.name), "KINDS", ())
    yield from contributed("questions", "KINDS", QuestionKind)
