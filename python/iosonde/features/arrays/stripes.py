"""Member I/O of one array request, derived from the layout without timing.

The expected model of a level (`expected.py`) considers its parity only. A write that covers a whole stripe
needs to read nothing; a smaller one reads either what it replaces, with the parity (read-modify-write), or the rest of
the stripe (reconstruct-write), whichever is less, as Linux md does. So block size and chunk decide what an array can
give at most, and here is how much work of which kind each request brings to the members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd

from iosonde.features.arrays.setup import PARITIES

_POSITIONS = 4096
"""Positions in a stripe that are averaged over, at most."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Member I/O of a request, averaged over its position in the stripe."""

    reads: float
    """I/Os, if each member gets what is adjacent in one."""
    writes: float
    read_bytes: float
    """For each byte of the request."""
    write_bytes: float
    members: float
    """Members that are busy with it at the same time."""

    @property
    def ios(self) -> float:
        """Reads and writes."""
        return self.reads + self.writes

    @property
    def bytes(self) -> float:
        """Bytes of members for each byte of the request."""
        return self.read_bytes + self.write_bytes


def request(
    level: str, devices: int, chunk: int, block: int, *, writes: bool, merged: bool = False, copies: int | None = None
) -> Work:
    """Return the work of a request of `block` bytes at multiples of `block`.

    `merged` is for requests that reach the array one after the other and may be joined to whole stripes, by the page
    cache or by the array itself. `copies` as in `expected.expected`. All sizes are bytes.
    """
    mirrors = {"raid1": copies or devices, "raid10": 2}.get(level, 1)
    parities = PARITIES.get(level, 0)
    columns = {"raid1": 1, "raid10": devices / 2}.get(level, devices - parities)
    if not writes or not parities:
        pieces = _pieces(block, chunk) if columns > 1 else 1.0
        spread = min(pieces, columns)
        each = mirrors if writes else 1
        ios = each * spread
        return Work(
            reads=0 if writes else ios,
            writes=ios if writes else 0,
            read_bytes=0 if writes else 1,
            write_bytes=mirrors if writes else 0,
            members=min(float(devices), spread * each),
        )
    data = devices - parities
    if merged:
        share = block / (data * chunk)
        whole = devices / data
        return Work(reads=0, writes=devices * share, read_bytes=0, write_bytes=whole, members=float(devices))
    return _parity_write(data, parities, chunk, block)


def _pieces(block: int, chunk: int) -> float:
    """Return how many chunks a request touches, on average over its position."""
    positions = _offsets(block, chunk)
    touched = [(at % chunk + block + chunk - 1) // chunk for at in positions]
    return sum(touched) / len(touched)


def _offsets(block: int, period: int) -> list[int]:
    """Return the positions, modulo a period, of requests at multiples of their size."""
    count = min(period // gcd(block, period), _POSITIONS)
    return [(number * block) % period for number in range(count)]


@lru_cache(maxsize=256)
def _parity_write(data: int, parities: int, chunk: int, block: int) -> Work:
    """Average over every position of a request in its stripe."""
    stripe = data * chunk
    offsets = _offsets(block, stripe)
    totals = [0.0] * 5
    for offset in offsets:
        touched: set[int] = set()
        for begin, end in _in_stripes(offset, block, stripe):
            for index, amount in enumerate(_stripe_write(begin, end, data, parities, chunk, touched)):
                totals[index] += amount
        totals[4] += len(touched)
    count = len(offsets)
    reads, writes, read_bytes, write_bytes, members = (total / count for total in totals)
    return Work(
        reads=reads,
        writes=writes,
        read_bytes=read_bytes / block,
        write_bytes=write_bytes / block,
        members=min(float(data + parities), members),
    )


def _in_stripes(offset: int, block: int, stripe: int) -> Iterator[tuple[int, int]]:
    """Divide a request at the borders of stripes."""
    at, end = offset, offset + block
    while at < end:
        until = min(end, (at // stripe + 1) * stripe)
        yield at % stripe, (until - 1) % stripe + 1
        at = until


def _stripe_write(
    begin: int, end: int, data: int, parities: int, chunk: int, touched: set[int]
) -> tuple[int, int, int, int]:
    """Return reads, writes and their bytes for one stripe, written from `begin` to `end` of its data.

    The stripe is cut into rows of equal coverage, because each is decided on by itself; what a member does in adjacent
    rows is one I/O. Members are counted by column: data from 0, parities after them.
    """
    spans = {
        column: (max(begin, column * chunk) - column * chunk, min(end, (column + 1) * chunk) - column * chunk)
        for column in range(begin // chunk, (end - 1) // chunk + 1)
    }
    cuts = sorted({cut for span in spans.values() for cut in span})
    done: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for low, high in pairwise(cuts):
        covered = [column for column, (first, last) in spans.items() if first <= low and high <= last]
        if not covered:
            continue
        rest = [column for column in range(data) if column not in covered]
        written = [*covered, *range(data, data + parities)]
        read = rest if len(rest) <= len(written) else written
        for kind, columns in (("read", read), ("write", written)):
            for column in columns:
                touched.add(column)
                done.setdefault((kind, column), []).append((low, high))
    ios, amount = {"read": 0, "write": 0}, {"read": 0, "write": 0}
    for (kind, _), rows in done.items():
        ios[kind] += 1 + sum(later[0] != earlier[1] for earlier, later in pairwise(rows))
        amount[kind] += sum(high - low for low, high in rows)
    return ios["read"], ios["write"], amount["read"], amount["write"]
