"""Comparison of volumes: models with known limits, and the study `shared-limits` on simulated volumes."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from test_limits_study import WITHOUT_LIMIT
from volume_models import series_of

from iosonde.errors import StudyError, TargetError
from iosonde.execution.session import execute, resume
from iosonde.features.rate_limits.report import shared_rates, tables
from iosonde.features.rate_limits.series import Load, Series, Stage
from iosonde.features.rate_limits.sharing import Bounds, Sharing, SharingConclusion, compare
from iosonde.planning import expand, load
from iosonde.planning.procedure import conclusions
from iosonde.report.content import answer
from iosonde.report.material import gather
from iosonde.storage import open_target

BOUNDS = Bounds(probe_s=5, drain_s=60, total_s=600)


@dataclass
class Volumes:
    """Volumes with rates of their own, and rates that groups of them share; all by default."""

    own: tuple[float, ...]
    common: float
    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3, 4, 5, 6, 7),)
    """Each has the common rate."""
    noise: float = 0.002
    """Of the common rate in 0.1 s."""
    own_noise: float = 0.002
    by_depth: float = 0.0
    """Share of the common rate that a quarter of the queue depth loses."""
    is_harness_limited: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def serve(self, stage: Stage) -> list[Series]:
        bins = round(stage.seconds / 0.1)
        counts: list[list[float]] = [[] for _ in stage.volumes]
        carries = [0.0] * len(counts)
        common = self.common * (1 - self.by_depth * (stage.load.queue_depth < 64))
        for _ in range(bins):
            wanted = {each: self.own[each] * (1 + self.random.gauss(0, self.own_noise)) for each in stage.volumes}
            share = dict.fromkeys(wanted, 1.0)
            for group in self.groups:
                loaded = [each for each in group if each in wanted]
                limit = common * (1 + self.random.gauss(0, self.noise))
                share |= dict.fromkeys(loaded, min(1.0, limit / max(sum(wanted[each] for each in loaded), 1)))
            for place, (volume, each) in enumerate(wanted.items()):
                exact = 0.1 * share[volume] * each + carries[place]
                counts[place].append(float(int(exact)))
                carries[place] = exact - int(exact)
        is_limited = self.is_harness_limited and len(counts) > 1
        return [replace(series_of(stage, 0.5, 0.1, each), is_harness_limited=is_limited) for each in counts]


def compared(model: Volumes, *, block_size: int = 4096) -> Sharing:
    """Answer all stages from a model."""
    stages = compare(Load(block_size=block_size), BOUNDS, len(model.own))
    try:
        stage = next(stages)
        while True:
            stage = stages.send(model.serve(stage))
    except StopIteration as end:
        found: Sharing = end.value
        return found


def test_a_limit_that_all_volumes_share_is_named_and_no_other_one() -> None:
    """Random sets of volumes: one budget, a further limit above that of each volume, separate limits, and a device."""
    rng = random.Random(7)
    outcomes: dict[str, list[int]] = {}
    for seed in range(30):
        kind = rng.choice(["one budget", "further limit", "separate"])
        first = 10 ** rng.uniform(2.5, 4.2)
        own = (first, *(first * rng.uniform(0.3, 1) for _ in range(rng.choice([1, 1, 2, 3, 7]))))
        if seed % 2:
            common, noise = rng.uniform(0.5, 0.9) * sum(own), rng.uniform(0.03, 0.2)
            assert compared(Volumes(own, common, noise=noise, own_noise=0.02, seed=seed)).verdict != "shared", seed
        common = {
            "one budget": 0.9 * min(own),
            "further limit": rng.uniform(1.07, 1.18) * max(own),
            "separate": 1.5 * sum(own),
        }[kind]
        found = compared(Volumes(own, common, noise=rng.uniform(0, 0.004), own_noise=rng.uniform(0, 0.004), seed=seed))
        expected = "separate" if kind == "separate" else "shared"
        outcomes.setdefault(found.verdict if found.verdict in (expected, "undecided") else "wrong", []).append(seed)
        if found.verdict == "shared":
            assert found.sum and found.sum.value == pytest.approx(common, rel=0.02)
            assert found.is_further_limit is (common > 1.04 * max(own))
    assert "wrong" not in outcomes
    assert len(outcomes.get("undecided", ())) <= 3


@pytest.mark.parametrize(
    ("own", "groups", "among"),
    [
        ((1000.0, 1000.0, 700.0), ((0, 1),), "1, 2;"),
        ((1000.0, 900.0, 1000.0, 800.0), ((0, 2), (1, 3)), "1, 3 and among 2, 4;"),
        ((1000.0, 900.0, 20.0), ((0, 1),), "1, 2;"),
    ],
    ids=["a pair and another", "two pairs", "a pair and a slow one"],
)
def test_a_limit_of_a_part_of_the_volumes_is_not_called_that_of_all(
    own: tuple[float, ...], groups: tuple[tuple[int, ...], ...], among: str
) -> None:
    for seed in range(3):
        found = compared(Volumes(own, 1000, groups, seed=seed))
        assert found.verdict == "undecided"
        assert f"raises other rates only among volumes {among}" in found.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_harness_limited": True}, "the harness was the limit"),
        ({"by_depth": 0.2}, "depends on the queue depth"),
        ({"noise": 0.1}, "the sum varies by"),
        ({"own": (1000.0, 1000.0), "common": 1930.0}, "lose only"),
        ({"own": (90_000.0, 90_000.0), "common": 120_000.0}, "so high"),
    ],
)
def test_it_is_not_decided_where_something_else_explains_the_lower_sum(changes: dict[str, Any], reason: str) -> None:
    found = compared(Volumes(**{"own": (1000.0, 1000.0), "common": 1000.0, **changes}))
    assert found.verdict == "undecided" and reason in found.reason


def test_a_stage_in_which_the_rate_drops_is_extended() -> None:
    """Credits of the first volume last 4 s: its rate is that of the following, longer stage."""
    stages = compare(Load(), BOUNDS, 2)
    stage = next(stages)
    burst = Series(load=Load(), idle_s=0, seconds=(0.1,) * 50, reads=(300.0,) * 40 + (100.0,) * 10, writes=(0.0,) * 50)
    again = stages.send([burst])
    assert (again.name, again.seconds) == (stage.name, 2 * stage.seconds)


def model(directory: Path, shared_by: str, *, volumes: int = 2) -> str:
    limit = f'[[limit]]\ncounts = "operations"\nrate = 1000\nshared_by = "{shared_by}"\n'
    path = directory / f"{shared_by}.toml"
    path.write_text(WITHOUT_LIMIT + limit)
    return f"sim:{path}*{volumes}"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("shared_by", "volumes", "verdict", "stages"),
    [("machine", 2, "shared", 7), ("volume", 3, "separate", 8)],
)
def test_simulated_volumes_with_one_bucket_and_with_their_own(
    shared_by: str, volumes: int, verdict: str, stages: int, tmp_path: Path
) -> None:
    settings = {"span": "32MiB", "procedure.probe": "3s"}
    target = open_target(model(tmp_path, shared_by, volumes=volumes))
    plan = expand(load("shared-limits"), target, profile="quick", settings=settings)
    results = execute(plan, tmp_path / "set")
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, SharingConclusion)
    found = conclusion.found
    assert found.verdict == verdict
    assert [each.value for each in found.alone] == pytest.approx([1000] * volumes, rel=0.02)
    assert found.sum and found.sum.value == pytest.approx(1000 if verdict == "shared" else 1000 * volumes, rel=0.02)
    assert len(results.records()) == stages
    [(_, again)] = conclusions(resume(tmp_path / "set"))
    assert isinstance(again, SharingConclusion) and again.found == found
    [material] = gather([results])
    [first, *_] = answer(material, material.sources[0]).findings
    assert (first.kind, first.strength) == ("limit of volumes", "strong")
    [table] = tables(material)
    assert table.rows[-1][1].text == verdict
    [figure] = shared_rates(material, 1)
    drawn = {series: rows["y"] for [series], rows in figure.rows.group_by("series")}
    assert set(drawn) == {*(f"volume {each + 1}" for each in range(volumes)), "sum", "identified rule"}
    assert drawn["identified rule"].max() == pytest.approx(drawn["sum"].max(), rel=0.04)
    assert len(drawn["identified rule"]) == 2 * stages, "both ends of each stage"


@pytest.mark.parametrize(
    ("volumes", "settings", "message"),
    [
        (1, {}, "requires 2 to 8 devices; got"),
        (9, {}, "requires 2 to 8 devices; got"),
        (2, {"span": "65MiB"}, "too small"),
        (2, {"files": "shared"}, 'requires `files = "per_device"`'),
        (2, {"queue_depth": "2"}, "requires a single `queue_depth` of at least 4"),
        (2, {"procedure.probe": "1min"}, "`probe` must be at least 1 s"),
    ],
)
def test_an_impossible_comparison_is_refused(
    volumes: int, settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    target = open_target(model(tmp_path, "volume", volumes=volumes).removesuffix("*1"))
    with pytest.raises((StudyError, TargetError), match=message):
        expand(load("shared-limits"), target, profile="quick", settings={"span": "16MiB", **settings})
