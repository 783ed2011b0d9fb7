"""Merging of result sets from several directories into a library, without changing them.

A result set is identified by its plan and its records: the same one from two places is copied once, and one that has
more records by now completes its copy. Every file is checked against the checksums of its record. What is damaged or
foreign is named and left out; links are not followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from iosonde.errors import ResultsError
from iosonde.library.find import MARK, find
from iosonde.results.files import Directory
from iosonde.results.reading import read_plan
from iosonde.results.schema import MANIFEST

PLAN, RECORDS, ENVIRONMENTS, HOSTS = "plan.json", "records", "environments", "hosts"


@dataclass(kw_only=True)
class Collected:
    """Outcome of collecting; paths are those of the library's copies."""

    copied: list[Path] = field(default_factory=list)
    completed: list[Path] = field(default_factory=list)
    """Copies that got further records."""
    known: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Content:
    """Identity of a result set: checksum of its plan, and of the manifest of each record.

    A study on several hosts has their result sets in it: records of those are named with their directory.
    """

    path: Path
    plan: str
    records: Mapping[str, str]

    def is_part_of(self, other: _Content) -> bool:
        return self.plan == other.plan and self.records.items() <= other.records.items()


def collect(sources: Sequence[Path], library: Path) -> Collected:
    """Copy every result set below the sources that the library lacks; `ResultsError` if it cannot be written."""
    done = Collected()
    try:
        library.mkdir(parents=True, exist_ok=True)
        known: dict[str, list[_Content]] = {}
        for path in find(library, done.problems):
            if content := _content(path, done.problems):
                known.setdefault(content.plan, []).append(content)
        for source in sources:
            for path in find(source.absolute(), done.problems):
                if not path.is_relative_to(library.absolute()) and (content := _content(path, done.problems)):
                    _add(content, source.absolute(), library.absolute(), known.setdefault(content.plan, []), done)
    except OSError as error:
        raise ResultsError(
            f"cannot collect into `{library}`: {error.strerror}", hint="what is complete there is kept; run it again"
        ) from error
    return done


def _add(found: _Content, source: Path, library: Path, known: list[_Content], done: Collected) -> None:
    if any(found.is_part_of(each) for each in known):
        done.known += 1
        return
    earlier = next((each for each in known if each.is_part_of(found)), None)
    target = earlier.path if earlier else _new_place(library, source.name / found.path.relative_to(source))
    copied = _copy(found, target, done.problems)
    if earlier:
        known.remove(earlier)
    known.append(_Content(path=target, plan=found.plan, records=copied))
    (done.completed if earlier else done.copied).append(target)


def _new_place(library: Path, name: Path) -> Path:
    """Return the first free directory of this name; what a killed process has left without `format.json` is free."""
    for number in range(1, 100_000):
        place = library / name.with_name(f"{name.name}-{number}" if number > 1 else name.name)
        if not (place / MARK).exists():
            return place
    raise ResultsError(f"`{library / name}` exists with every number", hint="name another library with `--output`")


def _content(path: Path, problems: list[str]) -> _Content | None:
    """Return the identity of a result set; None, with the reason, for a damaged one."""
    try:
        read_plan(path)
        records: dict[str, str] = {}
        for part in _parts(path):
            with Directory.open(path / part) as directory, directory.subdirectory(RECORDS) as opened:
                for name in opened.names():
                    with suppress(OSError), opened.subdirectory(name) as record:
                        records[str(part / name)] = hashlib.sha256(record.read(MANIFEST)).hexdigest()
        with Directory.open(path) as directory:
            plan = hashlib.sha256(directory.read(PLAN)).hexdigest()
    except ResultsError as error:
        problems.append(f"`{path}` skipped: {error.what}")
        return None
    except OSError as error:
        problems.append(f"`{path}` skipped: {error.strerror}")
        return None
    return _Content(path=path, plan=plan, records=records)


def _parts(path: Path) -> list[Path]:
    """Return the result sets of hosts in a result set, and itself last, relative to it."""
    hosts = path / HOSTS
    found = sorted(hosts.iterdir()) if hosts.is_dir() and not hosts.is_symlink() else []
    own = [each.relative_to(path) for each in found if (each / MARK).is_file() and not each.is_symlink()]
    return [*own, Path()]


def _copy(found: _Content, target: Path, problems: list[str]) -> dict[str, str]:
    """Copy what is missing in the target, its own `format.json` last, and return the records that are there then."""
    copied: dict[str, str] = {}
    for part in _parts(found.path):
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
                files, problem = _record(read, name)
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


def _record(records: Directory, name: str) -> tuple[dict[str, bytes], str]:
    """Return the files of a record, and the first one that its checksums contradict."""
    files = {}
    try:
        with records.subdirectory(name) as record:
            files[MANIFEST] = record.read(MANIFEST)
            for file, checksum in _sums(files[MANIFEST]):
                files[file] = record.read(file)
                if hashlib.sha256(files[file]).hexdigest() != checksum:
                    return {}, f"`{file}` was modified after it was written"
    except (OSError, ValueError) as error:
        return {}, f"it is damaged: {getattr(error, 'strerror', None) or error}"
    return files, "" if "record.json" in files else "it has no `record.json`"


def _sums(manifest: bytes) -> Iterator[tuple[str, str]]:
    """Yield file names and checksums; `ValueError` for any other text."""
    for line in manifest.decode().splitlines():
        checksum, separator, file = line.partition("  ")
        if not separator:
            raise ValueError("its checksums are not in the format of sha256sum(1)")
        yield file, checksum
