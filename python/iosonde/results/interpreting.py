"""The last resort against values that no check foresees: an error that names the result sets instead of a traceback.

A plan has free-form parts (the study, parameters, settings of procedures) of any version of iosonde, and may come from
another person. `reading.py` checks all that has a type; what readers of the rest cannot interpret ends here.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from iosonde.errors import IosondeError, ResultsError
from iosonde.results.reading import first_line


@contextmanager
def interpreting(directories: Iterable[Path]) -> Iterator[None]:
    """Raise `ResultsError` in the place of any exception that is not of iosonde's own, nor of the system."""
    try:
        yield
    except (IosondeError, OSError, MemoryError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        names = ", ".join(f"`{each}`" for each in directories)
        frames = traceback.extract_tb(error.__traceback__)
        last = next((each for each in reversed(frames) if "iosonde" in Path(each.filename).parts), frames[-1])
        raise ResultsError(
            f"a value in {names} cannot be interpreted",
            where=f"{type(error).__name__}: {first_line(error)} ({Path(last.filename).name}, line {last.lineno})",
            hint="the plan or a record was edited, or this version of iosonde has a defect: if the "
            "files were not edited, please report this message",
        ) from error
