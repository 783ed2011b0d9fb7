"""The format of a suite: studies, their settings, and the values to quote from each."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from iosonde import text_files
from iosonde.data import shipped_suites
from iosonde.errors import StudyError

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
FILE = "suite.json"
"""File that makes a directory that of a suite."""
MOST_STUDIES = 99
"""Directories of studies are numbered with two digits."""


def is_suite(directory: Path) -> bool:
    """Return True if this is the directory of a suite."""
    return (directory / FILE).is_file()


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Value(Strict):
    """A value of a study that the suite quotes, for every case that fits."""

    part: str
    metric: str
    title: str
    where: Mapping[str, bool | int | float | str] = {}
    """Levels of the cases, by factor; all cases of the part if empty."""
    stream: str = ""
    """Stream of the load; each of several is a line if empty."""
    operation: str = ""
    """Kind of operation, such as `read`; all together if empty."""
    published: str = ""
    """Published finding for its devices, as text."""
    published_range: tuple[float, float] | None = None
    """The same as a range of improvements, such as 1.5 to 1.6."""
    levels: Mapping[str, tuple[str, str]] = {}
    """Of an entry with `log_device`: the factor whose levels are compared, baseline first."""

    @model_validator(mode="after")
    def _ordered(self) -> Value:
        if self.published_range and not 0 < self.published_range[0] <= self.published_range[1]:
            raise ValueError("`published_range` must be two positive numbers, the smaller first")
        if len(self.levels) > 1:
            raise ValueError("`levels` must name one factor")
        return self


class Entry(Strict):
    """One study of a suite."""

    name: Name
    """Unique within the suite."""
    study: Name
    """A study that comes with iosonde."""
    title: str
    """The application, such as `PostgreSQL, data device`."""
    settings: Mapping[str, str] = {}
    """As with `--set`."""
    repeats: int | None = Field(default=None, ge=1, le=1000)
    parts: Sequence[str] = ()
    """Parts of the study to run; all if empty."""
    log_device: bool = False
    """The targets are devices for the log: data stays on the first target, and a separate log is on the second one."""
    values: Sequence[Value]
    """None: only the answer of the study is quoted."""

    @model_validator(mode="after")
    def _levels_of_log_devices(self) -> Entry:
        if any(bool(value.levels) != self.log_device for value in self.values):
            raise ValueError(
                "values must have `levels` if the entry has `log_device`, and cannot have `levels` otherwise"
            )
        if any(value.part not in self.parts for value in self.values if self.parts):
            raise ValueError("a value refers to a part that `parts` does not list")
        return self


class Suite(Strict):
    """A whole suite."""

    name: Name
    title: str
    question: str
    source: str = ""
    """The publication that it follows."""
    profile: Literal["quick", "standard", "paper"] = "standard"
    """The profile of its studies unless another is requested."""
    entries: Annotated[Sequence[Entry], Field(min_length=1, max_length=MOST_STUDIES)]

    @model_validator(mode="after")
    def _distinct(self) -> Suite:
        names = [entry.name for entry in self.entries]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"two entries are called `{repeated[0]}`")
        return self


def load(name_or_path: str) -> Suite:
    """The suite of that name that comes with iosonde, or in that file; `StudyError` if there is none or it is wrong."""
    known = shipped_suites()
    file = known.get(name_or_path) or Path(name_or_path)
    if file.suffix != ".toml" and name_or_path not in known:
        near = difflib.get_close_matches(name_or_path, known, n=1)
        raise StudyError(
            f"there is no suite `{name_or_path}`",
            hint=(f"did you mean `{near[0]}`? " if near else "") + f"suites: {', '.join(known)}; or name a TOML file",
        )
    try:
        text = text_files.read(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StudyError(f"cannot read the suite `{name_or_path}`: {reason}") from None
    try:
        return Suite.model_validate(text_files.parse_toml(text))
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"the suite is not TOML: {error}", where=f"in `{file}`", hint="see docs/suites.md") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        message = re.sub(r"^Value error, ", "", first["msg"])
        raise StudyError(
            f"the suite is wrong: {message}",
            where=f"at `{place}` in `{file}`" if place else f"in `{file}`",
            hint="see docs/suites.md",
        ) from None
