"""Options of a store that would name files, or smuggle in other options: stores parse them as text.

RocksDB joins options to one text, in which `a=1;db_log_dir=..` is two. Neither a study nor a result set may decide
where a store writes: its files are in the target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLACES = ("wal_dir", "db_log_dir", "db_paths", "cf_paths", "env", "log.path", "extensions")


def unsafe_option(options: Mapping[str, Any]) -> str:
    """Return why an option must not be passed to a store: a clause; empty if all may be."""
    for name, value in options.items():
        if not _NAME.fullmatch(name):
            return f"option `{name[:40]}` is not a name"
        if name in _PLACES:
            return f"option `{name}` names a place, which the engine decides"
        if isinstance(value, str) and "/" in value:
            return f"option `{name}` names a path"
        if isinstance(value, str) and not _is_one_value(value):
            return f"option `{name}` has more than one value"
        if not isinstance(value, str | int | float | bool):
            return f"option `{name}` is neither a number nor a text"
    return ""


def _is_one_value(text: str) -> bool:
    """Return True if nothing follows a value: separators are inside of braces only."""
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0 or (not depth and character in ";\n\0"):
            return False
    return depth == 0
