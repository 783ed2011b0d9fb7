"""Result sets that the real engine has written, for tests of all that reads them: `tests/recorded/NAME.tar.xz`.

`recorded(NAME, directory)` unpacks one. `make recordings` writes all of them again; `python tests/recordings.py NAME...` some.
`tests/results/test_recordings.py` proves that the engine of today still writes records of this shape.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from plans import sign_plan

from iosonde.execution.session import execute
from iosonde.plan import commands
from iosonde.planning import Against, expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str, directory: Path, **study: Any) -> ResultSet:
    """A copy of a recorded result set, with these facts of its study changed. `directory` must not exist."""
    # Debian's Python 3.11.2 has no `filter` of tarfile yet.
    shutil.unpack_archive(RECORDED / f"{name}.tar.xz", directory)
    if study:
        path = directory / "plan.json"
        plan = json.loads(path.read_text())
        path.write_text(json.dumps({**plan, "study": plan["study"] | study}))
        sign_plan(directory)
    return ResultSet.open(directory)


def measured(study: str, target: str, directory: Path, **expansion: Any) -> ResultSet:
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

ADAPTIVE = """
name = "adaptive"
title = "Search, derived rates and rounds"
question = "How many reads a second within a millisecond?"
repeats = 1
[measurement]
queue_depth = 64
ramp = 0
duration = "500ms"
interval = "250ms"
[[parts]]
name = "capacity"
measurement.arrival = "poisson"
[parts.search]
over = "rate"
between = [1000, "40k"]
holds = "response_latency_ns_p99 <= 1ms"
agree = "all"
precision = 0.5
[[parts]]
name = "curve"
measurement.arrival = "poisson"
factors.load = [0.5, 1.0]
derived.rate = { part = "capacity" }
[[parts]]
name = "rounds"
measurement = { read_fraction = 0.0, queue_depth = 4, span = "16MiB", duration = "100ms", interval = "100ms" }
rounds.max_rounds = 3
[[views]]
part = "curve"
kind = "lines"
title = "Latency over load"
x = "load"
y = "response_latency_ns_p99"
[profiles.standard]
"""

ARMS = """
name = "arms"
title = "Reads and writes"
question = "Which of two systems is faster?"
repeats = 2
[measurement]
span = "16MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
factors.read_fraction = [0.0, 1.0]
[profiles.standard]
"""

STORE = """
name = "store"
title = "Store"
question = "Which operation is faster?"
workload = "kv"
repeats = 1
[measurement]
store = "lmdb"
records = 500
ramp = 0
duration = "200ms"
interval = "100ms"
[[parts]]
factors.operations = ["read", "update"]
[[views]]
kind = "bars"
title = "Operations"
x = "operations"
y = "ops_per_sec"
[profiles.standard]
"""

COMMAND = """
name = "command"
title = "Echo"
question = "Which number is larger?"
workload = "command"
repeats = 1
[measurement]
command = ["sh", "-c", "echo point 3; echo value {number}"]
version = ["-c", "echo shell 1"]
duration = "100ms"
space = "1MiB"
interval = "100ms"
number = 1
[measurement.metrics.echoed]
title = "Number"
pattern = 'value (\\d+)'
unit = "1/s"
better = "higher"
[measurement.metrics.points]
lines = 'point (\\d+)'
unit = "ns"
better = "lower"
aggregate = "maximum"
[[parts]]
factors.number = [1, 2]
[[views]]
kind = "lines"
title = "Number"
x = "number"
y = "echoed"
[profiles.standard]
"""


COMMIT = """
name = "commit"
title = "Durable commits"
question = "Which acknowledged commits are lost when the server is killed?"
workload = "commit"
repeats = 1
[measurement]
server = "postgresql"
ramp = 0
duration = "1s"
interval = "250ms"
[[parts]]
factors.clients = [1, 2]
[[parts]]
name = "killed"
measurement = { clients = 2, kill_server_after = "500ms" }
[profiles.standard]
"""


def on_files(study: str, directory: Path) -> ResultSet:
    """Carry out a study in a directory beside its result set, with consent to the commands that it calls."""
    target = directory.with_name("target")
    target.mkdir()
    plan = expand(parse(study), open_target(str(target)))
    called = commands.commands_hash(plan) if commands.has_commands(plan) else ""
    return execute(plan, directory, consent=Consent(commands=called))


FLUSHES = """
name = "log"
title = "Log device"
question = "Is it fast enough?"
repeats = 3
shuffle = false
[measurement]
access = "sequential"
read_fraction = 0.0
durability = "flush:1"
span = "16MiB"
ramp = "1s"
interval = "2s"
[[parts]]
name = "wal"
measurement.duration = "40s"
[[parts]]
name = "short"
measurement.duration = "4s"
factors.block_size = ["4KiB", "8KiB"]
[profiles.standard]
"""

SIMULATED = "simulated:servers=2,read=100us,write=40us,service=exponential,size=1GiB"
SLOW_LOG = "simulated:servers=1,write=10ms,service=exponential,size=1GiB"
RECORDINGS: dict[str, Callable[[Path], object]] = {
    "seeded": lambda to: measured(SEEDED, "sim:p900", to, seed=7),
    "both-loops": lambda to: measured(BOTH_LOOPS, SIMULATED, to, settings={}),
    "flushes": lambda to: measured(FLUSHES, SLOW_LOG, to),
    "adaptive": lambda to: measured(ADAPTIVE, "simulated:servers=1,read=100us,size=1TiB", to),
    "arms": lambda to: measured(ARMS, "sim:p900", to, against=Against(target=open_target("sim:p900*2,raid=0"))),
    "store": lambda to: on_files(STORE, to),
    "command": lambda to: on_files(COMMAND, to),
    "commit": lambda to: on_files(COMMIT, to),
}
"""How each is written: into a directory that does not exist."""


def record(name: str) -> None:
    """Write a recording, without the lock and reports."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)  # For the user of a server.
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
