"""Time for which results of a burst hold: stated by qualifications and suites, by the published rule or as observed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iosonde.features.simulated_drives.model import models
from iosonde.report.content.answers import answer
from iosonde.report.material.result_sets import gather
from iosonde.results import ResultSet

APPLICATION = """
name = "qualify-reads"
title = "Reads"
question = "Is it fast enough?"
repeats = 1
device_state = "unknown"

[measurement]
access = "random"
block_size = "4KiB"
read_fraction = 1.0
queue_depth = 32
span = "1GiB"
ramp = 0
interval = "1s"

[[parts]]
name = "reads"
title = "Reads"

[profiles.standard]

[[requirement]]
name = "reads/s"
part = "reads"
holds = "read.iops >= 50 IOPS"
level = "required"
means = "Answers are slow."
[requirement.source]
title = "Manual"
publisher = "Example"
version = "1.0"
"""
SUITE = """
name = "reads"
title = "Reads"
question = "How fast?"

[[entries]]
name = "reads"
study = "quick"
title = "Reads"
settings = { queue_depth = "64", operation = "read" }
repeats = 1
values = [{ part = "random", metric = "iops", title = "random reads" }]
"""

pytestmark = pytest.mark.engine


@pytest.fixture
def qualified(tmp_path: Path, iosonde: Callable[..., Any]) -> Callable[..., tuple[str, list[Any]]]:
    """Terminal output and findings of a qualification."""

    def qualify(target: str, *options: str) -> tuple[str, list[Any]]:
        application = tmp_path / "reads.toml"
        application.write_text(APPLICATION, encoding="utf-8")
        done = iosonde("qualify", str(application), "--target", target, *options, "--output", str(tmp_path / "set"))
        assert done.returncode == 0, done.stderr
        [material] = gather([ResultSet.open(tmp_path / "set")])
        found = answer(material, material.sources[0]).findings
        return " ".join(done.stdout.split()), [each for each in found if each.kind in ("credit duration", "burst end")]

    return qualify


def volume_of(tmp_path: Path, limit: str) -> str:
    """A volume of no known type."""
    text = models()["gp2-100g"].read_text(encoding="utf-8").replace("Amazon EBS gp2", "Volume")
    path = tmp_path / "volume.toml"
    path.write_text(text.partition("[[limit]]")[0] + limit, encoding="utf-8")
    return f"sim:{path}"


def test_qualify_states_how_long_credits_last_at_the_burst_rate(qualified: Callable[..., Any]) -> None:
    stdout, [found] = qualified("sim:gp2-100g", "--duration", "20s", "--every", "10s")
    assert found.kind == "credit duration"
    assert (found.spending.limit.volume, found.spending.seconds) == ("gp2", pytest.approx(2000, rel=0.01))
    assert "the credits of Amazon EBS gp2 with 100 GiB last 33 min 20 s, then the rate drops to 300 IOPS" in stdout


@pytest.mark.parametrize(("rate", "seconds"), [(1000, 7714), (250, None)])
def test_a_load_below_the_burst_rate_spends_credits_for_longer_or_not_at_all(
    qualified: Callable[..., Any], rate: int, seconds: float | None
) -> None:
    """1,000 reads/s exceed the sustained 300 by 700: 5.4 million credits last for 7,714 s."""
    _, found = qualified("sim:gp2-100g", "--time-limit", "20s", "--set", "arrival=constant", "--set", f"rate={rate}")
    assert [each.spending.seconds for each in found] == ([pytest.approx(seconds, rel=0.02)] if seconds else [])


def test_a_burst_of_an_unknown_volume_is_stated_as_observed_over_windows(
    qualified: Callable[..., Any], tmp_path: Path
) -> None:
    """26,000 credits at 2,000 a second more than come in: the drop is in the second window of 12 s."""
    target = volume_of(tmp_path, '[[limit]]\ncounts = "operations"\nrate = 500\nburst_rate = 2500\nbucket = 26_000\n')
    stdout, [found] = qualified(target, "--duration", "24s", "--every", "12s")
    assert found.kind == "burst end"
    assert (found.before, found.after) == (pytest.approx(2500, rel=0.01), pytest.approx(500, rel=0.01))
    assert (found.seconds, found.runs) == (pytest.approx(13, abs=0.5), 2)
    assert "2,500 IOPS lasted 13 s at this load, then the rate dropped to 500 IOPS" in stdout


def test_a_suite_states_how_long_credits_last(tmp_path: Path, iosonde: Callable[..., Any]) -> None:
    suite = tmp_path / "reads.toml"
    suite.write_text(SUITE, encoding="utf-8")
    options = ("--target", "sim:gp2-100g", "--profile", "quick", "--output", str(tmp_path / "suite"))
    done = iosonde("suite", str(suite), *options)
    assert done.returncode == 0, done.stderr
    page = " ".join((tmp_path / "suite" / "report.html").read_text().split())
    assert (
        "3 of 3 cases spend the credits of Amazon EBS gp2 with 100 GiB: they last 33 min 20 s at the heaviest" in page
    )
