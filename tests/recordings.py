"""Result sets that the real engine has written, for tests of all that reads them: `tests/recorded/NAME.tar.xz`.

`recorded(NAME, directory)` unpacks one. `make recordings` writes all of them again; `python tests/recordings.py NAME...` some.
`tests/results/test_recordings.py` proves that the engine of today still writes records of this shape.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str, directory: Path) -> ResultSet:
    """A copy of a recorded result set, which a test may change. `directory` must not exist."""
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return ResultSet.open(directory)


def measured(study: str, target: str, directory: Path, **expansion: Any) -> ResultSet:
    """Carry out a study, given as text, on a target."""
    return execute(expand(parse(study), open_target(target), **expansion), directory)


SEEDED = """
name = "seeded"
title = "Seeded"
question = "?"
repeats = 2

[measurement]
span = "64MiB"
duration = "50ms"
interval = "100ms"
ramp = "10ms"

[[parts]]
factors.read_fraction = [0.0, 0.7, 1.0]
factors.queue_depth = [1, 16]

[profiles.standard]
"""

BOTH_LOOPS = """
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

RECORDINGS: dict[str, Callable[[Path], object]] = {
    "seeded": lambda directory: measured(SEEDED, "sim:p900", directory, seed=7),
    "both-loops": lambda directory: measured(
        BOTH_LOOPS, "simulated:servers=2,read=100us,write=40us,service=exponential,size=1GiB", directory, settings={}
    ),
}
"""How each is written: into a directory that does not exist."""


def record(name: str) -> None:
    """Write a recording, without the lock and reports."""
    with tempfile.TemporaryDirectory() as directory:
        state = {key: str(Path(directory, key)) for key in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
        with mock.patch.dict(os.environ, state):
            RECORDINGS[name](Path(directory, "set"))
        files = sorted(path for path in Path(directory, "set").rglob("*") if path.is_file() and path.suffix != ".html")
        private = [path for path in files if str(Path.home()).encode() in path.read_bytes()]
        assert not private, f"{private}: names the home directory of this machine"
        with tarfile.open(RECORDED / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            for path in files:
                if path.name != "lock":
                    archive.add(path, path.relative_to(Path(directory, "set")), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    for each in sys.argv[1:] or RECORDINGS:
        record(each)
