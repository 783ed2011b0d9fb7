"""The statistics of a fleet: error rates in small groups, masking, and both kinds of findings in computed fleets."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fleet_samples import P99, fleet

from iosonde.collections.fleet import drives, report
from iosonde.collections.fleet.drives import drive_deviation, excess_p_values, fleets, group_deviation, holm, reference
from iosonde.collections.fleet.report import Chapter, FleetReport, collect, document
from iosonde.collections.library.indexing import Index
from iosonde.collections.library.summary import Summary

pytestmark = pytest.mark.unit


def chapter(summaries: list[Summary]) -> Chapter:
    [found] = fleets(summaries)
    return Chapter(fleet=found)


@pytest.mark.parametrize("count", [4, 24])
def test_p_values_of_equal_drives_are_uniform_in_small_groups(count: int) -> None:
    """With the normal distribution in place of the exact one, 5 % would be up to 30 % in groups of four."""
    random, p_values = np.random.default_rng(3), []
    for _ in range(960 // count):
        logs = random.normal(10, 0.02, count)
        for place in range(count):
            others = reference(np.delete(logs, place))
            p_values.append(drive_deviation(logs[place], others, run_variance=0, runs=1).p_value)
    found = np.array(p_values)
    for level in (0.2, 0.05):
        # Drives of a group are not independent, so the error of the share is up to twice that of as many coin flips.
        assert (found < level).mean() == pytest.approx(level, abs=8 * math.sqrt(level * (1 - level) / len(found)))


def test_the_median_of_a_group_is_compared_with_its_own_error() -> None:
    random, p_values = np.random.default_rng(4), []
    for _ in range(300):
        p_values.append(group_deviation(random.normal(0, 0.02, 5), reference(random.normal(0, 0.02, 12))).p_value)
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.05)


def test_an_interval_covers_the_difference_of_the_drive_from_the_median_of_all() -> None:
    """The repeats of the drive vary as in a fleet: its own variance is estimated from three runs."""
    random, covered = np.random.default_rng(6), 0
    for _ in range(400):
        runs = random.normal(0.1, 0.01, 3)
        others = reference(random.normal(0, 0.02, 20))
        found = drive_deviation(float(runs.mean()), others, run_variance=float(runs.var(ddof=1)), runs=3)
        low, high = found.interval or (2, 0)
        covered += low <= math.exp(0.1) <= high
    assert 365 <= covered <= 395


def test_three_bad_drives_of_ten_do_not_hide_each_other() -> None:
    """Mean and standard deviation would: the largest deviation of ten values with three outliers is below 2 of them."""
    logs = [0.0, 0.01, -0.01, 0.005, -0.005, 0.002, -0.002, 0.4, 0.41, 0.42]
    found = [
        drive_deviation(value, reference(logs[:place] + logs[place + 1 :]), run_variance=1e-6, runs=3).p_value
        for place, value in enumerate(logs)
    ]
    assert max(found[7:]) < 0.01 < min(found[:7])


@pytest.mark.parametrize("rate", [0.3, 8.0])
def test_p_values_of_drives_that_stall_equally_often_are_not_too_small(rate: float) -> None:
    random, p_values = np.random.default_rng(16), []
    for _ in range(300):
        counts = list(map(int, random.poisson(rate, 12)))
        p_values += excess_p_values(counts, [sum(counts) / 12] * 12)
    for level in (0.05, 0.01, 0.001):
        assert (np.array(p_values) <= level).mean() <= level


def test_stalls_are_compared_with_what_the_loads_of_a_drive_make_likely() -> None:
    """By hand: three of three stalls on one of twelve drives, and a drive with half of the measured time."""
    assert excess_p_values([3, *[0] * 11], [3 / 12] * 12)[0] == pytest.approx(1 / 12**3)
    assert excess_p_values([3, 1, 1, 1], [3, 1, 1, 1])[0] == pytest.approx(0.65625)
    assert excess_p_values([0, 0, 0, 0], [0.0] * 4) == [1.0] * 4


def test_corrections_and_edge_cases_of_the_statistics() -> None:
    """Holm's example as published; groups of thousands; and simulated drives that agree to the last digit."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    of_many = reference(np.random.default_rng(5).normal(0, 0.02, 5000))
    assert of_many.count == drives.MOST_OTHERS and of_many.deviation == pytest.approx(0.02, rel=0.2)
    found = drive_deviation(0.0, reference([0.0] * 5), run_variance=0.0, runs=3)
    assert found.p_value > 0.5 and found.interval == pytest.approx((1, 1), abs=1e-5)


def test_a_slow_drive_and_another_firmware_are_named_among_a_hundred() -> None:
    found = chapter(fleet(100, seed=7, slower={31: 1.12}, firmware={77: "1.1"}))
    drives = {each.drive.summary.path for each in found.fleet.named if each.drive}
    assert drives == {"slot-31"}
    worst = next(each for each in found.fleet.named if each.drive)
    assert worst.cell[1] == P99 and worst.group.firmware == "1.0" and worst.count == 98
    low, high = worst.deviation.interval or (0, 0)
    assert low < 1.12 < high and high - low < 0.1
    [slow, firmware, single] = found.answer
    assert slow.startswith("slot-31 (serial 0000001f…): p99 completion latency is 1")
    assert "98 other drives of EXAMPLE SSD, firmware 1.0 (95 % CI" in slow
    assert firmware.startswith("slot-77 (serial 0000004d…): firmware 1.1, and 99 drives have 1.0; none of 4 values")
    assert single.startswith("slot-77") and "not compared" in single


def test_a_drive_that_stalls_rarely_is_named_although_its_percentiles_do_not_differ() -> None:
    found = chapter(fleet(12, seed=17, stalls=0.2, more_stalls={5: 12}))
    [answer] = found.answer
    assert (
        answer.startswith("slot-5 (serial 00000005…): 1") and " stalls in 180 intervals (I/Os of at least 10" in answer
    )
    assert "the longest 50 ms); " in answer and " in 1,980 on 11 other drives of EXAMPLE SSD, firmware 1.0" in answer
    [first, *_] = [each.stalls for each in found.fleet.named]
    assert first and first.count >= 6 and first.others_count <= 6
    [table] = [each for each in found.tables if each.title == "Named differences"]
    assert table.rows[0][2].text in ("Stalls, 10 times p99", "Stalls, 100 times p99")
    [drives] = [each for each in found.tables if each.title == "Drives"]
    longest = {row[0].text[:6]: row[6].text for row in drives.rows}
    assert longest["slot-5"] == "50 ms" and "400 µs" in longest.values()


def test_drives_that_stall_equally_often_give_no_name() -> None:
    found = chapter(fleet(24, seed=18, stalls=5))
    assert found.answer == ["No drive of 24 that were compared differs from the others of its group"]
    assert {each.stalls.factor for each in found.fleet.comparisons if each.stalls} == {10, 100}


def test_a_firmware_that_changes_a_value_is_stated_with_its_effect() -> None:
    of_new = {number: 0.85 for number in range(12)}
    found = chapter(fleet(40, seed=8, slower=of_new, firmware={number: "2.0" for number in of_new}))
    [sentence] = [each for each in found.answer if "firmware 2.0, and" in each]
    assert "and 9 more drives: firmware 2.0, and 28 drives have 1.0; p99 completion latency is 1" in sentence
    assert "lower" in sentence
    assert not [each for each in found.fleet.named if each.drive]


def test_equal_drives_give_no_name() -> None:
    found = chapter(fleet(60, seed=9))
    assert found.answer == ["No drive of 60 that were compared differs from the others of its group"]
    assert len(found.fleet.comparisons) == 60 * 4
    few = chapter(fleet(3, seed=10, slower={0: 3.0}))
    assert not few.fleet.comparisons
    assert [each.partition(": ")[2][:12] for each in few.answer] == ["not compared"]


def test_a_value_that_follows_age_is_stated() -> None:
    hours = [1000 * number for number in range(30)]
    aged = {number: 1 + 0.004 * number for number in range(30)}
    found = chapter(fleet(30, seed=11, slower=aged, hours=hours))
    assert any("rises with power-on hours of 30 drives" in each for each in found.answer)


def test_values_that_cannot_be_compared_are_excluded_and_counted() -> None:
    drives = fleet(6, seed=12)
    served = [each.model_copy(update={"verdict": "cache-served"}) for each in drives[0].cells]
    drives[0] = drives[0].model_copy(update={"cells": served})
    drives[1] = drives[1].model_copy(update={"parameters": dict.fromkeys(drives[1].parameters, "other")})
    found = chapter(drives)
    assert found.fleet.excluded == [
        "4 values excluded: other parameters than on most drives",
        "4 values excluded: runs are cache-served",
    ]
    assert any("slot-0 (serial 00000000…) and slot-1" in each and "no usable value" in each for each in found.answer)


def test_the_newest_session_of_a_drive_counts() -> None:
    old, new = fleet(5, seed=13), fleet(5, seed=14)
    later = "2026-02-01T00:00:00+00:00"
    again = [each.model_copy(update={"path": f"later/{each.path}", "started_at": later}) for each in new]
    [found] = fleets([*again, *old])
    assert [each.summary.path for each in found.drives] == [f"later/slot-{number}" for number in range(5)]


def test_the_page_and_markdown_have_every_sentence_and_names_are_text() -> None:
    drives = fleet(12, seed=15, slower={3: 1.5}, model="<b>SSD</b>")
    found = {"chapters": [chapter(drives)], "notes": ["a & b share a port"], "problems": []}
    content = FleetReport(root=Path("/fleet"), missing={"slot-9": "host <b>north</b> was lost"}, **found)  # type: ignore[arg-type]
    html = report.html(content)
    assert "<b>" not in html and "&lt;b&gt;SSD" in html
    assert html.count('class="named"') == 2 and "a &amp; b share a port" in html
    markdown = "\n".join(report.markdown(content))
    for text in (html, markdown):
        assert "1 target without a complete run" in text and "slot-9: host" in text
        assert "slot-3 (serial 00000003…)" in text and "comparisons, adjusted together (Holm)" in text
    assert "<b>" not in markdown
    index = Index(root=Path("/fleet"), summaries=drives, problems=[])
    [study] = document(collect(Path("/fleet"), index))["studies"]  # type: ignore[misc]
    assert ({each["drive"] for each in study["named"]}, study["comparisons"]) == ({"slot-3"}, 48)
