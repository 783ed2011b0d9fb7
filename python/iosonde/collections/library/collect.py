"""Result sets of several directories copied into one library, without changing them.

A result set is identified by its plan and its records: the same one from two places is copied once, and one that has
more records by now completes its copy. Every file is checked against the checksums of its record. What is damaged or
foreign is named and left out; links are not followed.

A library is a directory, or in object storage at an address such as `s3://BUCKET/PREFIX`:

    result_sets/NAME/CHECKSUM.tar                   a result set, or the records that it got later
    compacted-N/summaries/SEGMENT.parquet           as in `indexing.py`; a state names the records that are there
    compacted-N/metrics/study=NAME/SEGMENT.parquet

Objects are never changed or removed. A result set is in the library once a summary names it: that is uploaded last.
Names of result sets and archives follow from their contents, so what a killed process uploaded is found and not
uploaded again, and two processes can add to a library at the same time. All archives of a library that are unpacked in
one directory are a library there.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from iosonde.base import object_storage
from iosonde.base.object_storage import Storage, is_address
from iosonde.base.text_files import is_utf8
from iosonde.collections.library.indexing import BATCH, COMPACTED, ELSEWHERE, Cache, find, newest, summarised
from iosonde.errors import IosondeError, ResultsError
from iosonde.results import ResultSet
from iosonde.results.files import MARK, Directory
from iosonde.results.reading import read_plan
from iosonde.results.schema import MANIFEST
from iosonde.storage.targets import temporary_files

PLAN, RECORDS, ENVIRONMENTS, HOSTS = "plan.json", "records", "environments", "hosts"
RESULT_SETS = "result_sets"


@dataclass(kw_only=True)
class Collected:
    """Outcome of collecting; names are those of the library's copies."""

    copied: list[Path | str] = field(default_factory=list)
    completed: list[Path | str] = field(default_factory=list)
    """Copies that got further records."""
    known: int = 0
    problems: list[str] = field(default_factory=list)


def collect(places: Sequence[Path | str], library: Path | str) -> Collected:
    """Copy every result set below directories, or in libraries at addresses, that a library lacks.

    `ResultsError` if the library cannot be written.
    """
    if is_address(library):
        return _upload(places, str(library))
    done, root = Collected(), Path(library).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        known = [each for path in find(root, done.problems) if (each := content_of(path, done.problems))]
        for new in _new(_sources(places), known, done, lambda content, name: _free_place(root, name), without=root):
            new.records = _copy(new.content, new.name, done.problems)
            (done.completed if new.earlier else done.copied).append(new.name)
    except OSError as error:
        raise ResultsError(
            f"cannot collect into `{library}`: {error.strerror}", hint="what is complete there is kept; run it again"
        ) from error
    return done


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


@dataclass(kw_only=True)
class _New:
    """A result set with records that the library lacks."""

    content: Content
    name: Path
    """In the library."""
    earlier: Content | None
    """Its copy in the library that lacks records."""
    records: Mapping[str, str]
    """Records of the copy afterwards: without damaged ones."""


def _new(
    sources: Iterable[Path],
    known: Iterable[Content],
    done: Collected,
    place_of: Callable[[Content, Path], Path],
    *,
    without: Path | None = None,
) -> Iterator[_New]:
    """Yield each result set below directories that is not, or not completely, among the `known` ones of a library.

    `place_of` names a new one; those below `without` are left out.
    """
    by_plan: dict[str, list[Content]] = {}
    for each in known:
        by_plan.setdefault(each.plan, []).append(each)
    for root in (source.absolute() for source in sources):
        for path in find(root, done.problems):
            if (without and path.is_relative_to(without)) or not (content := content_of(path, done.problems)):
                continue
            same_plan = by_plan.setdefault(content.plan, [])
            if any(content.is_part_of(each) for each in same_plan):
                done.known += 1
                continue
            earlier = next((each for each in same_plan if each.is_part_of(content)), None)
            name = earlier.path if earlier else place_of(content, root.name / path.relative_to(root))
            new = _New(content=content, name=name, earlier=earlier, records=content.records)
            yield new
            if earlier:
                same_plan.remove(earlier)
            same_plan.append(replace(content, path=name, records=new.records))


def content_of(path: Path, problems: list[str]) -> Content | None:
    """Return the identity of a result set; None, with the reason, for a damaged one."""
    try:
        read_plan(path)
        records: dict[str, str] = {}
        for part in _parts_of(path):
            with Directory.open(path / part) as directory, directory.subdirectory(RECORDS) as opened:
                for name in opened.names():
                    with suppress(OSError), opened.subdirectory(name) as record:
                        records[str(part / name)] = hashlib.sha256(record.read(MANIFEST)).hexdigest()
        with Directory.open(path) as directory:
            plan = hashlib.sha256(directory.read(PLAN)).hexdigest()
    except (ResultsError, OSError) as error:
        problems.append(f"`{path}` skipped: {error.what if isinstance(error, ResultsError) else error.strerror}")
        return None
    return Content(path=path, plan=plan, records=records)


def _parts_of(path: Path) -> list[Path]:
    """Return the result sets of hosts in a result set, and itself last, relative to it."""
    hosts = path / HOSTS
    found = sorted(hosts.iterdir()) if hosts.is_dir() and not hosts.is_symlink() else []
    own = [each.relative_to(path) for each in found if (each / MARK).is_file() and not each.is_symlink()]
    return [*own, Path()]


def _units(
    content: Content, there: Container[str], problems: list[str]
) -> Iterator[tuple[Path, str, str, Mapping[str, bytes]]]:
    """Yield the parts of a result set in order, its `format.json` last: directory, folder, name of a record, files.

    Records that are `there` are left out, and so are damaged ones, with the reason.
    """
    for part in _parts_of(content.path):
        with Directory.open(content.path / part) as source:
            with suppress(FileNotFoundError), source.subdirectory(ENVIRONMENTS) as environments:
                for name in environments.names():
                    yield part, ENVIRONMENTS, "", {name: environments.read(name)}
            with source.subdirectory(RECORDS) as records:
                for name in [each for each in records.names() if str(part / each) not in there]:
                    files, problem = _checked_record(records, name)
                    if problem:
                        problems.append(f"`{records.path / name}` skipped: {problem}")
                    else:
                        yield part, RECORDS, name, files
            for name in (PLAN, MARK):
                yield part, "", "", {name: source.read(name)}


def _checked_record(records: Directory, name: str) -> tuple[dict[str, bytes], str]:
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


def _free_place(library: Path, name: Path) -> Path:
    """Return the first free directory of this name; what a killed process has left without `format.json` is free."""
    for number in range(1, 100_000):
        place = library / name.with_name(f"{name.name}-{number}" if number > 1 else name.name)
        if not (place / MARK).exists():
            return place
    raise ResultsError(f"`{library / name}` exists with every number", hint="name another library with `--output`")


def _copy(content: Content, target: Path, problems: list[str]) -> dict[str, str]:
    """Copy what is missing in the target, and return the records that are there then."""
    there: set[str] = set()
    for part in _parts_of(content.path):
        (target / part).mkdir(parents=True, exist_ok=True)
        with Directory.open(target / part) as directory, directory.subdirectory(RECORDS, create=True) as records:
            there |= {str(part / name) for name in records.names()}
    for part, folder, record, files in _units(content, there, problems):
        with ExitStack() as stack:
            directory = stack.enter_context(Directory.open(target / part))
            if folder:
                directory = stack.enter_context(directory.subdirectory(folder, create=True))
            if record:
                directory.write_directory(record, files)
                there.add(str(part / record))
            for name in [] if record else files.keys() - directory.names():
                directory.write(name, files[name])
    return {name: checksum for name, checksum in content.records.items() if name in there}


def _upload(places: Sequence[Path | str], address: str) -> Collected:
    """Upload every result set below directories that a library in object storage lacks."""
    if other := next(filter(is_address, places), None):
        raise ResultsError(
            f"cannot collect from `{other}` into `{address}`", hint="collect into a directory, and from there"
        )
    storage = object_storage.opened(address)
    done = Collected()
    known = []
    for name, text in newest(storage, "state").select("result_set", "state").iter_rows():
        try:
            known.append(Content(path=Path(name), **json.loads(text)))
        except (TypeError, ValueError) as error:
            raise ResultsError(f"the state of `{name}` in `{address}` is damaged: {error}", hint=ELSEWHERE) from error
    found = _new(map(Path, places), known, done, _name)
    while batch := list(islice(found, BATCH)):  # So many that their tables are in memory together.
        with temporary_files.scratch() as scratch:
            _add(storage, batch, scratch, done)
    return done


def _name(content: Content, name: Path) -> Path:
    return name.with_name(f"{name.name}-{hashlib.sha256(content.state().encode()).hexdigest()[:8]}")


def _add(storage: Storage, batch: Sequence[_New], scratch: Path, done: Collected) -> None:
    """Upload archives, then metrics, then summaries."""
    states, opened = {}, {}
    for new in batch:
        name = str(new.name)
        if not is_utf8(name):
            done.problems.append(f"`{new.content.path}` skipped: its name is not UTF-8")
            continue
        archive = scratch / "archive.tar"
        written = _archive(new, archive, done.problems)
        if not written and new.earlier:
            done.known += 1  # Its further records are damaged.
            continue
        try:
            results = ResultSet.open(new.content.path)
            results.records()
        except IosondeError as error:
            done.problems.append(f"`{new.content.path}` skipped: {error.what}")
            continue
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        storage.upload(archive, f"{RESULT_SETS}/{quote(name)}/{digest[:32]}.tar")
        there = new.earlier.records if new.earlier else {}
        states[name] = replace(new.content, records={**there, **written}).state()
        opened[name] = results
    uploaded = []
    for summary, problem in summarised(opened, states, Cache(scratch / COMPACTED)) if opened else ():
        uploaded += [summary.path] if summary else []
        done.problems += [problem] if problem else []
    for folder in ("metrics", "summaries"):  # In this order: rows of metrics count only if a summary names them.
        for path in sorted((scratch / COMPACTED / folder).rglob("*.parquet")):
            storage.upload(path, str(path.relative_to(scratch)))
    for new in batch:
        if str(new.name) in uploaded:
            (done.completed if new.earlier else done.copied).append(str(new.name))


def _archive(new: _New, path: Path, problems: list[str]) -> dict[str, str]:
    """Write what the library lacks of a result set, and return its records."""
    written = {}
    with tarfile.open(path, "w") as archive:
        for part, folder, record, files in _units(new.content, new.earlier.records if new.earlier else {}, problems):
            if record:
                written[str(part / record)] = hashlib.sha256(files[MANIFEST]).hexdigest()
            for name, data in sorted(files.items()):
                # Without time, mode and owner: the same content is the same archive.
                member = tarfile.TarInfo(str(new.name / part / folder / record / name))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return written


def _sources(places: Iterable[Path | str]) -> Iterator[Path]:
    """Yield directories, and one with each result set of a library at an address in turn, removed afterwards."""
    for place in places:
        if is_address(place):
            yield from _downloaded(str(place))
        else:
            yield Path(place)


def _downloaded(address: str) -> Iterator[Path]:
    storage = object_storage.opened(address)
    name = PurePosixPath(storage.root).name
    for _, paths in groupby(storage.find(RESULT_SETS), key=lambda path: path.rpartition("/")[0]):
        with temporary_files.scratch() as scratch:
            for path in paths:
                archive = scratch / "archive.tar"
                storage.download(path, archive)
                try:
                    _unpack(archive, scratch / "library" / name)
                except (tarfile.TarError, OSError, ValueError) as error:
                    raise ResultsError(f"cannot unpack `{path}`: {error}", hint=ELSEWHERE) from error
            yield scratch / "library" / name


def _unpack(archive: Path, target: Path) -> None:
    """Unpack regular files of an archive that anyone may have written, none outside the target."""
    with tarfile.open(archive) as opened:
        for member in opened:
            name = PurePosixPath(member.name)
            content = opened.extractfile(member) if member.isreg() else None
            if content is None or name.is_absolute() or ".." in name.parts:
                raise ResultsError(
                    f"an archive has the member `{name}`, which no result set has", where=f"in `{archive}`"
                )
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content.read())
