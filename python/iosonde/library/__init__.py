"""Many result sets at once: found below a directory, summarised, and listed on one page.

`find.py` finds them, `summary.py` reduces one to a `Summary`, `indexing.py` does that for all of them with several
processes, `page.py` writes the HTML page. `iosonde.history` follows the same summaries over time.
"""

from iosonde.library.indexing import Index, index
from iosonde.library.summary import Summary

__all__ = ["Index", "Summary", "index"]
