"""Many result sets at once: found below a directory, summarised, and listed on one page.

`find.py` finds them, `summary.py` reduces one to a `Summary`, `indexing.py` does that for all of them with several
processes, `page.py` writes the HTML page. `remote.py` reads and extends a library in object storage.
`iosonde.history` follows the same summaries over time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.core.lazy import lazy
from iosonde.object_storage import is_address

if TYPE_CHECKING:
    from iosonde.library.indexing import Index
    from iosonde.library.summary import Summary

__all__ = ["Index", "Summary", "index"]

__getattr__ = lazy(__name__, {"Index": "iosonde.library.indexing", "Summary": "iosonde.library.summary"})


def index(place: Path | str, *, compact: bool = False) -> Index:
    """Summarise every result set below a directory, or at an address of object storage, where they are compacted."""
    from iosonde.library import indexing, remote

    return remote.index(str(place)) if is_address(place) else indexing.index(place, compact=compact)
