"""Other tools' formats: job files that become studies, results that become their files.

One folder or file a tool. Each takes or gives what the rest of iosonde already has (a study file, a result set), so
elsewhere only the command line uses it, and the export of result sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.base.features import contributed


def exports() -> Mapping[str, Any]:
    """Formats of files, each with `files(result_set)`, `WHAT` and `SUFFIX`.

    A format has one file a run, with this suffix; those of features may have other files, and no suffix.
    """
    from iosonde.interop import hdr
    from iosonde.interop.fio import json_plus

    of_features: tuple[Any, ...] = contributed("exports", "EXPORTS")
    return {"fio-json": json_plus, "hdr": hdr} | {each.NAME: each for each in of_features}
