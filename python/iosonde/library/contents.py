"""Contents of result sets, as `iosonde collect` compares and copies them.

A result set is identified by its plan and its records. Every file is checked against the checksums of its record. What
is damaged or foreign is named and left out; links are not followed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from iosonde.errors import ResultsError
from iosonde.library.find import MARK
from iosonde.results.files import Directory
from iosonde.results.reading import read_plan
from iosonde.results.schema import MANIFEST

PLAN, RECORDS, ENVIRONMENTS, HOSTS = "plan.json", "records", "environments", "hosts"


@dataclass(kw_only=True)
class Collected:
    """Outcome of collecting; names are those of the library's copies."""

    copied: list[Path | str] = field(default_factory=list)
    completed: list[Path | str] = field(default_factory=list)
    """Copies that got further records."""
    known: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Content:
    """Identity of a result set: checksum of its plan, and of the manifest of each record.

    A study on several hosts has their result sets in it: records of those are named with their directory.
    """

    path: Path
    plan: str
    records: Mapping[str, str]

    def is_part_of(self, other: Content) -> bool:
        return self.plan == other.plan and self.records.items() <= other.records.items()

    def state(self) -> str:
        """Return all of it as text."""
        return json.dumps({"plan": self.plan, "records": dict(sorted(self.records.items()))})


def content_of(path: Path, problems: list[str]) -> Content | None:
    """Return the identity of a result set; None, with the reason, for a damaged one."""
    try:
        read_plan(path)
        records: dict[str, str] = {}
        for part in parts_of(path):
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
    return Content(path=path, plan=plan, records=records)


def parts_of(path: Path) -> list[Path]:
    """Return the result sets of hosts in a result set, and itself last, relative to it."""
    hosts = path / HOSTS
    found = sorted(hosts.iterdir()) if hosts.is_dir() and not hosts.is_symlink() else []
    own = [each.relative_to(path) for each in found if (each / MARK).is_file() and not each.is_symlink()]
    return [*own, Path()]


def files_of(content: Content, there: Mapping[str, str], problems: list[str]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield files of a result set in order, those of records as far as they are not `there`; relative to it."""
    for part in parts_of(content.path):
        place = PurePosixPath(part)
        with Directory.open(content.path / part) as source:
            with suppress(FileNotFoundError), source.subdirectory(ENVIRONMENTS) as environments:
                for name in environments.names():
                    yield place / ENVIRONMENTS / name, environments.read(name)
            with source.subdirectory(RECORDS) as records:
                wanted = content.records.keys() - there.keys()
                for name in [each for each in records.names() if str(part / each) in wanted]:
                    files, problem = checked_record(records, name)
                    if problem:
                        problems.append(f"`{records.path / name}` skipped: {problem}")
                    for file, data in () if problem else sorted(files.items()):
                        yield place / RECORDS / name / file, data
            for name in (PLAN, MARK):
                yield place / name, source.read(name)


def checked_record(records: Directory, name: str) -> tuple[dict[str, bytes], str]:
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
