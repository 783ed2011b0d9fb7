"""The options of one section with their values, in fio's units; errors name their place.

Numbers are written as fio does, which is not how iosonde does: `4k`, `4ki` and `4kb` are 4096 bytes, `4kib` is 4000.
With `kb_base=1024` (fio's default) `kib`, `mib`, ... are powers of 1000, the opposite of the standards; with
`kb_base=1000` they follow them. Other suffixes, `ki` among them, are powers of `kb_base` (fio 3.33, `parse.c`).
A number is whole, and hexadecimal after `0x`. A time without a unit is in seconds, or in what the option says.
What fio would silently cut off (`1.5m` is 1 byte to it) is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from iosonde.errors import StudyError
from iosonde.interop.fio import options
from iosonde.interop.fio.jobfile import Section, Setting, unset_variables


@dataclass(frozen=True, kw_only=True)
class Note:
    """One difference between the study and the job file."""

    option: str
    """As written in the file (`thinktime=200`); empty for a whole section."""
    section: str
    file: str
    line: int
    text: str
    """Reason; behaviour of the import instead."""

    def __str__(self) -> str:
        subject = f"`{self.option}`: " if self.option else ""
        return f"{self.file}:{self.line} [{self.section}] {subject}{self.text}"


class Given:
    """The options of a section, by the first of their names."""

    def __init__(self, section: Section, notes: dict[Note, None]) -> None:
        """`notes` is an ordered set: an option of `[global]` is noted once for all sections that take it from there."""
        self.section = section
        self._notes = notes
        self.settings: dict[str, Setting] = {}
        for setting in section.settings:
            name = options.name_of(setting)
            # Taken out first, so that the order of the dict is that of the last mention.
            self.settings.pop(name, None)
            self.settings[name] = setting
        self.kb_base = 1024
        self.kb_base = self.get("kb_base", 1024)

    def note(self, name: str, text: str) -> None:
        """Note that an option is not carried over unchanged: reason; what happens instead."""
        self._note(self.settings[name], str(self.settings[name]), self.settings[name].section, text)

    def note_section(self, text: str) -> None:
        """The same of the section as a whole."""
        self._note(self.section, "", self.section.name, text)

    def _note(self, place: Setting | Section, option: str, section: str, text: str) -> None:
        self._notes[Note(option=option, section=section, file=place.file, line=place.line, text=text)] = None

    def last_of(self, *names: str) -> str | None:
        """The last one, of several that overrule each other."""
        return next((name for name in reversed(self.settings) if name in names), None)

    def raw(self, name: str) -> str:
        """The value as text, where nothing depends on what it holds."""
        return self.settings[name].value or "" if name in self.settings else ""

    def get(self, name: str, default: Any = None, parse: Callable[[str, int], Any] | None = None) -> Any:
        """The value as `parse` understands it, or the option's converter; `default` for an option that is not given."""
        parse = parse or _CONVERTERS.get(name, _text)
        if name not in self.settings:
            return default
        setting = self.settings[name]
        if setting.value is None and parse is _flag:
            return True
        for variable in unset_variables(setting):
            self.fail(
                name,
                f"`{name}` requires the environment variable `{variable}`, which is not set",
                hint=f"set it for the import: `{variable}=... iosonde import fio ...`",
            )
        if not setting.value:
            self.fail(name, f"`{name}` requires a value", hint=f"write `{name}=...`")
        try:
            value = parse(setting.value, self.kb_base)
        except ValueError as error:
            self.fail(name, f"`{setting}` cannot be read: {error}", hint="fio's units are explained in docs/fio.md")
        found = _REVERSED_PREFIX.search(setting.value)
        if found and parse is not _text and self.kb_base == 1024:
            self.note(
                name,
                f"`{found[1]}` is a power of 1000 with `kb_base=1024`, and `{found[1][0]}` a power of 1024; "
                "sizes are as in fio",
            )
        return value

    def fail(self, name: str, what: str, *, hint: str) -> NoReturn:
        raise StudyError(what, where=self.settings[name].where(), hint=hint)


_SIZE = re.compile(r"(0x[0-9a-f]+|[0-9]+)(?:([kmgtp])(ib?)?)?b?", re.IGNORECASE)
_REVERSED_PREFIX = re.compile(r"[0-9]([kmgtp]ib)", re.IGNORECASE)
"""Suffixes whose meaning `kb_base=1024` reverses."""
_TIME = re.compile(r"([0-9]+)\s*([a-z]*)", re.IGNORECASE)

_MOST_DIGITS = 20
"""Of a number below 2**64; Python's have no end."""
_MOST_CPUS = 1 << 16

_MS, _S = 10**6, 10**9
_TIME_NS = {"us": 10**3, "usec": 10**3, "ms": _MS, "msec": _MS, "s": _S, "sec": _S}
_TIME_NS |= {"m": 60 * _S, "h": 3600 * _S, "d": 86400 * _S}


def size(text: str, kb_base: int) -> int:
    """Bytes of `4k`, `4kib`, `0x1000`; for rates and counts too, which have the same suffixes."""
    matched = _SIZE.fullmatch(text.strip())
    if not matched:
        raise ValueError(f"`{text}` is not a whole number with a unit such as `k`, `m`, `g`")
    number, prefix, suffix = matched.groups()
    base = (1000 if kb_base == 1024 else 1024) if suffix and suffix.lower() == "ib" else kb_base
    power = "kmgtp".index(prefix.lower()) + 1 if prefix else 0
    if len(number) > _MOST_DIGITS:
        raise ValueError(f"`{text[:_MOST_DIGITS]}...` does not fit 64 bits")
    result: int = int(number, 0 if number.lower().startswith("0x") else 10) * base**power
    if result >= 1 << 63:
        raise ValueError(f"`{text}` does not fit 64 bits")
    return result


def time_ns(text: str, unit: str = "s") -> int:
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


def shares(weights: Sequence[float | None]) -> list[float]:
    """Return percentages; open ones divide the remainder of 100."""
    remains = max(0.0, 100.0 - sum(weight for weight in weights if weight is not None))
    open_count = sum(weight is None for weight in weights)
    return [remains / open_count if weight is None else weight for weight in weights]


def _text(text: str, _: int) -> str:
    return text


def _flag(text: str, _: int) -> bool:
    """A switch, or 0 and 1."""
    return int(text, 0) != 0


def _size_or_share(text: str, kb_base: int) -> int | str:
    """Bytes, or a share as `20%`."""
    return f"{share(text):g}%" if text.endswith("%") else size(text, kb_base)


def _range(text: str, kb_base: int) -> list[int]:
    """The ends of `1k-16k` or `1k:16k`; a single size is both."""
    return sorted(size(end, kb_base) for end in re.split("[-:]", text))


def _block_range(text: str, kb_base: int) -> list[int]:
    if len(re.split("[-:]", text)) != 2:
        raise ValueError(f"`{text}` is not a range such as `1k-16k`")
    ends = _range(text, kb_base)
    if not ends[0]:
        raise ValueError("use blocks of at least 512 bytes")
    return ends


def _split(text: str, kb_base: int) -> list[tuple[int, float]]:
    """Sizes and weights of `4k/60:64k/40`; parts without a share divide what remains of 100."""
    parts = [part.split("/") for part in text.split(":")]
    weights = shares([share(part[1]) if len(part) > 1 and part[1] else None for part in parts])
    sizes = [size(part[0], kb_base) for part in parts]
    return [(size, weight) for size, weight in zip(sizes, weights, strict=True) if weight > 0]


def _each(parse: Callable[[str, int], Any]) -> Callable[[str, int], list[Any]]:
    """Values for reads, writes and trims; a missing one repeats the last, an empty one is None."""

    def read(text: str, kb_base: int) -> list[Any]:
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > 3:
            raise ValueError(f"`{text}` must have at most three parts (reads, writes, trims), got {len(parts)}")
        found = [parse(part, kb_base) if part else None for part in parts]
        return found + found[-1:] * (3 - len(found))

    return read


def _distribution(text: str, kb_base: int) -> str:
    """The parameter `distribution`; empty where a study has none such."""
    kind, _, numbers = text.partition(",")[0].partition(":")
    if kind == "zoned" and len(zones := _zones(numbers)) == 2:
        hot = max(zones, key=lambda zone: zone[0] / zone[1])
        return f"hot_cold:{hot[1] / 100:g}:{hot[0] / 100:g}"
    return {"random": "uniform", "zipf": f"zipfian:{numbers.partition(':')[0]}"}.get(kind, "")


def _zones(text: str) -> list[tuple[float, float]]:
    """Percent of the accesses and of the range."""
    parts = [part.partition("/") for part in text.split(":")]
    accesses = shares([share(access) for access, _, _ in parts])
    ranges = shares([share(size) if size else None for _, _, size in parts])
    zones = list(zip(accesses, ranges, strict=True))
    if not all(access > 0 and size > 0 for access, size in zones):
        raise ValueError("each zone has a share of accesses and range")
    return zones


def _cpu_list(text: str, _: int) -> list[int]:
    """CPUs of `0-3,8` in order."""
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        matched = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not matched:
            raise ValueError(f"`{text}` is not a list of CPUs such as `0-3,8`")
        first, last = (size(end, 1024) for end in (matched[1], matched[2] or matched[1]))
        if last >= _MOST_CPUS:
            raise ValueError(f"`{text}` names a CPU beyond {_MOST_CPUS}")
        cpus |= set(range(first, last + 1))
    return sorted(cpus)


def _cpu_mask(text: str, kb_base: int) -> list[int]:
    mask = size(text, kb_base)
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


_CONVERTERS: dict[str, Callable[[str, int], Any]] = {
    name: parse
    for names, parse in (
        ("atomic buffered create_only direct do_verify fixedbufs hipri invalidate norandommap overwrite", _flag),
        ("pre_read registerfiles sqthread_poll stonewall time_based zero_buffers", _flag),
        ("fdatasync fsync iodepth kb_base loops nrfiles number_ios numjobs", size),
        ("io_size offset offset_increment size", _size_or_share),
        ("buffer_compress_percentage dedupe_percentage rwmixread rwmixwrite", lambda text, _: share(text)),
        ("runtime ramp_time", lambda text, _: time_ns(text)),
        ("log_avg_msec", lambda text, _: time_ns(text, "ms")),
        ("startdelay", lambda text, _: [time_ns(end) for end in text.split("-") if end]),
        ("filesize", _range),
        ("bs", _each(lambda text, kb_base: [(size(text, kb_base), 1.0)])),
        ("bssplit", _each(_split)),
        ("bsrange", _each(_block_range)),
        ("rate rate_iops", _each(size)),
        ("random_distribution", _distribution),
        ("cpus_allowed", _cpu_list),
        ("cpumask", _cpu_mask),
    )
    for name in names.split()
}
"""What an option's value is read with, given its text and `kb_base`; others are text."""
