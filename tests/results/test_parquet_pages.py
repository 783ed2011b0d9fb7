"""Tables that would fill the memory of their reader are refused before anything is decoded."""

from __future__ import annotations

import contextlib
import io
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from plans import a_record, hand_plan, sign, tables

from iosonde.errors import ResultsError
from iosonde.results import ResultSet, parquet_pages
from iosonde.results.parquet_pages import Pages, pages_of
from iosonde.results.reading import read_tables
from iosonde.results.schema import HISTOGRAMS

GIB = 1 << 30


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def thrift(fields: dict[int, Any]) -> bytes:
    """A structure in Thrift's compact protocol, each field with its number in full."""
    found = b""
    for field, value in fields.items():
        kind, content = encoded(value)
        found += bytes([kind]) + varint(2 * field) + content
    return found + b"\0"


def encoded(value: Any) -> tuple[int, bytes]:
    if isinstance(value, dict):
        return 12, thrift(value)
    if isinstance(value, list):
        kind = encoded(value[0])[0] if value else 5
        return 9, bytes([0xF0 | kind]) + varint(len(value)) + b"".join(encoded(each)[1] for each in value)
    if isinstance(value, str):
        return 8, varint(len(value)) + value.encode()
    return 6 if value >= 1 << 31 else 5, varint(2 * value if value >= 0 else -2 * value - 1)


def file(*, page: dict[int, Any] | None = None, chunk: dict[int, Any] | None = None, **whole: int) -> bytes:
    """A file of one column and one page of 4 values, of which parts are changed."""
    header = thrift({1: 0, 2: 32, 3: 20, 5: {1: 4, 2: 0, 3: 3, 4: 3}} | (page or {}))
    facts = {1: 2, 3: ["count"], 4: 6, 5: 4, 6: 32, 7: len(header) + 20, 9: 4} | (chunk or {})
    rows = whole.get("rows", 4)
    footer = thrift({1: 1, 3: rows, 4: [{1: [{3: facts}], 2: 32, 3: whole.get("group_rows", rows)}]})
    return b"PAR1" + header + bytes(20) + footer + struct.pack("<I", len(footer)) + b"PAR1"


def test_the_pages_of_a_file_by_hand() -> None:
    found = pages_of(file())
    assert (found.rows, found.columns, found.bytes) == (4, 1, 32)


def test_the_pages_of_written_tables_have_their_rows() -> None:
    for rows in (0, 1, 1000, 200_000):
        frame = pl.DataFrame(
            {"text": [f"r{number % 7}" for number in range(rows)], "number": range(rows), "share": [0.5] * rows},
            schema={"text": pl.String, "number": pl.UInt64, "share": pl.Float64},
        )
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd", row_group_size=50_000)
        found = pages_of(buffer.getvalue())
        assert found.rows == rows
        assert found.columns == 3 or not rows
        assert found.bytes >= rows * 8


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (file(page={2: -1}), "negative size"),
        (file(page={3: -20}), "negative size"),
        (file(page={3: 21}), "have 4 values in 4 rows"),
        (file(page={5: {1: 5, 2: 0, 3: 3, 4: 3}}), "5 values in 4 rows"),
        (file(page={5: {1: 4, 2: 7, 3: 3, 4: 3}}), "encoded in a way"),
        (file(page={1: 9}), "malformed"),
        (file(chunk={4: 1}), "another way than zstd"),
        (file(chunk={9: 0}), "outside of the file"),
        (file(chunk={7: GIB}), "outside of the file"),
        (file(rows=5), "4 values in 5 rows"),
        (file(rows=5, group_rows=4), "other numbers of rows"),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", "longer than the file"),
        (b"PAR1" + b"\x1c" * 40 + struct.pack("<I", 40) + b"PAR1", "nested too deeply"),
        (b"not a table", "not a Parquet file"),
        (b"", "not a Parquet file"),
    ],
)
def test_a_file_with_false_metadata_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pages_of(content)


def test_a_field_that_occurs_twice_is_refused() -> None:
    """Readers take the first or the last of them."""
    twice = file().replace(b"\x05\x04\x40\x05\x06\x28", b"\x05\x04\x40\x05\x04\x28")
    assert twice != file()
    with pytest.raises(ValueError, match="a field twice"):
        pages_of(twice)


def test_any_other_bytes_are_refused_or_read(tmp_path: Path) -> None:
    """No other exception, and no endless loop."""
    chosen = random.Random(5)
    whole = file()
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(chosen.choice((1, 2, 4))):
            content[chosen.randrange(len(content))] = chosen.randrange(256)
        with contextlib.suppress(ValueError):
            pages_of(bytes(content))


def written(rows: int) -> bytes:
    """A table with texts, numbers and missing values, as a run writes it."""
    numbers = range(rows)
    frame = pl.DataFrame(
        {"text": [f"r{number % 7}" for number in numbers], "number": numbers, "share": [0.5] * rows}
    ).with_columns(small=pl.col("number").cast(pl.UInt16), missing=pl.lit(None, pl.UInt64))
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", row_group_size=400)
    return buffer.getvalue()


def amount(content: bytes) -> Pages | None:
    with contextlib.suppress(ValueError):
        return pages_of(content)
    return None


def test_usual_headers_are_read_as_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patterns are a shortcut: without them the result of any file is the same, damaged or not."""
    chosen = random.Random(7)
    whole = written(1000)
    contents = [whole]
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(chosen.choice((1, 2))):
            content[chosen.randrange(len(content))] = chosen.choice((0, 1, 4, 21, 22, 38, 128, chosen.randrange(256)))
        contents.append(bytes(content))
    with_patterns = [amount(content) for content in contents]
    for name in ("_USUAL_PAGE", "_USUAL_COLUMN"):
        monkeypatch.setattr(parquet_pages, name, re.compile(rb"(?!)"))
    assert [amount(content) for content in contents] == with_patterns
    assert with_patterns[0] and with_patterns[0].rows == 1000
    assert None in with_patterns


def _long_text(directory: Path) -> None:
    """70 MiB of text that take 6 KiB."""
    frame = pl.read_parquet(directory / "histograms.parquet").with_columns(stream=pl.lit("a" * (70 << 20)))
    frame.select(HISTOGRAMS.names()).write_parquet(directory / "histograms.parquet", compression="zstd")
    assert (directory / "histograms.parquet").stat().st_size < 100_000


def _claim(directory: Path) -> None:
    (directory / "histograms.parquet").write_bytes(file(page={2: 2 * GIB - 1}))


@pytest.mark.parametrize(("change", "size"), [(_long_text, "70 MiB"), (_claim, "2 GiB")])
def test_a_table_of_gigabytes_in_a_few_bytes_is_damaged(
    change: Callable[[Path], None], size: str, tmp_path: Path
) -> None:
    result_set = ResultSet.create(tmp_path / "set", hand_plan(levels=(1,), repeats=2))
    with result_set.lock():
        for run in result_set.plan.runs:
            result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    directory = result_set.directory / "records/c0001-r1"
    change(directory)
    sign(directory)
    again = ResultSet.open(result_set.directory)
    [problem] = again.problems
    assert f"histograms.parquet` is damaged: {size} of pages in" in problem
    assert [each.run_id for each in again.records()] == ["c0001-r2"]
    with pytest.raises(ResultsError, match=f"{size} of pages in"):
        read_tables(result_set.directory, ["c0001-r1"], {"histograms": ["bucket"]})
