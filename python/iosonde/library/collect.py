"""Merging of result sets from several directories into a library, without changing them.

A result set is identified by its plan and its records: the same one from two places is copied once, and one that has
more records by now completes its copy. Every file is checked against the checksums of its record. What is damaged or
foreign is named and left out; links are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.library.contents import (
    ENVIRONMENTS,
    PLAN,
    RECORDS,
    Collected,
    Content,
    checked_record,
    content_of,
    parts_of,
)
from iosonde.library.find import MARK, find
from iosonde.results.files import Directory


def collect(sources: Iterable[Path], library: Path) -> Collected:
    """Copy every result set below the sources that the library lacks; `ResultsError` if it cannot be written."""
    done = Collected()
    try:
        library.mkdir(parents=True, exist_ok=True)
        known: dict[str, list[Content]] = {}
        for path in find(library, done.problems):
            if content := content_of(path, done.problems):
                known.setdefault(content.plan, []).append(content)
        for source in sources:
            for path in find(source.absolute(), done.problems):
                if not path.is_relative_to(library.absolute()) and (content := content_of(path, done.problems)):
                    _add(content, source.absolute(), library.absolute(), known.setdefault(content.plan, []), done)
    except OSError as error:
        raise ResultsError(
            f"cannot collect into `{library}`: {error.strerror}", hint="what is complete there is kept; run it again"
        ) from error
    return done


def _add(found: Content, source: Path, library: Path, known: list[Content], done: Collected) -> None:
    if any(found.is_part_of(each) for each in known):
        done.known += 1
        return
    earlier = next((each for each in known if each.is_part_of(found)), None)
    target = earlier.path if earlier else _new_place(library, source.name / found.path.relative_to(source))
    copied = _copy(found, target, done.problems)
    if earlier:
        known.remove(earlier)
    known.append(Content(path=target, plan=found.plan, records=copied))
    (done.completed if earlier else done.copied).append(target)


def _new_place(library: Path, name: Path) -> Path:
    """Return the first free directory of this name; what a killed process has left without `format.json` is free."""
    for number in range(1, 100_000):
        place = library / name.with_name(f"{name.name}-{number}" if number > 1 else name.name)
        if not (place / MARK).exists():
            return place
    raise ResultsError(f"`{library / name}` exists with every number", hint="name another library with `--output`")


def _copy(found: Content, target: Path, problems: list[str]) -> dict[str, str]:
    """Copy what is missing in the target, its own `format.json` last, and return the records that are there then."""
    copied: dict[str, str] = {}
    for part in parts_of(found.path):
        (target / part).mkdir(parents=True, exist_ok=True)
        with Directory.open(found.path / part) as source, Directory.open(target / part) as directory:
            _copy_environments(source, directory)
            names = _copy_records(source, directory, problems)
            copied |= {
                str(part / name): found.records[str(part / name)] for name in names if str(part / name) in found.records
            }
            for name in (PLAN, MARK):  # A directory with the second one is a result set.
                if name not in directory.names():
                    directory.write(name, source.read(name))
    return copied


def _copy_records(source: Directory, target: Directory, problems: list[str]) -> list[str]:
    """Copy the records that the target does not have, and return the names of those that it has then."""
    copied = []
    with source.subdirectory(RECORDS) as read, target.subdirectory(RECORDS, create=True) as written:
        there = set(written.names())
        for name in read.names():
            if name not in there:
                files, problem = checked_record(read, name)
                if problem:
                    problems.append(f"`{source.path / RECORDS / name}` skipped: {problem}")
                    continue
                written.write_directory(name, files)
            copied.append(name)
    return copied


def _copy_environments(source: Directory, target: Directory) -> None:
    with (
        suppress(FileNotFoundError),
        target.subdirectory(ENVIRONMENTS, create=True) as written,
        source.subdirectory(ENVIRONMENTS) as read,
    ):
        for name in set(read.names()) - set(written.names()):
            written.write(name, read.read(name))
