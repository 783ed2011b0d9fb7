"""A result set with everything that exports distinguish: both loops, streams, reads, writes, flushes, failed runs."""

from __future__ import annotations

import pytest
from recordings import recorded

from iosonde.results import ResultSet


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """Runs of the real engine on a simulated device, whose latencies are exponential."""
    return recorded("both-loops", tmp_path_factory.mktemp("exports") / "set")
