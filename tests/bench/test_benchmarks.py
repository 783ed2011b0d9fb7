"""Benchmarks run by hand: what they import, their intervals, and that the papers' main points stay."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from engines import real_engine

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from shared import BenchError, median_ratio_of, ratio_of
from simulation_vs_published import davidovic_bandwidth, han_bandwidth, rows
from vs_rados_bench import Window, result_of

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("file", sorted(BENCH.glob("*.py")), ids=lambda file: file.stem)
def test_a_benchmark_finds_what_it_imports(file: Path) -> None:
    """A name that moved must not wait for the next time that somebody runs one."""
    spec = importlib.util.spec_from_file_location(f"bench_{file.stem}", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]


def test_what_slows_both_members_of_a_pair_cancels() -> None:
    speeds = [1.0, 0.3, 0.9, 0.5, 0.7]
    estimate = ratio_of([(150 * speed, 100 * speed) for speed in speeds], lambda iops: iops)
    assert estimate is not None
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(("pairs", "below"), [(5, None), (6, 1), (20, 6), (100, 40)])
def test_an_interval_of_the_sign_test_ends_at_the_ranks_of_its_table(pairs: int, below: int | None) -> None:
    """Conover, Practical Nonparametric Statistics: ranks for the median at 95 %."""
    estimate = median_ratio_of([(float(number), 1.0) for number in range(1, pairs + 1)], lambda rate: rate)
    assert estimate.value == (pairs + 1) / 2
    assert (estimate.low, estimate.high) == ((below, pairs + 1 - below) if below else (None, None))


@pytest.mark.parametrize(
    ("drives", "depth", "block_bytes"), [(1, 32, 131072), (1, 32, 4096), (1, 1, 4096), (3, 32, 65536)]
)
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.engine
def test_points_of_the_grid_stay_within_a_tenth(drives: int, depth: int, block_bytes: int, operation: str) -> None:
    wanted = [str(drives), operation, str(depth), str(block_bytes)]
    names = ("drives", "op", "queue_depth", "block_bytes")
    [row] = [row for row in rows("davidovic2019_raid0.csv") if [row[name] for name in names] == wanted]
    simulated = davidovic_bandwidth(real_engine(), drives, operation, depth, block_bytes) / 1e6
    assert simulated == pytest.approx(float(row["bandwidth_mb_s"]), rel=0.1)


@pytest.mark.engine
def test_two_drives_in_raid_0_read_as_published() -> None:
    simulated = han_bandwidth(real_engine(), "sim:p900*2,raid=0,chunk=512KiB", "read", "sequential")
    assert simulated == pytest.approx(5.1, rel=0.05)


PRINTED = """\
hints = 0
2026-11-24T06:30:00.000100+0000 Maintaining 16 concurrent writes of 4096 bytes to objects of size 4096 for up to 3 seconds
2026-11-24T06:30:00.000100+0000 Object prefix: benchmark_data_host_4711
2026-11-24T06:30:00.000200+0000   sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
2026-11-24T06:30:00.000200+0000     0       0         0         0         0         0           -           0
2026-11-24T06:30:01.000400+0000     1      16       500       484   1.89012   1.89062   0.0321114   0.0325121
2026-11-24T06:30:02.000600+0000     2      16       900       884   1.72618    1.5625   0.0398712   0.0359902
2026-11-24T06:30:03.040700+0000 Total time run:         3.0405
Total writes made:      1300
Write size:             4096
Object size:            4096
Bandwidth (MB/sec):     1.67
Average IOPS:           427
Average Latency(s):     0.0370
"""
"""In the layout of `rados bench --show-time` of Ceph 16; the numbers are made up."""


def test_the_first_second_is_not_counted() -> None:
    window = Window(pids=[1, 2], at_start=[0, 0], used=[816 * 40_000, 816 * 250_000])
    found = result_of(PRINTED, window)
    assert found.operations == 1300 - 484
    assert found.seconds == pytest.approx(3.0405 - 1.0002)
    assert found.in_flight == pytest.approx(1300 / 3.0405 * 0.037)
    assert (found.client_us, found.daemon_us) == pytest.approx((40, 250))


@pytest.mark.parametrize("lacking", ["Total time run", "     1      16"])
def test_output_that_lacks_a_value_is_an_error(lacking: str) -> None:
    text = "\n".join(line for line in PRINTED.splitlines() if lacking not in line)
    with pytest.raises(BenchError, match="rados bench printed no result"):
        result_of(text, Window(pids=[1, 2], at_start=[0, 0], used=[1, 1]))
