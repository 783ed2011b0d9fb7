"""Latency that a limiter adds: queued, paced and batched limiters, models and the kernel's throttle."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from test_limits_study import VOLUME

from iosonde.execution import execute
from iosonde.features.rate_limits.limiter import judge
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.series import Load, Series
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.report.content.answers import answer
from iosonde.report.material.result_sets import gather
from iosonde.storage import open_target

RATE = 1000.0
SECONDS = 5


def series(latencies: list[float], *, seconds: float = SECONDS) -> Series:
    return Series(
        load=Load(queue_depth=1),
        idle_s=0,
        seconds=(seconds,),
        reads=(float(len(latencies)),),
        writes=(0.0,),
        distribution=tuple((each, 1.0) for each in latencies),
    )


def device(rng: random.Random, spread: float = 0.1) -> float:
    return 0.0002 * rng.uniform(1 - spread, 1 + spread)


def queued(rng: random.Random) -> list[float]:
    """Each I/O passes 1 ms after the one before, and takes the device's latency from then."""
    done = [number / RATE + device(rng) for number in range(round(SECONDS * RATE))]
    return [after - before for before, after in zip(done, [*done[1:], done[-1] + 1 / RATE], strict=True)]


def paced(rng: random.Random) -> list[float]:
    return [1 / RATE] * round(SECONDS * RATE)


def batched(rng: random.Random) -> list[float]:
    """100 I/Os in each slice of 0.1 s, at the device's latency; the last one waits for the next slice."""
    found: list[float] = []
    for _ in range(10 * SECONDS):
        slice_s = [device(rng) for _ in range(99)]
        found += [*slice_s, 0.1 - sum(slice_s)]
    return found


@pytest.mark.parametrize(("model", "style"), [(queued, "queued"), (paced, "paced"), (batched, "batched")])
def test_each_kind_of_limiter_is_recognised(model: Callable[[random.Random], list[float]], style: str) -> None:
    rng = random.Random(3)
    found = judge(series(model(rng)), series([device(rng) for _ in range(300)]), RATE)
    assert found and found.style == style
    if style == "batched":
        assert found.wait_s == pytest.approx(0.08, rel=0.01)
        assert found.waiting == pytest.approx(0.01, rel=0.01)


def test_it_is_not_decided_where_the_latencies_do_not_show_it() -> None:
    rng = random.Random(4)
    below = series([device(rng) for _ in range(300)])
    slow = series([1.2 / RATE] * round(SECONDS * RATE / 1.2))
    undecided = judge(slow, below, RATE)
    assert undecided and (undecided.style, undecided.reason) == (
        "undecided",
        "a queue depth of 1 reaches 83 % of the limit",
    )
    constant = judge(series(paced(rng)), series([0.0002] * 300), RATE)
    assert constant and constant.style == "undecided"
    assert judge(series([]), below, RATE) is None


@pytest.mark.engine
@pytest.mark.parametrize("style", ["queue", "paced"])
def test_both_styles_of_simulated_limits_are_distinguished(style: str, tmp_path: Path) -> None:
    limit = f'[[limit]]\ncounts = "operations"\nrate = 1000\nstyle = "{style}"\n'
    (tmp_path / "volume.toml").write_text(f"{VOLUME.partition('[[limit]]')[0]}{limit}")
    settings = {"span": "32MiB", "procedure.probe": "1s", "procedure.drain": "8s", "procedure.total": "60s"}
    plan = expand(load("limits"), open_target(f"sim:{tmp_path}/volume.toml"), profile="quick", settings=settings)
    results = execute(plan, tmp_path / "set")
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    found = conclusion.found.limiter
    assert found and found.style == {"queue": "queued", "paced": "paced"}[style]
    assert found.interval_s[1] == pytest.approx(0.001, rel=0.02)
    [material] = gather([results])
    assert "limiter latency" in [each.kind for each in answer(material, material.sources[0]).findings]
