"""Simulated compared with published values: how errors are summed, and that the papers' main points stay where they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from engines import real_engine

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from published import davidovic2019, han2021
from published.points import Point, rows, summary


def test_errors_are_summed_up() -> None:
    simulated = [90.0, 100.0, 102.0, 105.0, 300.0]
    points = [Point(where=f"at {value:g}", published=100, simulated=value) for value in simulated]
    assert summary("all", points) == [
        *("all", "5", "+2%", "5%", "200%", "+200%"),
        "at 300: 100 published, 300 simulated",
    ]


def test_a_point_next_to_half_its_queue_depth() -> None:
    def point(depth: int, published: float, simulated: float) -> davidovic2019.GridPoint:
        return davidovic2019.GridPoint(
            where=f"depth {depth}",
            published=published,
            simulated=simulated,
            drives=1,
            operation="read",
            queue_depth=depth,
            block_bytes=4096,
        )

    lines = davidovic2019.halved([point(1, 50, 50), point(2, 50, 100), point(10, 300, 290)])
    assert [(each.where, each.published, each.simulated) for each in lines] == [("depth 2", 50, 50)]


@pytest.mark.parametrize(
    ("drives", "depth", "block_bytes"), [(1, 32, 131072), (1, 32, 4096), (1, 1, 4096), (3, 32, 65536)]
)
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.engine
def test_points_of_the_grid_stay_within_a_tenth(drives: int, depth: int, block_bytes: int, operation: str) -> None:
    wanted = (str(drives), operation, str(depth), str(block_bytes))
    (published,) = (
        float(row["bandwidth_mb_s"])
        for row in rows("davidovic2019_raid0.csv")
        if (row["drives"], row["op"], row["queue_depth"], row["block_bytes"]) == wanted
    )
    simulated = davidovic2019.bandwidth(real_engine(), drives, operation, depth, block_bytes) / 1e6
    assert simulated == pytest.approx(published, rel=0.1)


@pytest.mark.engine
def test_two_drives_in_raid_0_read_as_published() -> None:
    simulated = han2021.bandwidth(real_engine(), "sim:p900*2,raid=0,chunk=512KiB", "read", "sequential")
    assert simulated == pytest.approx(5.1, rel=0.05)
