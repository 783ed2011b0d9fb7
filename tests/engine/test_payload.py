"""Written data in the file: compressible, duplicated and random as requested.

Judged by a real zstd (the package `zstandard`: a wheel that brings the reference library, so that neither the engine
nor its tests have to compile it) and by comparing blocks, on what the engine wrote, read back from the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from engines import real_engine
from plans import MIB

from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.storage import open_target
from iosonde.study.workload.block import BLOCK

FILE_BYTES = 8 * MIB


def written(path: Path, *, block_size: int = 4096, **payload: Any) -> bytes:
    """A file of which every block was laid out and then written once more, in a random order."""
    parameters = BLOCK.build(
        {
            "coverage": "each_once",
            "block_size": block_size,
            "span": FILE_BYTES,
            "read_fraction": 0,
            "io_mode": "buffered",
            "layout": "always",
            "ramp": "0s",
            "duration": "none",
            "limit_operations": FILE_BYTES // block_size,
            **payload,
        }
    )
    data = path / "data"
    spec = BLOCK.resolve({"main": parameters}, open_target(str(data)), seed=1, run_id="payload")
    stop = Stop()
    try:
        done = drive(spec, on_event=lambda event: None, stop=stop, engine=real_engine())
    finally:
        stop.close()
    assert done.failure is None, done.failure
    content = data.read_bytes()
    data.unlink()
    return content


def ratio(data: bytes, *, level: int = 3, unit: int = FILE_BYTES) -> float:
    """Compression ratio of the data with zstd, each unit by itself."""
    compressor = zstandard.ZstdCompressor(level=level)
    return len(data) / sum(len(compressor.compress(part)) for part in parts(data, unit))


def parts(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def duplicates(data: bytes) -> float:
    return 1 - len(set(parts(data, 4096))) / (len(data) / 4096)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (1.5, {}),
        (32, {}),
        (2, {"verify": "after"}),
        (16, {"verify": "after"}),  # From about ratio 12 on, seals are most of the incompressible bytes.
        (2, {"block_size": 512}),
        (2, {"block_size": 1536}),
        (2, {"block_size": 128 * 1024}),
    ],
)
def test_zstd_reaches_the_ratio_within_three_percent(asked: float, settings: dict[str, Any], tmp_path: Path) -> None:
    data = written(tmp_path, compression_ratio=asked, **settings)
    for level in (1, 9):
        assert ratio(data, level=level) == pytest.approx(asked, rel=0.03), f"level {level}"
    if not settings:  # Unit of compression of btrfs and ZFS.
        assert ratio(data, unit=128 * 1024) == pytest.approx(asked, rel=0.03)
        assert duplicates(data) == 0


@pytest.mark.parametrize("asked", [0.1, 0.9])
def test_the_share_of_duplicates_is_found_by_comparing_blocks(asked: float, tmp_path: Path) -> None:
    data = written(tmp_path, duplicate_fraction=asked)
    assert duplicates(data) == pytest.approx(asked, abs=0.025)
    unique = b"".join(set(parts(data, 4096)))
    assert ratio(unique) == pytest.approx(1, rel=0.01), "what is no copy is incompressible"


def test_random_data_zeros_and_both_kinds_of_reduction_together(tmp_path: Path) -> None:
    data = written(tmp_path, block_size=128 * 1024)
    assert ratio(data, level=9) <= 1.0001
    assert len(set(parts(data, 512))) == FILE_BYTES // 512
    data = written(tmp_path, block_size=64 * 1024, compression_ratio=3, duplicate_fraction=0.4)
    assert duplicates(data) == pytest.approx(0.4, abs=0.025)
    assert ratio(b"".join(set(parts(data, 4096)))) == pytest.approx(3, rel=0.03)
    assert written(tmp_path, payload="zeros") == bytes(FILE_BYTES)
