"""Time for which results of a burst hold: stated by qualifications, by the published rule or as observed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_limit_warnings import STUDY

from iosonde.features.simulated_drives.model import models
from iosonde.report.content import answer
from iosonde.report.material import gather
from iosonde.results import ResultSet

REQUIREMENT = """
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
pytestmark = pytest.mark.engine


@pytest.fixture
def qualified(tmp_path: Path, iosonde: Callable[..., Any]) -> Callable[..., tuple[str, list[Any]]]:
    """Terminal output and findings of a qualification."""

    def qualify(target: str, *options: str) -> tuple[str, list[Any]]:
        application = tmp_path / "reads.toml"
        application.write_text(f'pass_after = "20s"\n{STUDY.format(depth=32)}{REQUIREMENT}', encoding="utf-8")
        done = iosonde("qualify", str(application), "--target", target, *options, "--output", str(tmp_path / "set"))
        assert done.returncode == 0, done.stderr
        [material] = gather([ResultSet.open(tmp_path / "set")])
        found = answer(material, material.sources[0]).findings
        return " ".join(done.stdout.split()), [each for each in found if each.kind in ("credit duration", "burst end")]

    return qualify


@pytest.mark.parametrize(("rate", "seconds"), [("", 2000), ("1000", 7714), ("250", None)])
def test_qualify_states_how_long_credits_last_at_its_load(
    qualified: Callable[..., Any], rate: str, seconds: float | None
) -> None:
    """1,000 reads/s exceed the sustained 300 by 700: 5.4 million credits last for 7,714 s."""
    options = ("--set", "arrival=constant", "--set", f"rate={rate}") if rate else ()
    stdout, found = qualified("sim:gp2-100g", *options)
    assert [(each.kind, each.limit.volume, each.seconds) for each in found] == (
        [("credit duration", "gp2", pytest.approx(seconds, rel=0.02))] if seconds else []
    )
    lasting = "the credits of Amazon EBS gp2 with 100 GiB last 33 min 20 s, then the rate drops to 300 IOPS"
    assert (lasting in stdout) is (not rate)


def test_a_burst_of_an_unknown_volume_is_stated_as_observed_over_windows(
    qualified: Callable[..., Any], tmp_path: Path
) -> None:
    """26,000 credits at 2,000 a second more than come in: the drop is in the second window of 12 s."""
    text = (
        models()["gp2-100g"].read_text(encoding="utf-8").replace("Amazon EBS gp2", "Volume").partition("[[limit]]")[0]
    )
    limit = '[[limit]]\ncounts = "operations"\nrate = 500\nburst_rate = 2500\nbucket = 26_000\n'
    (tmp_path / "volume.toml").write_text(text + limit, encoding="utf-8")
    stdout, [found] = qualified(f"sim:{tmp_path}/volume.toml", "--duration", "24s", "--every", "12s")
    assert found.kind == "burst end"
    assert (found.before, found.after) == (pytest.approx(2500, rel=0.01), pytest.approx(500, rel=0.01))
    assert (found.seconds, found.runs) == (pytest.approx(13, abs=0.5), 2)
    assert "2,500 IOPS lasted 13 s at this load, then the rate dropped to 500 IOPS" in stdout
