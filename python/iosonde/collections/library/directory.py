"""Directories of several result sets and one file that describes them: those of suites and fleets.

    KIND.json     what is measured, on which targets, and what was skipped; never changed
    NAME/         a result set

Every result set exists with its plan before the first run, and whatever has no record is still to be done. A directory
may come from somebody else, who may have edited it or put links into it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from iosonde.errors import ResultsError
from iosonde.plan import Plan
from iosonde.planning.procedure import Schedule
from iosonde.results import ResultSet
from iosonde.results.files import Directory, new_directory
from iosonde.results.shapes import interpreting


def kind_of(directory: Path) -> Literal["fleet", "suite"] | None:
    """Return the kind of a directory; None if it is of none."""
    kinds: tuple[Literal["fleet", "suite"], ...] = ("fleet", "suite")
    return next((kind for kind in kinds if (directory / f"{kind}.json").is_file()), None)


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Description(Strict, ABC):
    """Content of the file that describes a directory."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Directories of the result sets, in the order of execution."""


D = TypeVar("D", bound=Description)


@dataclass(frozen=True, kw_only=True)
class Collection(Generic[D]):
    """Such a directory. A subclass is one kind of them."""

    kind: ClassVar[Literal["fleet", "suite"]]
    """In messages and the name of the file, and the subcommand that creates one."""
    content: ClassVar[type[Description]]
    """Type of the description."""
    path: Path
    description: D

    @property
    def result_sets(self) -> dict[str, Path]:
        """Every result set by name, in the order of execution."""
        return {name: self.path / name for name in self.description.names}

    @classmethod
    def create(cls, directory: Path, description: D, plans: Mapping[str, Plan]) -> Self:
        """Create a directory with a result set for each plan, by the name of its directory; nothing is run.

        `ResultsError` if the directory exists and is not empty.
        """
        path = directory.absolute()
        file = f"{cls.kind}.json"
        try:
            with new_directory(path, last=file) as place, Directory.open(place) as opened:
                for name, plan in plans.items():
                    (place / name).mkdir()
                    ResultSet.create(place / name, plan)
                # Last: a directory with this file has every result set.
                opened.write(file, description.model_dump_json(indent=1).encode())
        except OSError as error:
            raise ResultsError(
                f"cannot create the {cls.kind} `{directory}`: {error.strerror}",
                hint="name another directory with `--output DIR`",
            ) from error
        return cls(path=path, description=description)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open a directory; `ResultsError` if it is of another kind or damaged.

        Reports are written into result sets, so a link in the place of one is refused.
        """
        path, file = directory.absolute(), f"{cls.kind}.json"
        try:
            with Directory.open(path) as opened:
                found = cls.content.model_validate_json(opened.read(file))
                there = set(opened.names())
                lost = [each for each in found.names if each not in there or not opened.is_directory(each)]
        except OSError as error:
            raise ResultsError(
                f"`{directory}` is not the directory of a {cls.kind}: {error.strerror}",
                hint=f"`iosonde {cls.kind}` creates one",
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(each) for each in first["loc"])
            raise ResultsError(
                f"`{directory / file}` is damaged: {first['msg']}",
                where=f"at `{place}`" if place else "",
                hint="the result sets next to it can be read one by one with `iosonde report`",
            ) from error
        if lost:
            raise ResultsError(
                f"`{path / lost[0]}` is missing or not a directory",
                where=f"in the {cls.kind} `{path}`",
                hint=f"a {cls.kind} has its result sets in its own directory; read others with `iosonde report DIR`",
            )
        return cls(path=path, description=cast("D", found))

    def remaining(self, *, retry_failed: bool = False) -> dict[str, Path]:
        """Result sets with runs to do, in the order of execution."""
        found = {}
        for name, path in self.result_sets.items():
            with interpreting([path]):
                if Schedule(ResultSet.open(path), retry_failed=retry_failed).next_run() is not None:
                    found[name] = path
        return found

    def contradiction(self, name: str, problem: str) -> ResultsError:
        """Return the error of a result set that the description contradicts."""
        return ResultsError(
            f"`{self.kind}.json` does not describe the result set `{name}`: {problem}",
            where=f"in the {self.kind} `{self.path}`",
            hint="one of them was edited; the result sets can be read one by one with `iosonde report`",
        )
