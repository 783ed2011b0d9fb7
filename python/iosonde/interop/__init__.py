"""Other tools' formats: job files that become studies, results that become their files.

One folder or file a tool. Each takes or gives what the rest of iosonde already has (a study file, a result set), so
elsewhere only the command line uses it, and the export of result sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType


def _fio_json() -> ModuleType:
    from iosonde.interop.fio import json_plus

    return json_plus


def _hdr() -> ModuleType:
    from iosonde.interop.hdr import log

    return log


EXPORTS: Mapping[str, Callable[[], ModuleType]] = {"fio-json": _fio_json, "hdr": _hdr}
"""Formats with one file a run, each with what imports its module: `files(result_set)`, `WHAT` and `SUFFIX`."""
