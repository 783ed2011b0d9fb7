"""Mutates the files of a result set and reads it in every way: no traceback, and no write outside the set.

    python tests/results/mutations.py [--mutations 10000] [--seed 1]     (SIGINT, SIGTERM: print the result so far)

Reading includes `resume`, with an engine that measures nothing, and the commands `report`, `compare`, `check`, `sql`, `show`
and `export`, in turn. Half of the mutations are as a damaged disk makes them. In the other half the checksums are written anew, as somebody who
edits on purpose would do, so that the content itself is what has to be refused.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from engines import FAKE  # noqa: E402  # run as a program, too
from made_sets import OWN, measured, unfinished  # noqa: E402
from plans import sign  # noqa: E402

from iosonde import cli  # noqa: E402
from iosonde.errors import IosondeError  # noqa: E402
from iosonde.execution import resume  # noqa: E402
from iosonde.execution.session import Interrupted  # noqa: E402
from iosonde.results import ResultSet  # noqa: E402
from iosonde.results.schema import MANIFEST  # noqa: E402

PROGRESS = 250
"""Mutations between two lines of progress."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 2**80, 1e308, -0.5, float("nan"), float("inf")),
    *("", "x", "../../../victim", "/etc/passwd", "\x1b[2J", "\ud800", "a" * 5000, "%s{}[*?]'\"", "\0"),
    *([], {}, [[]], [None], {"": None}, {"kind": "block"}),
)


def mutate(directory: Path, chosen: random.Random) -> str:
    """Change one thing in a result set; returns what."""
    files = sorted(path for path in directory.rglob("*") if _is_plain(path) and path.name != "lock")
    if not files:
        return "nothing"
    file = chosen.choice(files)
    kinds: list[Callable[[Path, random.Random], str]] = [_flip, _cut, _extend, _remove, _link, _swap]
    if file.suffix == ".json":
        kinds += [_edit] * 12
    done = chosen.choice(kinds)(file, chosen)
    if chosen.random() < 0.5:
        _sign(directory)
        done += ", signed"
    return f"{file.relative_to(directory)}: {done}"


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _flip(file: Path, chosen: random.Random) -> str:
    content = bytearray(file.read_bytes())
    for _ in range(chosen.choice((1, 1, 8, 64))):
        if content:
            content[chosen.randrange(len(content))] = chosen.randrange(256)
    file.write_bytes(content)
    return "bytes changed"


def _cut(file: Path, chosen: random.Random) -> str:
    content = file.read_bytes()
    file.write_bytes(content[: chosen.randrange(len(content) + 1)])
    return "truncated"


def _extend(file: Path, chosen: random.Random) -> str:
    file.write_bytes(file.read_bytes() + chosen.randbytes(chosen.choice((1, 100, 5000))))
    return "extended"


def _remove(file: Path, chosen: random.Random) -> str:
    file.unlink()
    return "removed"


def _link(file: Path, chosen: random.Random) -> str:
    file.unlink()
    to = chosen.choice(("/etc/passwd", "../../../victim", ".", "/dev/zero", "/proc/self/mem"))
    file.symlink_to(to)
    return f"linked to {to}"


def _swap(file: Path, chosen: random.Random) -> str:
    others = sorted(path for path in file.parent.rglob("*") if _is_plain(path) and path != file)
    if not others:
        return "nothing"
    other = chosen.choice(others)
    shutil.copyfile(other, file)
    return f"copied from {other.name}"


def _edit(file: Path, chosen: random.Random) -> str:
    """Replace, remove or add a value at a random place of a JSON document."""
    try:
        document = json.loads(file.read_bytes())
    except ValueError:
        return "nothing"
    places = list(_places(document))
    if not places:
        return "nothing"
    holder, key = chosen.choice(places)
    match chosen.randrange(4):
        case 0:
            del holder[key]
            done = f"`{key}` removed"
        case 1 if isinstance(holder, dict):
            holder[chosen.choice(("x", "run_id", "../x", ""))] = chosen.choice(VALUES)
            done = "key added"
        case _:
            holder[key] = chosen.choice(VALUES)
            done = f"`{key}` = {str(holder[key])[:30]!r}"
    file.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
    return done


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield value, key
        yield from _places(each)


def _sign(directory: Path) -> None:
    """Write every checksum anew."""
    plan, form = directory / "plan.json", directory / "format.json"
    if plan.is_file() and form.is_file() and not plan.is_symlink() and not form.is_symlink():
        try:
            facts = json.loads(form.read_bytes())
        except ValueError:
            facts = None
        if isinstance(facts, dict):
            form.write_text(json.dumps({**facts, "plan_sha256": hashlib.sha256(plan.read_bytes()).hexdigest()}))
    for record in (directory / "records").iterdir():
        if (record / MANIFEST).exists() and all(path.is_file() and not path.is_symlink() for path in record.iterdir()):
            sign(record)
    for environment in (directory / "environments").iterdir():
        if environment.is_file() and not environment.is_symlink():
            name = hashlib.sha256(environment.read_bytes()).hexdigest()[:16]
            environment.rename(environment.with_name(f"{name}.json"))


def read(directory: Path) -> None:
    """Open a result set and read its small tables."""
    result_set = ResultSet.open(directory)
    _ = result_set.problems, repr(result_set), result_set.environments()
    _ = result_set.cases, result_set.runs, result_set.jobs, result_set.warnings, result_set.evidence, result_set.faults
    with result_set.lock():
        result_set.missing_runs()


def continue_it(directory: Path) -> None:
    """Carry out the missing runs, for half a second at most."""
    with suppress(Interrupted):
        resume(directory, retry_failed=True, time_limit_s=0.5)


def commands(directory: Path, original: Path) -> list[list[str]]:
    """Return the command lines that read a result set."""
    path, out = str(directory), str(directory / "out")
    return [
        ["sql", path, "SELECT * FROM case_metrics"],
        ["sql", path, "SELECT * FROM warnings, faults", "--format", "csv"],
        ["report", path, "--format", "md"],
        ["report", path, "--json"],
        ["report", path, "--format", "html"],
        ["show", path],
        ["compare", str(original), path],
        ["check", path, "--baseline", str(original), "--baseline", path],
        ["export", path, "--format", "csv", "--output", out],
        ["export", path, "--format", "fio-json", "--output", out],
        ["export", path, "--format", "hdr", "--output", out],
        ["resume", path, "--time-limit", "500ms"],
    ]


def carry_out(command: Sequence[str]) -> None:
    """Run a command line in this process; `AssertionError` if it prints a control character."""
    printed, messages = _Kept(), _Kept()
    with (
        patch.object(sys, "argv", ["iosonde", *command]),
        redirect_stdout(io.TextIOWrapper(printed, encoding="utf-8")),
        redirect_stderr(io.TextIOWrapper(messages, encoding="utf-8")),
        suppress(SystemExit),
    ):
        cli.main()
    text = (printed.getvalue() + messages.getvalue()).decode()
    assert not set(text) & CONTROL, f"a control character on the terminal: {command}"


class _Kept(io.BytesIO):
    """Bytes that outlive the streams that wrote them."""

    def close(self) -> None:
        """Keep them."""


CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}


class Fuzzer:
    """Mutates copies of result sets, in turn."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self._scratch, self._copy = scratch, scratch / "a" / "b" / "set"
        self._target, self._state = scratch / "a" / "target", scratch / "state"
        self._random = random.Random(seed)
        self._target.mkdir(parents=True)
        self._target.joinpath("victim").write_text("years of work")
        (scratch / "a" / "victim").write_text("years of work")
        self._measured = measured(scratch / "measured")
        self._originals = (self._measured, unfinished(scratch / "unfinished", self._target))
        self.tracebacks: list[str] = []
        self.written: list[str] = []
        self.mutations = 0

    def step(self) -> None:
        """Mutate once, read, and note what went wrong."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.rmtree(self._target / OWN, ignore_errors=True)  # It may be kept: the plan says so.
        shutil.copytree(self._originals[self.mutations % 2], self._copy, symlinks=True)
        done = [mutate(self._copy, self._random) for _ in range(self._random.choice((1, 1, 1, 3)))]
        before = self._outside()
        self.mutations += 1
        with patch.dict(os.environ, IOSONDE_ENGINE=str(FAKE), XDG_STATE_HOME=str(self._state)):
            for action in self._actions():
                self._try(action, "; ".join(done))
        changed = sorted({path for path, _ in before.items() ^ self._outside().items()})
        if changed:
            self.written.append(f"{'; '.join(done)}: {', '.join(changed)}")

    def _actions(self) -> Iterator[Callable[[], None]]:
        yield lambda: read(self._copy)
        if self.mutations % 4 == 0:
            yield lambda: continue_it(self._copy)
        if self.mutations % 10 == 0:
            lines = commands(self._copy, self._measured)
            yield lambda: carry_out(lines[self.mutations // 10 % len(lines)])

    def _try(self, action: Callable[[], None], mutation: str) -> None:
        try:
            action()
        except IosondeError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.tracebacks.append(f"{mutation}\n{traceback.format_exc(limit=-6)}")

    def _outside(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file outside; of directories only that they exist."""
        found = {}
        for root, names, files in os.walk(self._scratch):
            names[:] = [name for name in names if Path(root, name) not in (self._copy, self._state, self._target / OWN)]
            found |= {str(Path(root, name)): (0, 0) for name in names}
            for path in (Path(root, name) for name in files):
                details = path.lstat()
                found[str(path)] = (details.st_size, details.st_mtime_ns)
        return found


def main() -> None:
    """Mutate as often as asked for, and print what went wrong."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mutations", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # A target without a path would be created here.
        fuzzer = Fuzzer(Path(scratch) / "fuzz", chosen.seed)
        begin = time.monotonic()
        with suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job would ignore it.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            while fuzzer.mutations < chosen.mutations:
                fuzzer.step()
                if fuzzer.mutations % PROGRESS == 0:
                    problems = len(fuzzer.tracebacks) + len(fuzzer.written)
                    print(f"{fuzzer.mutations} mutations, {problems} problems", file=sys.stderr, flush=True)
        for found in (*fuzzer.tracebacks[:20], *fuzzer.written[:20]):
            print(found)
        print(
            f"{fuzzer.mutations} mutations in {time.monotonic() - begin:.0f} s: "
            f"{len(fuzzer.tracebacks)} tracebacks, {len(fuzzer.written)} writes outside"
        )
    sys.exit(bool(fuzzer.tracebacks or fuzzer.written))


if __name__ == "__main__":
    main()
