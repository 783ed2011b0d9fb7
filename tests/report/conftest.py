"""Result sets and browsers for tests of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Chromium
from fabricate import FAILED, SKIPPED, result_set, study

from iosonde.results import ResultSet


def compact() -> dict[str, Any]:
    """A study with every kind of view and few levels: 24 cases."""
    facts = study()
    facts["parts"][0]["factors"] |= {"block_size": [8192, 131072], "queue_depth": [1, 4, 16, 64]}
    facts["parts"][1]["factors"] = {"block_size": [4096, 65536], "jobs": [1, 32]}
    return facts


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return result_set(tmp_path_factory.mktemp("whole") / "first", compact(), seconds=3)


@pytest.fixture(scope="session")
def faster(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """The same study on a drive twice as fast, which three repeats with noise tell apart in every case."""
    return result_set(tmp_path_factory.mktemp("faster") / "second", compact(), seconds=3, speed=2.0, seed=2)


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """A result set with a case that failed and a case that was never run."""

    failed, skipped = (lambda run: run.case_id == FAILED), (lambda run: run.case_id == SKIPPED)
    return result_set(tmp_path_factory.mktemp("missing") / "set", compact(), seconds=2, failed=failed, skipped=skipped)


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Callable[[], AbstractContextManager[Chromium]]]:
    """Chromium processes, started when they are needed and kept for later tests: starting one takes seconds."""
    started: list[Chromium] = []
    idle: list[Chromium] = []

    @contextmanager
    def lend() -> Iterator[Chromium]:
        if not idle:
            started.append(Chromium())
            idle.append(started[-1])
        lent = idle.pop()
        yield lent
        lent.driver.get("about:blank")  # A live page would continue to poll its server.
        idle.append(lent)

    yield lend
    for each in started:
        each.quit()


@pytest.fixture
def browser(
    tmp_path: Path, _chromium: Callable[[], AbstractContextManager[Chromium]]
) -> Iterator[Callable[..., Browser]]:
    """Open a page in headless Chromium, in a process of its own for each page of a test."""
    with ExitStack() as lent:

        def start(page: Path | str, **settings: Any) -> Browser:
            chromium = lent.enter_context(_chromium())
            return Browser(page, chromium=chromium, downloads=tmp_path / "downloads", **settings)

        yield start
