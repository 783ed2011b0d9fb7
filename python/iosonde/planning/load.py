"""Read a study file and check everything about it that can be known without a target."""

from __future__ import annotations

from pathlib import Path

from iosonde import workload as workloads
from iosonde.errors import StudyError
from iosonde.procedure import KINDS, kind_of
from iosonde.study.load import read, read_text, validate
from iosonde.study.location import StudyFile
from iosonde.study.model import Study


def load(name_or_path: str | Path) -> Study:
    """The study of that name that comes with iosonde, or in that file."""
    return _checked(read(name_or_path))


def parse(text: str, *, name: str = "") -> Study:
    """A study from its text; errors refer to it as `name`."""
    return _checked(read_text(text, name=name))


def _checked(source: StudyFile) -> Study:
    study = validate(source)
    _check_procedures(study, source)
    return study


def _check_procedures(study: Study, source: StudyFile) -> None:
    """Raise `StudyError` for a procedure that cannot be carried out on any target."""
    for index, part in enumerate(study.parts):
        kind = kind_of(part)
        if kind and study.workload != "block":
            raise StudyError(
                f"`{kind}` is for block I/O, and this is a study of {workloads.named(study.workload).TITLE}",
                where=source.where("parts", index, kind),
                hint="name the levels to measure as a factor",
            )
        try:
            if kind:
                KINDS[kind].forecast(part, study)
        except StudyError as error:
            raise StudyError(error.what, where=source.where("parts", index, kind), hint=error.hint) from None
