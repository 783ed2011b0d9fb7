"""A result set with everything that exports distinguish: both loops, streams, reads, writes, flushes, failed runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

STUDY = """
name = "both-loops"
title = "Closed and open loop"
question = "?"
repeats = 1
shuffle = false

[measurement]
span = "64MiB"
ramp = "50ms"
duration = "450ms"
interval = "100ms"

[[parts]]
name = "closed"
measurement = { read_fraction = 0.7, durability = "flush:16", queue_depth = 4, jobs = 2 }

[[parts]]
name = "beside"

[[parts.streams]]
name = "open, poisson"
set = { arrival = "poisson", rate = 4000, queue_depth = 64 }

[[parts.streams]]
name = "writer"
set = { read_fraction = 0.0, access = "sequential", block_size = "64KiB" }

[profiles.standard]
"""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """Runs of the real engine on a simulated device, whose latencies are exponential."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOSONDE_ENGINE", str(real_engine()))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        target = open_target("simulated:servers=2,read=100us,write=40us,service=exponential,size=1GiB")
        directory: Path = tmp_path_factory.mktemp("exports") / "set"
        return execute(expand(parse(STUDY), target, settings={}), directory)
