"""Other tools' formats: job files that become studies, results that become their files.

One folder or file a tool. Each takes or gives what the rest of iosonde already has (a study file, a result set), so
elsewhere only the command line uses it, and the export of result sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from iosonde.core.features import contributed


def _fio_json() -> ModuleType:
    from iosonde.interop.fio import json_plus

    return json_plus


def _hdr() -> ModuleType:
    from iosonde.interop.hdr import log

    return log


def exports() -> Mapping[str, Callable[[], Any]]:
    """Formats of files, each with what imports its module: `files(result_set)`, `WHAT` and `SUFFIX`.

    A format has one file a run, with this suffix; those of features may have other files, and no suffix.
    """
    of_features: tuple[Any, ...] = contributed("exports", "EXPORTS")
    return {"fio-json": _fio_json, "hdr": _hdr} | {each.NAME: partial(_same, each) for each in of_features}


def _same(export: Any) -> Any:
    return export
