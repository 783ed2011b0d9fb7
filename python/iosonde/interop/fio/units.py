"""Numbers as fio writes them, which is not how iosonde does: `4k`, `4ki` and `4kb` are 4096 bytes, `4kib` is 4000.

With `kb_base=1024` (fio's default) `kib`, `mib`, ... are powers of 1000, the opposite of the standards; with
`kb_base=1000` they follow them. Other suffixes, `ki` among them, are powers of `kb_base` (fio 3.33, `parse.c`).
A number is whole, and hexadecimal after `0x`. A time without a unit is in seconds, or in what the option says.
What fio would silently cut off (`1.5m` is 1 byte to it) is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PREFIXES = "kmgtp"
_SIZE = re.compile(r"(0x[0-9a-f]+|[0-9]+)(?:([kmgtp])(ib?)?)?b?", re.IGNORECASE)
REVERSED_PREFIX = re.compile(r"[0-9]([kmgtp]ib)", re.IGNORECASE)
"""Suffixes whose meaning `kb_base=1024` reverses."""
_TIME = re.compile(r"([0-9]+)\s*([a-z]*)", re.IGNORECASE)

_MOST_DIGITS = 20
"""Of a number below 2**64; Python's have no end."""
_MOST_CPUS = 1 << 16

_TIME_NS = {
    "us": 10**3,
    "usec": 10**3,
    "ms": 10**6,
    "msec": 10**6,
    "s": 10**9,
    "sec": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}


def size(text: str, *, kb_base: int) -> int:
    """Bytes of `4k`, `4kib`, `0x1000`; for rates and counts too, which have the same suffixes."""
    matched = _SIZE.fullmatch(text.strip())
    if not matched:
        raise ValueError(f"`{text}` is not a whole number with a unit such as `k`, `m`, `g`")
    number, prefix, suffix = matched.groups()
    base = (1000 if kb_base == 1024 else 1024) if suffix and suffix.lower() == "ib" else kb_base
    power = _PREFIXES.index(prefix.lower()) + 1 if prefix else 0
    if len(number) > _MOST_DIGITS:
        raise ValueError(f"`{text[:_MOST_DIGITS]}...` does not fit 64 bits")
    result: int = int(number, 0 if number.lower().startswith("0x") else 10) * base**power
    if result >= 1 << 63:
        raise ValueError(f"`{text}` does not fit 64 bits")
    return result


def time_ns(text: str, *, unit: str) -> int:
    """Nanoseconds of `10`, `10s`, `500ms`, `2m`; `unit` is that of a bare number."""
    matched = _TIME.fullmatch(text.strip())
    known = matched and (matched[2].lower() or unit)
    if not matched or known not in _TIME_NS:
        raise ValueError(f"`{text}` is not a whole number with a unit of time such as `us`, `ms`, `s`, `m`")
    if len(matched[1]) > _MOST_DIGITS or int(matched[1]) * _TIME_NS[known] >= 1 << 63:
        raise ValueError(f"`{text[:_MOST_DIGITS]}` is longer than three centuries")
    return int(matched[1]) * _TIME_NS[known]


def share(text: str) -> float:
    """Per cent, 0 to 100, with or without its sign, which job files may double (`50%%`)."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?%*", text.strip(), re.ASCII) or float(text.strip().rstrip("%")) > 100:
        raise ValueError(f"`{text}` is not a percentage, 0 to 100")
    return float(text.strip().rstrip("%"))


def triple(text: str) -> tuple[str, str, str]:
    """Return values for reads, writes and trims; a missing one repeats the last, an empty one stays empty."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 3:
        raise ValueError(f"`{text}` must have at most three parts (reads, writes, trims), got {len(parts)}")
    read = parts[0]
    write = parts[1] if len(parts) > 1 else read
    return read, write, parts[2] if len(parts) > 2 else write


def span(text: str, *, kb_base: int) -> tuple[int, int]:
    """The smaller and the larger end of `1k-16k` or `1k:16k`."""
    ends = re.split("[-:]", text)
    if len(ends) != 2:
        raise ValueError(f"`{text}` is not a range such as `1k-16k`")
    low, high = sorted(size(end, kb_base=kb_base) for end in ends)
    return low, high


def cpu_list(text: str) -> list[int]:
    """CPUs of `0-3,8` in order."""
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        matched = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not matched:
            raise ValueError(f"`{text}` is not a list of CPUs such as `0-3,8`")
        first, last = (size(end, kb_base=1024) for end in (matched[1], matched[2] or matched[1]))
        if last >= _MOST_CPUS:
            raise ValueError(f"`{text}` names a CPU beyond {_MOST_CPUS}")
        cpus |= set(range(first, last + 1))
    return sorted(cpus)


def cpus_of_mask(mask: int) -> list[int]:
    """CPUs whose bits are set."""
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


def shares(weights: Sequence[float | None]) -> list[float]:
    """Return percentages; open ones divide the remainder of 100."""
    remains = max(0.0, 100.0 - sum(weight for weight in weights if weight is not None))
    open_count = sum(weight is None for weight in weights)
    return [remains / open_count if weight is None else weight for weight in weights]
