"""Options by a store's own names: misspelt ones, and those in an OPTIONS file of RocksDB."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from iosonde import text_files
from iosonde.errors import StudyError
from iosonde.features.key_value_stores.notation import OptionValue, read_scalar
from iosonde.protocol import schema

OTHER_VERSIONS = ("rocksdb",)
"""Stores of which another version may be loaded, with options that are not in the list."""
MISSPELT = 0.85
"""Similarity from which on an unknown name counts as a misspelt one."""
LISTED = 20
"""Longest list of names in an error."""
SECTIONS = re.compile(r'DBOptions|(CFOptions|TableOptions/BlockBasedTable) "default"')
"""Sections of an OPTIONS file with options of the database and its default column family."""
BY_ENGINE = ("wal_dir", "db_log_dir", "env", "create_if_missing", "error_if_exists", "statistics")
"""Options in an OPTIONS file that the engine sets."""


def misspelt(store: str, names: Iterable[str]) -> str | None:
    """The error for the first option that the store does not have, with the nearest name; None if all are known."""
    known = schema()["store_options"].get(store, ())
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1, cutoff=MISSPELT)
            if near or store not in OTHER_VERSIONS:
                return f"`{store}` has no option `{name}`{_nearest(name, known)}"
    return None


def _nearest(name: str, known: tuple[str, ...]) -> str:
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0)
    hint = f"; the nearest name is `{spelled[near[0]]}`" if near else ""
    names = f"; all names: {', '.join(f'`{each}`' for each in known)}" if 1 < len(known) <= LISTED else ""
    return hint + names


def of_file(path: str) -> Mapping[str, OptionValue]:
    """The options in an OPTIONS file of RocksDB, of the database and its default column family."""
    try:
        text = text_files.read(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StudyError(
            f"cannot read the options in `{path}`: {reason}",
            where="by the parameter `options_file`",
            hint="name a file `OPTIONS-...` of a RocksDB database",
        ) from None
    found: dict[str, OptionValue] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#") and SECTIONS.fullmatch(section):
            name, _, value = line.partition("=")
            if name.strip() not in BY_ENGINE:
                found[name.strip()] = read_scalar(value.strip())
    if not found:
        raise StudyError(
            f"`{path}` has no options of RocksDB",
            where="by the parameter `options_file`",
            hint="name a file `OPTIONS-...` of a RocksDB database, with sections such as `[DBOptions]`",
        )
    return found
