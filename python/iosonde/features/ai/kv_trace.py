"""Traces of requests to a language model: checked line by line, or drawn from a model, and converted for the engine.

Converted traces are kept in the cache directory, under a name that changes with the trace.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import heapq
import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from iosonde.base import text_files
from iosonde.base.cache import cache_directory, temporary_file
from iosonde.errors import StudyError, os_errors

VERSION = 1
"""Of the conversion and of the models; a change converts traces again."""
_MAGIC = int.from_bytes(b"ioskvrq1", "little")
_HEAD = 3
_WORD = np.dtype("<u8")
_PARQUET = b"PAR1"
_LINE_BYTES = 64 << 20
_LONGEST_MS = 366 * 86_400_000

Request = tuple[int, list[int]]
"""Nanoseconds, and the blocks of the prompt from the first on."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A converted trace."""

    path: str
    rows: int
    digest: str
    """SHA-256 of the trace, or of the model's parameters."""

    def blocks_until(self, warm: int, duration_ns: int | None, speed: float) -> tuple[float, int]:
        """Seconds of a replay after the first `warm` requests, and the blocks of the requests in it."""
        words = np.fromfile(self.path, dtype=_WORD, count=_HEAD + 2 * self.rows)[_HEAD:]
        at_ns, counts = words[warm : self.rows], words[self.rows + warm :]
        passed_ns = (at_ns - at_ns[0]) / speed
        until_ns = min(passed_ns[-1], duration_ns or np.inf)
        return float(until_ns) / 1e9, int(counts[passed_ns <= until_ns].sum())


class _Line(BaseModel):
    """A request as it is published; other columns are allowed."""

    timestamp: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
    """Milliseconds."""
    input_length: Annotated[int, Field(gt=0)]
    """Tokens of the prompt."""
    hash_ids: list[int]
    """Its blocks; the last may be incomplete."""


def directory() -> Path:
    """Return the directory of converted traces."""
    return cache_directory() / "kv-traces"


def converted(path: str, block_tokens: int) -> Trace:
    """The trace in a file of JSON lines or a Parquet file; `StudyError` names the first line that is wrong."""
    try:
        with os.fdopen(text_files.open_regular(path), "rb") as file:
            found = os.fstat(file.fileno())
            digest = _digest(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
        return _kept(digest, str(block_tokens), _checked(path, _lines(path), block_tokens))
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror or error}") from None


@functools.lru_cache(maxsize=16)
def _digest(path: str, _identity: tuple[int, ...]) -> str:
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(digest: str, variant: str, requests: Iterable[Request]) -> Trace:
    """The file for the engine (`KvCacheTrace` in `crates/protocol/src/ai.rs`), which is written unless it exists."""
    path = directory() / f"{digest[:32]}-{variant}-{VERSION}.requests"
    with os_errors(f"cannot keep the trace in `{path.parent}`", hint="name another directory with `XDG_CACHE_HOME`"):
        if not path.exists():
            listed = list(requests)
            numbers: dict[int, int] = {}
            blocks = [numbers.setdefault(each, len(numbers)) for _, ids in listed for each in ids]
            times = [at_ns - listed[0][0] for at_ns, _ in listed]
            words = [_MAGIC, len(numbers), len(listed), *times, *(len(ids) for _, ids in listed), *blocks]
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary_file() as file:
                np.array(words, dtype=_WORD).tofile(file)
                os.fsync(file.fileno())  # Otherwise it may be empty after a power loss.
            Path(file.name).replace(path)
        rows = int(np.fromfile(path, dtype=_WORD, count=_HEAD)[-1])
    return Trace(path=str(path), rows=rows, digest=digest)


def _invalid(path: str, what: str, line: int | None = None) -> StudyError:
    place = f", line {line}" if line else ""
    return StudyError(
        f"the trace {what}",
        where=f"in `{path}`{place}\n  by the parameter `trace`",
        hint="name JSON lines or a Parquet file with `timestamp` (ms), `input_length` (tokens) and `hash_ids` (blocks)",
    )


def _lines(path: str) -> Iterator[bytes | dict[str, Any]]:
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        is_parquet = file.read(len(_PARQUET)) == _PARQUET
        file.seek(0)
        if is_parquet:
            yield from _rows_of_parquet(path, f"/proc/self/fd/{file.fileno()}")
        while not is_parquet and (line := file.readline(_LINE_BYTES)):
            yield line


def _rows_of_parquet(path: str, opened: str) -> Iterator[dict[str, Any]]:
    import polars as pl

    try:
        yield from pl.read_parquet(opened, columns=list(_Line.model_fields), glob=False).iter_rows(named=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _invalid(path, f"is no valid Parquet file: {str(error).splitlines()[0][:200]}") from None


def _checked(path: str, lines: Iterable[bytes | dict[str, Any]], block_tokens: int) -> Iterator[Request]:
    first: float | None = None
    before = 0.0
    for number, line in enumerate(lines, start=1):
        try:
            found = _Line.model_validate(line) if isinstance(line, dict) else _Line.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors()[0]
            where = f"`{problem['loc'][0]}`: " if problem["loc"] else ""
            raise _invalid(path, f"is invalid: {where}{problem['msg']}", number) from None
        at_ms, blocks = found.timestamp, -(-found.input_length // block_tokens)
        first = at_ms if first is None else first
        if at_ms < before or at_ms - first > _LONGEST_MS:
            what = f"must have ascending times within a year; got {at_ms:.10g} ms after {before:.10g} ms"
            raise _invalid(path, what, number)
        if len(found.hash_ids) != blocks:
            what = f"has {len(found.hash_ids)} `hash_ids` for {found.input_length} tokens"
            raise _invalid(path, f"{what}: set `block_tokens`, which is {block_tokens}, as in the trace", number)
        before = at_ms
        yield round(at_ms * 1e6), found.hash_ids
    if first is None:
        raise _invalid(path, "has no requests")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Conversations and questions about documents; lengths in blocks of 512 tokens.

    Lengths and times are log-normal, by mean and standard deviation of their logarithm.
    """

    rate: float
    """New prefixes per second (Poisson)."""
    long_share: float
    """Share of new prefixes that others continue; the others have one or two blocks."""
    first: tuple[float, float]
    """Length of a new prefix."""
    next_share: float
    """Share of requests with a long prefix that another one continues."""
    gap_s: tuple[float, float]
    loss: float
    """Mean share of a prefix, from its end, that the next request does not have (exponential)."""
    added: tuple[float, float]
    """Blocks that the next request adds."""
    has_common: bool
    """True if all requests have the same first block."""


MODELS = {
    "conversation-like": Model(
        rate=2.08, long_share=1.0, first=(2.33, 1.22), next_share=0.41, gap_s=(5.0, 1.0),
        loss=0.08, added=(1.1, 1.15), has_common=True,
    ),
    "synthetic-like": Model(
        rate=2.07, long_share=0.42, first=(3.5, 0.7), next_share=0.9, gap_s=(4.4, 1.6),
        loss=0.02, added=(0.1, 0.4), has_common=False,
    ),
}  # fmt: skip
"""Models fitted to the traces of Mooncake (FAST '25), with Poisson arrivals. LRU hit ratios at 10k and 30k blocks and
unbounded: 0.20, 0.33 and 0.36 (published: 0.211, 0.326 and 0.366); 0.47, 0.64 and 0.65 (0.423, 0.624 and 0.640)."""
_BLOCKS_MAX = 250


def drawn(model: str, requests: int, seed: int) -> Trace:
    """Requests of a model."""
    identity = json.dumps([dataclasses.asdict(MODELS[model]), requests, seed])
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return _kept(digest, model, _draw(MODELS[model], requests, random.Random(seed)))


def _draw(model: Model, requests: int, draw: random.Random) -> Iterator[Request]:
    """Requests in the order of their times: a heap has the next new prefix, and continuations of those before."""
    unused = 1

    def added(length: float) -> list[int]:
        nonlocal unused
        start, unused = unused, unused + max(1, round(length))
        return list(range(start, unused))

    waiting: list[tuple[float, int, list[int]]] = [(draw.expovariate(model.rate), 0, [])]
    for number in range(1, requests + 1):
        at_s, _, prefix = heapq.heappop(waiting)
        is_long = bool(prefix) or draw.random() < model.long_share
        if prefix:
            kept = max(1, int(len(prefix) * (1 - min(1.0, model.loss * draw.expovariate(1)))))
            blocks = prefix[:kept] + added(draw.lognormvariate(*model.added))
        else:
            heapq.heappush(waiting, (at_s + draw.expovariate(model.rate), -number, []))
            blocks = [0] if model.has_common else []
            blocks += added(draw.lognormvariate(*model.first) if is_long else draw.randint(1, 2))
        blocks = blocks[:_BLOCKS_MAX]
        if is_long and draw.random() < model.next_share:
            heapq.heappush(waiting, (at_s + draw.lognormvariate(*model.gap_s), number, blocks))
        yield int(at_s * 1e9), blocks
