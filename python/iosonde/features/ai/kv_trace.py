"""Traces of requests to a language model: checked line by line, or drawn from a model, and converted for the engine.

The engine gets requests and blocks of fixed size (`KvCacheTrace` in `crates/protocol/src/ai.rs`). They are kept in the cache
directory, under a name that changes with the trace.
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iosonde.base import text_files
from iosonde.base.cache import cache_directory, temporary_file
from iosonde.errors import StudyError

VERSION = 1
"""Of the conversion and of the models; a change converts traces again."""
_MAGIC = b"ioskvreq"
_HEAD_BYTES = 32
_ROW = np.dtype([("at_ns", "<u8"), ("blocks", "<u8")])
_PARQUET = b"PAR1"
_COLUMNS = ("timestamp", "input_length", "hash_ids")
_LONGEST_MS = 366 * 86_400_000
_LINE_BYTES = 64 << 20

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
        rows = np.fromfile(self.path, dtype=_ROW, count=self.rows, offset=_HEAD_BYTES)[warm:]
        at_ns = (rows["at_ns"] - rows["at_ns"][0]) / speed
        last_ns = float(at_ns[-1])
        until_ns = last_ns if duration_ns is None else min(duration_ns, last_ns)
        return until_ns / 1e9, int(rows["blocks"][at_ns <= until_ns].sum())


def directory() -> Path:
    """Return the directory of converted traces."""
    return cache_directory() / "kv-traces"


def converted(path: str, block_tokens: int) -> Trace:
    """The trace in a file of JSON lines or a Parquet file; `StudyError` names the first line that is wrong."""
    try:
        with os.fdopen(text_files.open_regular(path), "rb") as file:
            found = os.fstat(file.fileno())
    except OSError as error:
        raise _invalid(path, f"it cannot be read: {error.strerror or error}") from None
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, block_tokens)
    return _converted(str(Path(path).resolve()), identity)


@functools.lru_cache(maxsize=16)
def _converted(path: str, identity: tuple[int, ...]) -> Trace:
    requests = _checked(path, _lines(path), identity[-1])
    return _kept(json.dumps([path, identity, VERSION]), lambda: (requests, _digest(path)))


def _digest(path: str) -> str:
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(identity: str, read: Any) -> Trace:
    """A trace that was converted before, or is now; `read` returns its requests and digest."""
    name = hashlib.sha256(identity.encode()).hexdigest()[:32]
    rows = directory() / f"{name}.requests"
    with suppress(OSError, ValueError, TypeError):
        found = Trace(**json.loads(rows.with_suffix(".json").read_text(encoding="utf-8")))
        if found.path == str(rows) and rows.stat().st_size > _HEAD_BYTES + found.rows * _ROW.itemsize:
            return found
    requests, digest = read()
    content, count = _content(requests)
    try:
        rows.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file() as file:
            file.write(content)
        Path(file.name).replace(rows)
        trace = Trace(path=str(rows), rows=count, digest=digest)
        rows.with_suffix(".json").write_text(json.dumps(dataclasses.asdict(trace)), encoding="utf-8")
    except OSError as error:
        raise StudyError(
            f"cannot keep the converted trace: {error.strerror or error}",
            where=f"in `{rows.parent}`",
            hint="name another directory with `XDG_CACHE_HOME`",
        ) from error
    return trace


def _content(requests: Iterable[Request]) -> tuple[bytes, int]:
    """The file for the engine, and the number of requests. Blocks are numbered by their first occurrence."""
    numbers: dict[int, int] = {}
    rows: list[tuple[int, int]] = []
    blocks: list[int] = []
    first_ns = None
    for at_ns, ids in requests:
        first_ns = at_ns if first_ns is None else first_ns
        rows.append((at_ns - first_ns, len(ids)))
        blocks.extend(numbers.setdefault(each, len(numbers)) for each in ids)
    head = _MAGIC + np.array([VERSION, len(numbers)], dtype="<u4").tobytes()
    counts = np.array([len(rows), len(blocks)], dtype="<u8").tobytes()
    return head + counts + np.array(rows, dtype=_ROW).tobytes() + np.array(blocks, dtype="<u4").tobytes(), len(rows)


def _invalid(path: str, what: str, line: int | None = None) -> StudyError:
    place = f", line {line}" if line else ""
    return StudyError(
        f"the trace is invalid: {what}",
        where=f"in `{path}`{place}\n  by the parameter `trace`",
        hint="each line is a JSON object with `timestamp` (ms), `input_length` (tokens) and `hash_ids` (blocks)",
    )


def _lines(path: str) -> Iterator[tuple[int, Any]]:
    """Lines with their numbers from 1 on; rows of a Parquet file likewise."""
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        if file.read(len(_PARQUET)) == _PARQUET:
            yield from enumerate(_rows_of_parquet(path, f"/proc/self/fd/{file.fileno()}"), start=1)
            return
        file.seek(0)
        number = 0
        while line := file.readline(_LINE_BYTES):
            number += 1
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                raise _invalid(path, "a line is not JSON", number) from None


def _rows_of_parquet(path: str, opened: str) -> Iterator[dict[str, Any]]:
    import polars as pl

    try:
        yield from pl.read_parquet(opened, columns=list(_COLUMNS), glob=False).iter_rows(named=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _invalid(path, f"the Parquet file cannot be read: {str(error)[:200]}") from None


def _checked(path: str, lines: Iterable[tuple[int, Any]], block_tokens: int) -> Iterator[Request]:
    before = first = None
    for number, line in lines:
        at_ms, tokens, ids = (line.get(name) if isinstance(line, dict) else None for name in _COLUMNS)
        is_time = _is_number(at_ms, int | float) and at_ms >= 0
        first = at_ms if first is None else first
        if not is_time or at_ms - first > _LONGEST_MS:
            raise _invalid(path, "`timestamp` must be milliseconds, within a year of the first", number)
        if before is not None and at_ms < before:
            raise _invalid(path, f"`timestamp` {at_ms} is before that of the line above, {before}", number)
        if not isinstance(ids, list) or not ids or not all(_is_number(each, int) for each in ids):
            raise _invalid(path, "`hash_ids` must be a list of at least one block, as whole numbers", number)
        if not _is_number(tokens, int) or tokens <= 0:
            raise _invalid(path, "`input_length` must be the tokens of the prompt", number)
        if len(ids) != -(-tokens // block_tokens):
            what = f"{len(ids)} blocks for {tokens} tokens, which are {-(-tokens // block_tokens)} of {block_tokens}"
            raise _invalid(path, f"{what}: set `block_tokens` as in the trace", number)
        before = at_ms
        yield round(at_ms * 1e6), ids
    if before is None:
        raise _invalid(path, "it has no requests")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Conversations and questions about documents; lengths in blocks of 512 tokens.

    Lengths and times are log-normal, by mean and standard deviation of their logarithm.
    """

    rate: float
    """New prefixes per second (Poisson)."""
    quantum_ns: int
    """Arrivals are rounded down to multiples of it."""
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
        rate=2.08, quantum_ns=3 * 10**9, long_share=1.0, first=(2.33, 1.22), next_share=0.41, gap_s=(5.0, 1.0),
        loss=0.08, added=(1.1, 1.15), has_common=True,
    ),
    "synthetic-like": Model(
        rate=2.07, quantum_ns=1, long_share=0.42, first=(3.5, 0.7), next_share=0.9, gap_s=(4.4, 1.6),
        loss=0.02, added=(0.1, 0.4), has_common=False,
    ),
}  # fmt: skip
"""Models fitted to the traces of Mooncake (FAST '25). LRU hit ratios at 10k blocks, 30k blocks and unbounded: 0.20, 0.33
and 0.37, published 0.211, 0.326 and 0.366; 0.48, 0.64 and 0.65, published 0.423, 0.624 and 0.640."""
_BLOCKS_MAX = 250


def drawn(model: str, requests: int, seed: int) -> Trace:
    """Requests of a model."""
    identity = json.dumps([model, dataclasses.asdict(MODELS[model]), requests, seed, VERSION])
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return _kept(identity, lambda: (_draw(MODELS[model], requests, random.Random(seed)), digest))


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
        yield int(at_s * 1e9) // model.quantum_ns * model.quantum_ns, blocks
