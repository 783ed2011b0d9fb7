"""First accesses: penalties that simulated volumes have are recovered, and caches and drives without one have none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engines import real_engine
from loop_stacks import loop_devices
from test_limits_study import WITHOUT_LIMIT

from iosonde.execution.session import execute
from iosonde.features.rate_limits import credit_duration
from iosonde.features.rate_limits.known_limits import FirstTouch
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.questions import FirstTouchPenalty
from iosonde.features.rate_limits.series import Load, Region, Series
from iosonde.planning import expand, load
from iosonde.planning.procedure import conclusions
from iosonde.report.content import answer
from iosonde.report.material import gather
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

MIB = 1 << 20
SPAN = 256 * MIB
VOLUME = WITHOUT_LIMIT.replace("64MiB", "256MiB") + '[[limit]]\ncounts = "operations"\nrate = 2000\n'


def measured(target: str, directory: Path, **settings: str) -> ResultSet:
    given = {"span": "64MiB", "procedure.probe": "1s", "procedure.drain": "4s", **settings}
    return execute(expand(load("limits"), open_target(target), profile="quick", settings=given), directory)


def concluded(results: ResultSet) -> FirstTouch:
    [(_, found)] = conclusions(results)
    assert isinstance(found, LimitsConclusion) and found.found.first_touch
    return found.found.first_touch


@pytest.mark.engine
def test_the_penalty_of_a_simulated_volume_is_recovered(tmp_path: Path) -> None:
    path = tmp_path / "volume.toml"
    path.write_text(f'{VOLUME}\n[first_touch]\ntime = "3ms"\nregion = "256KiB"\n', encoding="utf-8")
    results = measured(f"sim:{path}", tmp_path / "set")
    found = concluded(results)
    assert found.verdict == "penalty", found.reason
    assert [each.is_slower for each in found.regions] == [True] * 3
    for region in found.regions:
        assert region.added_s == pytest.approx(0.003, rel=0.05)
    [material] = gather([results])
    sentences = [each.sentence for each in answer(material, material.sources[0]).findings]
    assert any(each.startswith("First-touch penalty: the first read of a block takes") for each in sentences)


@pytest.mark.engine
def test_no_penalty_is_named_on_a_drive_without_one(tmp_path: Path) -> None:
    found = concluded(measured("sim:x25m,capacity=1GiB", tmp_path / "set", **{"procedure.total": "12s"}))
    assert found.verdict == "none", found.reason
    assert 0 <= found.bound_s < 100e-6


@pytest.mark.system
@pytest.mark.needs("loop devices")
def test_no_block_of_a_device_is_written_before_its_first_accesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    settings = {"span": "8MiB", "procedure.total": "20s", "procedure.probe": "1s", "procedure.drain": "1s"}
    with loop_devices(tmp_path, 32 * MIB) as [device]:
        plan = expand(load("limits"), open_target(str(device)), profile="quick", settings=settings)
        results = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device),)))
    written = [record.result["layout"]["written_bytes"] for record in results.records() if record.result]
    # In 20 s a busy machine does fewer.
    assert written and not any(written[:9]), "three passes over three regions"
    assert written[9:10] in ([], [8 * MIB]) and not any(written[10:]), "then the load of the other stages"


def passes(latency_s: Callable[[int, int], float], count: int = 4) -> credit_duration.Passes:
    """Passes over the regions of a span, from a function of the number of the pass and of the region."""
    noise = random.Random(1)
    load = Load(queue_depth=16)

    def series(number: int, place: int) -> Series:
        latencies = tuple(latency_s(number, place) * (1 + abs(noise.gauss(0, 0.1))) for _ in range(10))
        tenths = {"seconds": (0.1,) * 10, "reads": (5.0,) * 10, "writes": (0.0,) * 10}
        return Series(load=load, idle_s=0.5, latencies_s=latencies, **tenths)

    chosen = credit_duration.regions(SPAN, load.block_size)
    return {region: [series(n, place) for n in range(1, count + 1)] for place, region in enumerate(chosen, start=1)}


def test_regions_are_apart_and_hold_a_pass_without_repeats() -> None:
    found = credit_duration.regions(8 << 30, 4096)
    assert [each.stride for each in found] == [4 * MIB] * 3
    assert all(each.bytes // each.stride > credit_duration.RATE * credit_duration.SECONDS for each in found)
    assert all(one.offset + one.bytes <= other.offset for one, other in itertools.pairwise(found))
    assert found[-1].offset + found[-1].bytes <= 8 << 30
    assert credit_duration.regions(64 * 1024, 4096) == ()
    assert Region(offset=0, bytes=52 * 4096, stride=4096) == credit_duration.regions(52 * 3 * 4096, 4096)[0]


@pytest.mark.parametrize(
    ("fast_in", "between", "count", "verdict"),
    [
        ((2, 3), 2 * SPAN, 4, "cache"),  # Other accesses evict it.
        ((2, 3, 4), SPAN // 2, 4, "undecided"),  # A cache of that size would explain it, too.
        ((2, 3, 4), 2 * SPAN, 4, "penalty"),
        ((2, 3), 2 * SPAN, 3, "undecided"),  # Without a last access.
        ((1, 2, 3, 4), 0, 4, "none"),
    ],
)
def test_a_penalty_in_one_region_is_stated_for_it_and_distinguished_from_a_read_cache(
    fast_in: tuple[int, ...], between: int, count: int, verdict: str
) -> None:
    measured = passes(lambda number, place: 0.0005 if number in fast_in or place != 2 else 0.005, count=count)
    found = credit_duration.judge(measured, between=between, span=SPAN)
    assert found.verdict == verdict
    if verdict == "penalty":
        assert [each.is_slower for each in found.regions] == [False, True, False]
        assert found.regions[1].added_s == pytest.approx(0.0045, rel=0.1)
    assert verdict != "none" or 0 < found.bound_s < 0.0002


def test_a_busy_machine_is_no_penalty() -> None:
    """Latencies of an unlimited loop device while compilers kept both cores busy, in milliseconds."""
    seen = [(3.4, 1.2, 0.7, 2.0), (0.9, 1.6, 0.5, 1.8), (0.8, 0.6, 0.3, 0.6)]
    busy = passes(lambda number, place: seen[place - 1][number - 1] / 1000)
    found = credit_duration.judge(busy, between=2 * SPAN, span=SPAN)
    assert found.verdict == "none"
    assert found.bound_s > 0.002, "no claim beyond what such a machine shows"
    slow = passes(lambda number, place: 0.004 if number == 1 else 0.0005)
    assert credit_duration.judge(slow, between=2 * SPAN, span=SPAN).verdict == "penalty"
    slow_again = passes(lambda number, place: {1: 0.005, 2: 0.0005, 3: 0.0005}.get(number, 0.003))
    for each in (slow, slow_again):
        disturbed = {region: [replace(one, is_disturbed=True) for one in found] for region, found in each.items()}
        found = credit_duration.judge(disturbed, between=2 * SPAN, span=SPAN)
        assert found.verdict == "undecided"
        stated = FirstTouchPenalty(found=found, operation="read", strength="moderate", case_ids=())
        assert stated.sentence.startswith("Not decided whether there is a first-touch penalty")
    assert not any(each.is_slower for each in found.regions)
