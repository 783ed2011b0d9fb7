"""Parsing of the output of `rados bench` by the comparison."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from vs_rados_bench import BenchError, Window, result_of

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


@pytest.mark.parametrize("lacking", ["Total time run", "Total writes made", "Average Latency(s)", "     1      16"])
def test_output_that_lacks_a_value_is_an_error(lacking: str) -> None:
    text = "\n".join(line for line in PRINTED.splitlines() if lacking not in line)
    with pytest.raises(BenchError, match="rados bench printed no result"):
        result_of(text, Window(pids=[1, 2], at_start=[0, 0], used=[1, 1]))
