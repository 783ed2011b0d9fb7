"""Many result sets at once: found below a directory, summarised, and listed on one page.

`summary.py` reduces one to a `Summary`, `indexing.py` finds all of them and does that with several processes,
`collect.py` copies them into one library, `page.py` writes the HTML page. `iosonde.history` follows the same summaries
over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.core.lazy import lazy

if TYPE_CHECKING:
    from iosonde.library.indexing import Index, index
    from iosonde.library.summary import Summary

__all__ = ["Index", "Summary", "index"]

__getattr__ = lazy(
    __name__, dict.fromkeys(("Index", "index"), "iosonde.library.indexing") | {"Summary": "iosonde.library.summary"}
)
