"""The expected model is the published one, and the work of requests is what can be counted by hand."""

from __future__ import annotations

import csv

import pytest

from iosonde.data import reference_file
from iosonde.features.arrays.performance import FEWEST, Work, expected, request

KIB = 1 << 10
CHUNK = 64 * KIB


def published() -> list[dict[str, str]]:
    with reference_file("han2021_expected_models.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", published(), ids=lambda row: row["raid_level"])
@pytest.mark.parametrize("devices", [4, 6, 8])
def test_the_model_is_that_of_the_publication(row: dict[str, str], devices: int) -> None:
    model = expected(row["raid_level"], devices)
    assert model is not None
    for name in ("capacity", "read", "write"):
        formula = row[name]
        value = eval(formula, {"N": devices, "c": 1, "r": 1, "w": 1})
        assert getattr(model, name) == pytest.approx(value), formula


def test_too_few_devices_have_no_model_and_two_copies_of_btrfs_that_of_raid_10() -> None:
    assert expected("raid1", 4, copies=2) == expected("raid10", 4)
    assert [expected(level, fewest - 1) for level, fewest in FEWEST.items()] == [None] * len(FEWEST)
    assert expected("raid50", 8) is None


def test_a_mix_takes_the_time_of_both() -> None:
    model = expected("raid5", 5)
    assert model is not None
    assert model.mixed(1) == 4 and model.mixed(0) == 1
    assert model.mixed(0.5) == pytest.approx(1 / (0.5 / 4 + 0.5 / 1))


def counted(work: Work) -> tuple[float, float]:
    return work.read_bytes, work.write_bytes


@pytest.mark.parametrize(
    ("level", "devices", "block", "expected_work"),
    [
        ("raid0", 4, 4 * KIB, (0, 1)),
        ("raid0", 4, 4 * CHUNK, (0, 1)),
        ("raid1", 3, 4 * KIB, (0, 3)),
        ("raid10", 4, 4 * KIB, (0, 2)),
        ("raid5", 5, 4 * KIB, (2, 2)),  # old data and parity, new data and parity
        ("raid6", 8, 4 * KIB, (3, 3)),
        ("raid5", 5, 4 * CHUNK, (0, 5 / 4)),  # a whole stripe
        ("raid6", 6, 4 * CHUNK, (0, 6 / 4)),
    ],
)
def test_a_write_costs_what_the_layout_requires(
    level: str, devices: int, block: int, expected_work: tuple[float, float]
) -> None:
    work = request(level, devices, CHUNK, block, writes=True)
    assert counted(work) == pytest.approx(expected_work)


def test_a_write_across_stripes_is_averaged_over_its_positions() -> None:
    """Two of three chunks: the first two read the third, the last two the first; else one chunk each of two stripes."""
    work = request("raid5", 4, CHUNK, 2 * CHUNK, writes=True)
    reads, writes = (1 + 4 + 1) / 3, (3 + 4 + 3) / 3
    assert counted(work) == pytest.approx((reads / 2, writes / 2))


def test_a_read_costs_itself_and_a_large_request_keeps_as_many_members_busy_as_it_has_chunks() -> None:
    for level, devices in (("raid0", 4), ("raid1", 2), ("raid10", 4), ("raid5", 4), ("raid6", 4)):
        work = request(level, devices, CHUNK, 4 * KIB, writes=False)
        assert (counted(work), work.members) == ((1, 0), 1)
    assert [request("raid0", 4, CHUNK, n * CHUNK, writes=False).members for n in (1, 2, 4, 8)] == [1, 2, 4, 4]


def test_merged_writes_are_whole_stripes() -> None:
    assert request("raid6", 8, CHUNK, 4 * KIB, writes=True, merged=True).bytes == pytest.approx(8 / 6)


@pytest.mark.parametrize(("level", "devices"), [("raid5", 3), ("raid5", 6), ("raid6", 4), ("raid6", 7)])
@pytest.mark.parametrize("block", [4 * KIB, 64 * KIB, 160 * KIB])
def test_partial_stripes_never_cost_less_than_whole_ones(level: str, devices: int, block: int) -> None:
    parities = 1 if level == "raid5" else 2
    work = request(level, devices, CHUNK, block, writes=True)
    assert work.write_bytes >= devices / (devices - parities) - 1e-9
    assert work.bytes <= 2 * (1 + parities) + 1e-9
    assert work.members <= devices
