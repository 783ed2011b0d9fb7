"""Summarises result sets in a process of its own: directories as JSON in, one summary or reason per line out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from iosonde.library.indexing import summaries


def main() -> None:
    """Read the root and the directories, and print a line for each."""
    root, directories, cache = json.load(sys.stdin)
    for summary, problem in summaries(Path(root), [Path(each) for each in directories], Path(cache) if cache else None):
        print(json.dumps([summary.model_dump() if summary else None, problem]), flush=True)


if __name__ == "__main__":
    main()
