"""Values of key-value loads as a study writes them, checked and brought to one form; and read again from that form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iosonde.base import text_files
from iosonde.engine.protocol import schema
from iosonde.errors import StudyError
from iosonde.plan import JsonObject
from iosonde.study.workload.reading import not_zero
from iosonde.units import compact_size, parse_number, parse_rate, parse_size

OptionValue = bool | int | float | str

OPERATIONS = ("read", "update", "update_field", "insert", "delete", "scan", "iterate", "read_modify_write")
"""Operations on records; a phase is a mix of them."""

WRITES = {"update", "update_field", "insert", "delete", "read_modify_write"}


def parse_options(value: Any) -> dict[str, OptionValue]:
    """A table of options by the store's own names, or text as `write_buffer_size=64MiB;use_direct_reads=true`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError(
                f"`{value}` are not options; write them like `write_buffer_size=64MiB;use_direct_reads=true`"
            )
        value = {name.strip(): read_scalar(text.strip()) for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError('options are a table of the store\'s own names, such as `{ write_buffer_size = "64MiB" }`')
    return {str(name): _option(str(name), given) for name, given in value.items()}


def read_scalar(text: str) -> OptionValue:
    """A truth value, a whole number, or the text itself."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def _option(name: str, value: Any) -> OptionValue:
    """An option's value; a size with a unit of ours becomes bytes."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9.]+\s*[KMGT]i?B\s*", value):
        return parse_size(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"the option `{name}` cannot be `{value}`; it is true, false, a number or a text")


SMALLEST_VALUE = 16
"""Bytes that identify the contents of a value or field."""


def parse_size_mix(smallest: int) -> Any:
    """Reader of a size, of a range as `16..32`, or of a mix as `100/70:4000/30` (sizes and weights)."""

    def parse(value: Any) -> int | str:
        sizes = sizes_of(value)
        if ends_of(sizes)[0] < smallest:
            raise ValueError(f"`{value}` is too small; it has at least {smallest} B")
        match sizes["kind"]:
            case "pareto" if smallest < SMALLEST_VALUE:
                raise ValueError("a Pareto distribution is for values")
            case "pareto":
                return f"pareto:{sizes['scale']:g}:{sizes['shape']:g}:{compact_size(sizes['max_bytes'])}"
            case "uniform":
                return f"{compact_size(sizes['min_bytes'])}..{compact_size(sizes['max_bytes'])}"
            case "weighted":
                return ":".join(f"{compact_size(each['bytes'])}/{each['weight']:g}" for each in sizes["sizes"])
        return int(sizes["bytes"])

    return parse


def sizes_of(value: Any) -> JsonObject:
    """Sizes as the engine's spec has them: one, a range, several with weights, or a generalized Pareto distribution."""
    text = str(value)
    if text.partition(":")[0] == "pareto":
        return _pareto(text)
    if ".." in text:
        low, _, high = text.partition("..")
        smallest, largest = not_zero(parse_size(low)), not_zero(parse_size(high))
        if smallest > largest:
            raise ValueError(f"`{value}` begins above its end; write it like `16..32`")
        return {"kind": "uniform", "min_bytes": smallest, "max_bytes": largest}
    if "/" in text:
        parts = [part.partition("/") for part in text.split(":")]
        try:
            sizes = [(not_zero(parse_size(size)), not_zero(parse_number(weight))) for size, _, weight in parts]
        except ValueError:
            raise ValueError(f"`{value}` is not a mix of sizes; write it like `100/70:4000/30`") from None
        if len(sizes) > 1:
            return {"kind": "weighted", "sizes": [{"bytes": size, "weight": weight} for size, weight in sizes]}
        value = sizes[0][0]
    return {"kind": "fixed", "bytes": not_zero(parse_size(value))}


def _pareto(text: str) -> JsonObject:
    """`pareto:SCALE:SHAPE` or `pareto:SCALE:SHAPE:MAX`, with location 0, between `SMALLEST_VALUE` and MAX."""
    _, scale, shape, largest, *_ = [*text.split(":", 3), "", "", ""]
    try:
        found = {"scale": parse_number(scale), "shape": parse_number(shape)}
        max_bytes = parse_size(largest or "1MiB")
    except ValueError:
        raise ValueError(f"`{text}` is not a distribution; write it like `pareto:214.476:0.348238:1MiB`") from None
    if not (found["scale"] > 0 and 0 < found["shape"] < 1 and max_bytes >= SMALLEST_VALUE):
        raise ValueError(f"`{text}` needs a scale above 0, a shape between 0 and 1, and a size of at least 16 B")
    return {"kind": "pareto", **found, "min_bytes": SMALLEST_VALUE, "max_bytes": max_bytes}


def ends_of(sizes: JsonObject) -> tuple[int, int]:
    """The smallest and the largest of the sizes in a spec."""
    if "min_bytes" in sizes:
        return sizes["min_bytes"], sizes["max_bytes"]
    each = [size["bytes"] for size in sizes.get("sizes", [sizes])]
    return min(each), max(each)


def mean_size(value: int | str) -> float:
    """The average of sizes with weights, of a range, or of a distribution."""
    sizes = sizes_of(value)
    if sizes["kind"] == "pareto":
        # The integral of the survival function between the limits.
        scale, shape = sizes["scale"], sizes["shape"]
        low, high = ((1 + shape * end / scale) ** (1 - 1 / shape) for end in ends_of(sizes))
        return float(SMALLEST_VALUE + scale / (1 - shape) * (low - high))
    if sizes["kind"] == "uniform":
        return sum(ends_of(sizes)) / 2
    weighted = [(each["bytes"], each.get("weight", 1)) for each in sizes.get("sizes", [sizes])]
    return float(sum(size * weight for size, weight in weighted) / sum(weight for _, weight in weighted))


def parse_count(value: Any) -> int:
    """A whole number, also as `80M` or `200k`."""
    count = not_zero(parse_rate(value))
    if count % 1:
        raise ValueError(f"`{value}` is not a whole number")
    return int(count)


def parse_count_or_none(value: Any) -> int | None:
    """A whole number, or `none`."""
    return None if value is None or value == "none" else parse_count(value)


def parse_choice(value: Any) -> str | None:
    """`sequential`, `each_once`, `uniform`, or `zipfian`, `scrambled_zipfian` or `latest` with `:THETA`.

    `zipfian:THETA:CHURN` has a rate too.
    """
    if value is None:
        return None
    kind, _, number = str(value).partition(":")
    number, _, churn = number.partition(":") if kind == "zipfian" else (number, "", "")
    if kind in ("zipfian", "scrambled_zipfian", "latest"):
        try:
            theta = parse_number(number or 0.99)
        except ValueError:
            theta = 0.0
        if not theta > 0:
            raise ValueError(f"`{value}` has no skew above 0; write it like `{kind}:0.99`")
        return f"{kind}:{theta:g}" + (f":{not_zero(parse_rate(churn)):g}" if churn else "")
    if kind not in ("sequential", "each_once", "uniform") or number:
        raise ValueError(
            f"`{value}` is not known; it is one of `sequential`, `each_once`, `uniform`, `zipfian:THETA`, "
            "`scrambled_zipfian:THETA`, `latest:THETA`"
        )
    return kind


def parse_operations(value: Any) -> str | None:
    """One operation, or several with weights as `read/95:update/5`."""
    if value is None:
        return None
    shares = operations_of(str(value))
    return shares[0][0] if len(shares) == 1 else ":".join(f"{name}/{weight:g}" for name, weight in shares)


def operations_of(text: str) -> list[tuple[str, float]]:
    """Operations with their weights."""
    shares = []
    for part in text.split(":"):
        name, _, weight = part.partition("/")
        if name not in OPERATIONS:
            listed = ", ".join(f"`{each}`" for each in OPERATIONS)
            raise ValueError(f"`{name}` is not an operation; it is one of {listed}")
        try:
            shares.append((name, not_zero(parse_number(weight or 1))))
        except ValueError:
            raise ValueError(f"`{part}` has no weight above 0; write it like `{name}/95`") from None
    return shares


def parse_scan(value: Any) -> str:
    """Records of a scan: a number, or a range as `1..100`."""
    low, _, high = str(value).partition("..")
    if not low.isdecimal() or not (high or low).isdecimal() or not 0 < int(low) <= int(high or low) < 1 << 32:
        raise ValueError(f"`{value}` is not a number of records; write it like `10` or `1..100`")
    return f"{int(low)}..{int(high)}" if high and int(high) > int(low) else str(int(low))


OTHER_VERSIONS = ("rocksdb",)
"""Stores of which another version may be loaded, with options that are not in the list."""
MISSPELT = 0.85
"""Similarity from which on an unknown name counts as a misspelt one."""
LISTED = 20
"""Longest list of names in an error."""
SECTIONS = re.compile(r'DBOptions|(CFOptions|TableOptions/BlockBasedTable) "default"')
"""Sections of an OPTIONS file with options of the database and its default column family."""
BY_ENGINE = ("wal_dir", "db_log_dir", "env", "create_if_missing", "error_if_exists", "statistics")
"""Options in an OPTIONS file that the engine sets."""


def misspelt(store: str, names: Iterable[str]) -> str | None:
    """The error for the first option that the store does not have, with the nearest name; None if all are known."""
    known = schema()["store_options"].get(store, ())
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1, cutoff=MISSPELT)
            if near or store not in OTHER_VERSIONS:
                return f"`{store}` has no option `{name}`{_nearest(name, known)}"
    return None


def _nearest(name: str, known: tuple[str, ...]) -> str:
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0)
    hint = f"; the nearest name is `{spelled[near[0]]}`" if near else ""
    names = f"; all names: {', '.join(f'`{each}`' for each in known)}" if 1 < len(known) <= LISTED else ""
    return hint + names


def of_file(path: str) -> Mapping[str, OptionValue]:
    """The options in an OPTIONS file of RocksDB, of the database and its default column family."""
    where, hint = "by the parameter `options_file`", "name a file `OPTIONS-...` of a RocksDB database"
    try:
        text = text_files.read(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StudyError(f"cannot read the options in `{path}`: {reason}", where=where, hint=hint) from None
    found: dict[str, OptionValue] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#") and SECTIONS.fullmatch(section):
            name, _, value = line.partition("=")
            if name.strip() not in BY_ENGINE:
                found[name.strip()] = read_scalar(value.strip())
    if not found:
        hint += ", with sections such as `[DBOptions]`"
        raise StudyError(f"`{path}` has no options of RocksDB", where=where, hint=hint)
    return found
