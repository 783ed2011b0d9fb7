"""A library in object storage, at an address such as `s3://BUCKET/PREFIX`.

    result_sets/NAME/CHECKSUM.tar                   a result set, or the records that it got later
    compacted-1/summaries/SEGMENT.parquet           as in `compacted.py`; a state names the records that are there
    compacted-1/metrics/study=NAME/SEGMENT.parquet

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import polars as pl
from pydantic import ValidationError

from iosonde import object_storage
from iosonde.errors import IosondeError, ResultsError
from iosonde.library import compacted
from iosonde.library.contents import Collected, Content, content_of, files_of
from iosonde.library.find import find
from iosonde.library.indexing import BATCH, Index, summarised
from iosonde.library.summary import Summary
from iosonde.object_storage import Storage, is_address
from iosonde.results import ResultSet
from iosonde.results.schema import MANIFEST
from iosonde.storage.targets import temporary_files
from iosonde.text_files import is_utf8

ELSEWHERE = "collect the result sets again, into another prefix"
RESULT_SETS, COMPACTED = "result_sets", f"compacted-{compacted.FORMAT}"


def index(address: str) -> Index:
    """Read the summaries of a library; `ResultsError` if there is none."""
    storage = object_storage.opened(address)
    rows = newest(storage, "summary")
    if not len(rows):
        raise ResultsError(f"`{address}` has no library", hint=f"`iosonde collect DIR --output {address}` makes one")
    listed, problems = [], []
    for name, text in rows.select("result_set", "summary").iter_rows():
        try:
            # Reports are not collected.
            listed.append(Summary.model_validate_json(text).model_copy(update={"path": name, "report": ""}))
        except ValidationError as error:
            problems.append(f"`{address}`: the summary of `{name}` is damaged: {error.error_count()} errors")
    return Index.of(address, listed, problems)


def newest(storage: Storage, *columns: str) -> pl.DataFrame:
    """Return the newest row of each result set."""
    wanted = ["result_set", "segment", *columns]
    empty = pl.DataFrame(schema={name: compacted.SUMMARIES[name] for name in wanted})
    contents = storage.read(storage.find(f"{COMPACTED}/summaries"))
    try:
        rows = pl.concat([empty, *(pl.read_parquet(io.BytesIO(each), columns=wanted) for each in contents)])
    except pl.exceptions.PolarsError as error:
        raise ResultsError(f"a summary in `{storage.address}` is damaged: {error}", hint=ELSEWHERE) from error
    return rows.sort("segment").unique("result_set", keep="last", maintain_order=True)


def metric_urls(storage: Storage, segments: Sequence[str]) -> list[str]:
    """Return the addresses of the metrics of some segments."""
    wanted = set(segments)
    found = storage.find(f"{COMPACTED}/metrics")
    return [storage.url(path) for path in found if PurePosixPath(path).stem in wanted]


@dataclass(frozen=True, kw_only=True)
class _New:
    """A result set with records that the library lacks."""

    name: str
    """In the library."""
    content: Content
    there: Mapping[str, str]
    """Records that the library has."""


def collect(directories: Sequence[str], address: str) -> Collected:
    """Upload every result set below directories that the library lacks; `ResultsError` if that fails."""
    if other := next(filter(is_address, directories), None):
        raise ResultsError(
            f"cannot collect from `{other}` into `{address}`", hint="collect into a directory, and from there"
        )
    storage = object_storage.opened(address)
    done = Collected()
    known: dict[str, list[Content]] = {}
    for name, text in newest(storage, "state").select("result_set", "state").iter_rows():
        try:
            content = Content(path=Path(name), **json.loads(text))
        except (TypeError, ValueError) as error:
            raise ResultsError(f"the state of `{name}` in `{address}` is damaged: {error}", hint=ELSEWHERE) from error
        known.setdefault(content.plan, []).append(content)
    for batch in _batched(_new([Path(each) for each in directories], known, done)):
        with temporary_files.scratch() as scratch:
            _add(storage, batch, scratch, done)
    return done


def _batched(found: Iterator[_New]) -> Iterator[list[_New]]:
    """Yield so many that their tables are in memory together."""
    while batch := list(islice(found, BATCH)):
        yield batch


def _new(sources: Sequence[Path], known: dict[str, list[Content]], done: Collected) -> Iterator[_New]:
    for source in sources:
        for path in find(source.absolute(), done.problems):
            content = content_of(path, done.problems)
            if content is None:
                continue
            same_plan = known.setdefault(content.plan, [])
            if any(content.is_part_of(each) for each in same_plan):
                done.known += 1
                continue
            earlier = next((each for each in same_plan if each.is_part_of(content)), None)
            if earlier:
                same_plan.remove(earlier)
            name = str(earlier.path) if earlier else _name(content, source.absolute())
            same_plan.append(replace(content, path=Path(name)))
            if is_utf8(name):
                yield _New(name=name, content=content, there=earlier.records if earlier else {})
            else:
                done.problems.append(f"`{path}` skipped: its name is not UTF-8")


def _name(content: Content, source: Path) -> str:
    digest = hashlib.sha256(content.state().encode()).hexdigest()[:8]
    return f"{source.name / content.path.relative_to(source)}-{digest}"


def _add(storage: Storage, batch: Sequence[_New], scratch: Path, done: Collected) -> None:
    """Upload archives, then metrics, then summaries."""
    states, opened = {}, {}
    for new in batch:
        archive = scratch / "archive.tar"
        written = _archive(new, archive, done.problems)
        if not written and new.there:
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
        storage.upload(archive, f"{RESULT_SETS}/{quote(new.name)}/{digest[:32]}.tar")
        states[new.name] = replace(new.content, records={**new.there, **written}).state()
        opened[new.name] = results
    summarised_now = []
    for summary, problem in summarised(opened, states, scratch / COMPACTED) if opened else ():
        summarised_now += [summary.path] if summary else []
        done.problems += [problem] if problem else []
    for folder in ("metrics", "summaries"):  # In this order: rows of metrics count only if a summary names them.
        for path in sorted((scratch / COMPACTED / folder).rglob("*.parquet")):
            storage.upload(path, str(path.relative_to(scratch)))
    for new in batch:
        if new.name in summarised_now:
            (done.completed if new.there else done.copied).append(new.name)


def _archive(new: _New, path: Path, problems: list[str]) -> dict[str, str]:
    """Write what the library lacks of a result set, and return its records."""
    written = {}
    with tarfile.open(path, "w") as archive:
        for name, data in files_of(new.content, new.there, problems):
            if name.name == MANIFEST:
                record = str(name.parents[2] / name.parent.name)
                written[record] = new.content.records[record]
            # Without time, mode and owner: the same content is the same archive.
            member = tarfile.TarInfo(f"{new.name}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written


def sources(places: Sequence[str]) -> Iterator[Path]:
    """Yield directories, and one with each result set of a library at an address in turn, removed afterwards."""
    for place in places:
        if is_address(place):
            yield from _downloaded(place)
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
