"""Other tools' formats: job files that become studies, results that become their files.

One folder or file a tool. Each takes or gives what the rest of iosonde already has (a study file, a result set), so
elsewhere only the command line uses it, and the export of result sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from iosonde.core.features import contributed

_MODULES = {"fio-json": "iosonde.interop.fio.json_plus", "hdr": "iosonde.interop.hdr"}


def exports() -> Mapping[str, Callable[[], Any]]:
    """Formats of files, each with what imports its module: `files(result_set)`, `WHAT` and `SUFFIX`.

    A format has one file a run, with this suffix; those of features may have other files, and no suffix.
    """
    of_features: tuple[Any, ...] = contributed("exports", "EXPORTS")
    return {
        **{name: partial(import_module, module) for name, module in _MODULES.items()},
        **{export.NAME: lambda export=export: export for export in of_features},
    }
