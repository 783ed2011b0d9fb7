"""Result sets and browsers for tests of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser
from fabricate import FAILED, SKIPPED, result_set

from iosonde.plan import Run
from iosonde.results import ResultSet


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """A complete result set with every kind of view."""
    return result_set(tmp_path_factory.mktemp("whole") / "first", seconds=3)


@pytest.fixture(scope="session")
def faster(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """The same study on a drive 1.3 times as fast."""
    return result_set(tmp_path_factory.mktemp("faster") / "second", seconds=3, speed=1.3, seed=2)


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """A result set with a case that failed and a case that was never run."""

    def of(case_id: str) -> Callable[[Run], bool]:
        return lambda run: run.case_id == case_id

    return result_set(tmp_path_factory.mktemp("holes") / "set", seconds=2, failed=of(FAILED), skipped=of(SKIPPED))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """Start headless Chromium, as often as asked."""
    started: list[Browser] = []

    def start(page: Path | str, *, width: int = 1280, dark: bool = False, scripts: bool = True) -> Browser:
        started.append(Browser(page, width=width, dark=dark, scripts=scripts, downloads=tmp_path / "downloads"))
        return started[-1]

    yield start
    for each in started:
        each.quit()
