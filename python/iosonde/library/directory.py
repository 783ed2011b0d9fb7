"""Directories of several result sets and one file that describes them: those of suites and fleets.

    KIND.json     what is measured, on which targets, and what was skipped; never changed
    NAME/         a result set

Every result set exists with its plan before the first run, and whatever has no record is still to be done. A directory
may come from somebody else, who may have edited it or put links into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from iosonde.errors import ResultsError
from iosonde.plan import Plan
from iosonde.procedure import Schedule
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


Description = TypeVar("Description", bound=Strict)


@dataclass(frozen=True)
class CollectionKind(Generic[Description]):
    """A kind of such directories."""

    name: Literal["fleet", "suite"]
    """In messages, and the subcommand that creates one."""
    content: type[Description]
    """Content of the file that describes it."""
    names_of: Callable[[Description], Iterable[str]]
    """Directories of the result sets that a description has."""

    @property
    def file(self) -> str:
        """Name of the file that makes a directory one of this kind."""
        return f"{self.name}.json"

    def create(self, directory: Path, description: Description, plans: Mapping[str, Plan]) -> None:
        """Create a directory with a result set for each plan, by the name of its directory; nothing is run.

        `ResultsError` if the directory exists and is not empty.
        """
        try:
            with new_directory(directory.absolute(), last=self.file) as place, Directory.open(place) as opened:
                for name, plan in plans.items():
                    (place / name).mkdir()
                    ResultSet.create(place / name, plan)
                # Last: a directory with this file has every result set.
                opened.write(self.file, description.model_dump_json(indent=1).encode())
        except OSError as error:
            raise ResultsError(
                f"cannot create the {self.name} `{directory}`: {error.strerror}",
                hint="name another directory with `--output DIR`",
            ) from error

    def read(self, directory: Path) -> Description:
        """Return the description of a directory; `ResultsError` if it is of another kind or damaged.

        Reports are written into result sets, so a link in the place of one is refused.
        """
        path = directory.absolute()
        try:
            with Directory.open(path) as opened:
                found = self.content.model_validate_json(opened.read(self.file))
                there = set(opened.names())
                lost = [each for each in self.names_of(found) if each not in there or not opened.is_directory(each)]
        except OSError as error:
            raise ResultsError(
                f"`{directory}` is not the directory of a {self.name}: {error.strerror}",
                hint=f"`iosonde {self.name}` creates one",
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(each) for each in first["loc"])
            raise ResultsError(
                f"`{directory / self.file}` is damaged: {first['msg']}",
                where=f"at `{place}`" if place else "",
                hint="the result sets next to it can be read one by one with `iosonde report`",
            ) from error
        if lost:
            raise ResultsError(
                f"`{path / lost[0]}` is missing or not a directory",
                where=f"in the {self.name} `{path}`",
                hint=f"a {self.name} has its result sets in its own directory; read others with `iosonde report DIR`",
            )
        return found

    def contradiction(self, result_set: Path, problem: str) -> ResultsError:
        """Return the error of a result set that the description contradicts."""
        return ResultsError(
            f"`{self.file}` does not describe the result set `{result_set.name}`: {problem}",
            where=f"in the {self.name} `{result_set.parent}`",
            hint="one of them was edited; the result sets can be read one by one with `iosonde report`",
        )


def unfinished(result_set: Path, *, retry_failed: bool = False) -> bool:
    """Return True if a result set has runs to do."""
    with interpreting([result_set]):
        return Schedule(ResultSet.open(result_set), retry_failed=retry_failed).next_run() is not None
