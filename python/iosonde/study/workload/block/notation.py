"""Values of block I/O as a study writes them, checked and brought to one form; and read again from that form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from iosonde.study.workload.reading import not_zero
from iosonde.units import (
    compact_duration,
    compact_size,
    format_bytes,
    parse_duration,
    parse_number,
    parse_rate,
    parse_size,
)

LARGEST_BLOCK_BYTES = 64 << 20


def parse_span(value: Any) -> int | str:
    """Bytes, or a share of the room as `80%`."""
    share = re.fullmatch(r"\s*([0-9.]+)\s*%\s*", value) if isinstance(value, str) else None
    if not share:
        return parse_size(value)
    percent = parse_number(share[1])
    if not 0 < percent <= 100:
        raise ValueError(f"`{value}` is not a share; it lies above 0% and up to 100%")
    return f"{percent:g}%"


def parse_offset(value: Any) -> int | str:
    """Bytes, or a share of the room as `50%`."""
    found = 0 if isinstance(value, str) and value.strip() in ("0%", "0 %") else parse_span(value)
    if found == "100%":
        raise ValueError(f"`{value}` leaves no room behind it")
    return found


def parse_block_size(value: Any) -> int | str:
    """Bytes, or a mix as `4KiB/70:64KiB/30`; in TOML also a list of `{size, weight}`."""
    if isinstance(value, list):
        value = ":".join(f"{part['size']}/{part['weight']}" for part in value if _is_weighted_size(part))
    if not isinstance(value, str) or "/" not in value:
        return _checked_block(parse_size(value))
    return ":".join(f"{compact_size(size)}/{weight:g}" for size, weight in mix_of(value))


def _is_weighted_size(part: Any) -> bool:
    if not isinstance(part, Mapping) or set(part) != {"size", "weight"}:
        raise ValueError(f'`{part}` is not a part of a mix; write it like `{{ size = "4KiB", weight = 70 }}`')
    return True


def parse_block_size_or_none(value: Any) -> int | None:
    """A single block size, or `none`."""
    return None if value is None or value == "none" else _checked_block(parse_size(value))


def mix_of(block_size: int | str) -> list[tuple[int, float]]:
    """Sizes and weights of a block size or of a mix as `4KiB/70:64KiB/30`."""
    if isinstance(block_size, int):
        return [(block_size, 1.0)]
    parts = [part.partition("/") for part in block_size.split(":")]
    try:
        mix = [(_checked_block(parse_size(size)), parse_number(weight)) for size, _, weight in parts]
    except ValueError:
        raise ValueError(f"`{block_size}` is not a mix; write it like `4KiB/70:64KiB/30`") from None
    if not all(weight > 0 for _, weight in mix):
        raise ValueError(f"`{block_size}` has a weight that is not above 0")
    return mix


def _checked_block(size: int) -> int:
    if not 512 <= size <= LARGEST_BLOCK_BYTES:
        raise ValueError(f"{format_bytes(size)} is not a block; it has 512 B to 64 MiB")
    return size


def parse_distribution(value: Any) -> str:
    """`uniform`, `zipfian:THETA` or `hot_cold:HOT_SPAN:HOT_ACCESS`; in TOML also a table with `kind`."""
    shapes = {"uniform": (), "zipfian": ("theta",), "hot_cold": ("hot_span", "hot_access")}
    kind, numbers = _kind_and_numbers(value, shapes)
    if kind == "zipfian" and not numbers[0] > 0:
        raise ValueError("`theta` of a zipfian distribution is above 0 (YCSB: 0.99)")
    if kind == "hot_cold" and not all(0 < number < 1 for number in numbers):
        raise ValueError("`hot_span` and `hot_access` are fractions between 0 and 1")
    return ":".join([kind, *(f"{number:g}" for number in numbers)])


def parse_durability(value: Any) -> str:
    """`none`, `dsync` or `flush:N`; in TOML also `{ kind = "flush", every = N }`."""
    kind, numbers = _kind_and_numbers(value, {"none": (), "dsync": (), "flush": ("every",)})
    if kind == "flush" and (numbers[0] < 1 or numbers[0] % 1):
        raise ValueError("`flush` comes after a whole number of writes, at least 1")
    return ":".join([kind, *(f"{number:.0f}" for number in numbers)])


def _kind_and_numbers(value: Any, shapes: Mapping[str, tuple[str, ...]]) -> tuple[str, list[float]]:
    if isinstance(value, Mapping):
        parts = dict(value)
        kind = str(parts.pop("kind", ""))
        numbers = [parts.pop(name, None) for name in shapes.get(kind, ())]
        complete = not parts and None not in numbers
    else:
        kind, *numbers = str(value).split(":")
        complete = len(numbers) == len(shapes.get(kind, ()))
    if kind not in shapes or not complete:
        forms = ", ".join(f"`{':'.join([name, *(part.upper() for part in parts)])}`" for name, parts in shapes.items())
        raise ValueError(f"`{value}` is not known; it is one of {forms}")
    try:
        return kind, [parse_number(number) for number in numbers]
    except (TypeError, ValueError):
        raise ValueError(f"`{value}` contains a value that is not a number") from None


def parse_rate_or_steps(value: Any) -> float | str:
    """I/Os per second, or steps as `1000/10s:5000/10s`, a rate and how long it lasts; 0 is a pause."""
    if not isinstance(value, str) or "/" not in value.replace("/s", ""):
        return not_zero(parse_rate(value))
    steps = rate_steps(value)
    if not any(rate for rate, _ in steps):
        raise ValueError(f"`{value}` contains no rate above 0")
    return ":".join(f"{rate:g}/{compact_duration(length)}" for rate, length in steps)


def rate_steps(rate: str) -> list[tuple[float, int]]:
    """The steps of a stepped rate: I/Os per second, and for how many nanoseconds."""
    steps = [step.rpartition("/") for step in rate.split(":")]
    return [(parse_rate(number), not_zero(parse_duration(length))) for number, _, length in steps]


_ACTIVE = re.compile(r"\s*(?P<begin>[^-]+?)\s*-\s*(?P<end>[^-]*?)\s*(\severy\s+(?P<every>\S+)\s*)?")


def parse_active(value: Any) -> str | None:
    """`FROM-TO` within the measurement, as `10s-20s`; without `TO`, to its end; `0s-5s every 15s` again and again."""
    if value is None:
        return None
    matched = _ACTIVE.fullmatch(value) if isinstance(value, str) else None
    if not matched:
        raise ValueError(
            f"`{value}` is not a part of the measurement; write it like `10s-20s`, `10s-` for the rest, or "
            "`0s-5s every 15s`"
        )
    begin, end = parse_duration(matched["begin"]), parse_duration(matched["end"]) if matched["end"] else None
    if end is not None and end <= begin:
        raise ValueError(f"`{value}` ends before it starts")
    text = f"{compact_duration(begin)}-{'' if end is None else compact_duration(end)}"
    if not matched["every"]:
        return text
    every = parse_duration(matched["every"])
    if end is None or every < end - begin:
        raise ValueError(f"`{value}` repeats before it ends; write it like `0s-5s every 15s`")
    return f"{text} every {compact_duration(every)}"


def active_window(text: str) -> dict[str, Any]:
    """The engine's notation of the time in which a stream applies load; `every_ns` if it repeats."""
    window, _, every = text.partition(" every ")
    begin, _, end = window.partition("-")
    active = {"begin_ns": parse_duration(begin), "end_ns": parse_duration(end) if end else None}
    return {**active, "every_ns": parse_duration(every)} if every else active
