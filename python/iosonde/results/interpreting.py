"""The last resort against values that no check foresees: an error that names the result sets instead of a traceback.

A plan has free-form parts (the study, parameters, settings of procedures) of any version of iosonde, and may come from
another person. `reading.py` checks all that has a type; what readers of the rest cannot interpret ends here.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.errors import IosondeError, ResultsError
from iosonde.results.reading import first_line


@contextmanager
def interpreting(directories: Iterable[Path]) -> Iterator[None]:
    """Replace any exception except iosonde's own and the system's by `ResultsError`."""
    try:
        yield
    except (IosondeError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ResultsError(
            f"a value in {_named(directories)} cannot be interpreted",
            where=f"{type(error).__name__}: {first_line(error)} ({_place_of(error)})",
            hint="the plan or a record was edited, or this version of iosonde has a defect: if the "
            "files were not edited, please report this message",
        ) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise ResultsError(
            f"cannot analyse {_named(directories)}: {panic_words(error)}",
            where=_place_of(error),
            hint=LIBRARY_HINT,
        ) from error


LIBRARY_HINT = (
    "this is a defect of the library or a limit of this machine, not of the result set: analyse it on another machine "
    "or with another version of the library, and report this message"
)


def is_panic(error: BaseException) -> bool:
    """Return True if a library written in Rust panicked; such an exception is no `Exception` (pyo3)."""
    return type(error).__name__ == "PanicException"


def panic_words(error: BaseException) -> str:
    """Name the library that panicked and its message."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (name for each in reversed(frames) for name in _LIBRARIES if name in Path(each.filename).parts)
    return f"the library {_LIBRARIES[next(libraries, 'polars')]} failed (`{first_line(error)}`)"


_LIBRARIES = {"polars": "Polars", "vl_convert": "vl-convert"}


def _named(directories: Iterable[Path]) -> str:
    return ", ".join(f"`{each}`" for each in directories)


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if "iosonde" in Path(each.filename).parts), frames[-1])
    return f"{Path(last.filename).name}, line {last.lineno}"
