"""Mutates the files of a result set and reads it in every way: no traceback, and no write outside the set.

    python tests/results/mutations.py [--mutations 10000] [--seed 1]     (SIGINT, SIGTERM: print the result so far)

The result sets are of every kind of study (`varied_sets.py`). Reading includes `resume`, with an engine that measures
nothing, and every command that reads result sets, in turn. Up to three mutations are combined, and some claim another
version of the format or the protocol. One part of them is as a damaged disk makes them. In the other the checksums are
recomputed, as somebody who edits on purpose would do, so that the content itself has to be refused.

A value that only the last resort (`results/interpreting.py`) turns into an error is counted too: a check is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from engines import FAKE  # noqa: E402  # run as a program, too
from plans import sign  # noqa: E402
from varied_sets import VARIED  # noqa: E402

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
    *(10**400, 1e-320, "1e999", "2026-01-01T00:00:00", [0] * 100, {"x": {"x": {"x": [{}]}}}),
)

NAMES = (
    *("against", "temporary-drive-state", "lock", "report.html", "report.md", "figures", "suite.json", "log"),
    *(".tmp-reserve", ".tmp-plan.json", "records/.tmp-c0001-r1", "records/c0001-r1", "environments/x.json"),
)
"""Names in a result set that some command writes, or that mean something to one."""

CPU_S = 60
"""CPU time after which an action counts as endless."""


def mutate(directory: Path, chosen: random.Random) -> str:
    """Change one to three things in a result set; returns what."""
    done = [_mutate_once(directory, chosen) for _ in range(chosen.choice((1, 1, 2, 3)))]
    if chosen.random() < 0.2:
        done.append(_claim(directory, chosen))
    if chosen.random() < 0.7:
        _sign(directory)
        done.append("signed")
    return "; ".join(done)


def _mutate_once(directory: Path, chosen: random.Random) -> str:
    files = sorted(path for path in directory.rglob("*") if _is_plain(path) and path.name != "lock")
    if not files:
        return "nothing"
    documents = [path for path in files if path.suffix == ".json"]
    if chosen.random() < 0.1:
        return chosen.choice((_replace_directory, _add_name))(directory, chosen)
    if documents and chosen.random() < 0.7:
        plan = directory / "plan.json"
        file = plan if chosen.random() < 0.4 and plan in documents else chosen.choice(documents)
        done = _edit(file, chosen)
    else:
        file = chosen.choice(files)
        done = chosen.choice([_flip, _cut, _extend, _remove, _link, _swap])(file, chosen)
    return f"{file.relative_to(directory)}: {done}"


def _claim(directory: Path, chosen: random.Random) -> str:
    """Claim another version: of the protocol in every spec, or of the format in every file."""
    name = chosen.choice(("protocol", "format"))
    version = chosen.choice((1, 1, 1, 2, 0, 3, 99, -1, "1", None, 1.0, True))
    for file in directory.rglob("*.json"):
        if not _is_plain(file):
            continue
        try:
            document = json.loads(file.read_bytes())
        except ValueError:
            continue
        for holder, key in list(_places(document)):
            if key == name:
                holder[key] = version
        file.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
    return f"`{name}` = {version!r} everywhere"


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


def _replace_directory(directory: Path, chosen: random.Random) -> str:
    """Put a link or a file in place of a directory."""
    path = chosen.choice(sorted(each for each in directory.rglob("*") if each.is_dir() and not each.is_symlink()))
    shutil.rmtree(path)
    return f"{path.relative_to(directory)}: {_create(path, directory, chosen)}"


def _add_name(directory: Path, chosen: random.Random) -> str:
    """Add a link, a file or a directory under a name that means something."""
    path = directory / chosen.choice(NAMES)
    if os.path.lexists(path) or not path.parent.is_dir() or path.parent.is_symlink():
        return "nothing"
    return f"{path.relative_to(directory)}: {_create(path, directory, chosen)}"


def _create(path: Path, directory: Path, chosen: random.Random) -> str:
    kind = chosen.choice(("file", "directory", "link to a directory", "link to a file"))
    if kind == "file":
        path.write_bytes(chosen.randbytes(100))
    elif kind == "directory":
        (path / "inner").mkdir(parents=True)
    else:
        path.symlink_to(directory.parents[1] / ("target" if kind == "link to a directory" else "victim"))
    return f"a {kind} in its place"


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
    # Each kind of place is as likely as any other, however often it occurs.
    kinds: dict[str, list[tuple[Any, Any]]] = {}
    for holder, key in _places(document):
        kinds.setdefault(f"{sorted(holder) if isinstance(holder, dict) else 'list'} {key}", []).append((holder, key))
    if not kinds:
        return "nothing"
    holder, key = chosen.choice(kinds[chosen.choice(sorted(kinds))])
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
    """Recompute every checksum."""
    plan, form = directory / "plan.json", directory / "format.json"
    if plan.is_file() and form.is_file() and not plan.is_symlink() and not form.is_symlink():
        try:
            facts = json.loads(form.read_bytes())
        except ValueError:
            facts = None
        if isinstance(facts, dict):
            form.write_text(json.dumps({**facts, "plan_sha256": hashlib.sha256(plan.read_bytes()).hexdigest()}))
    for record in _inside(directory / "records"):
        if (
            record.is_dir()
            and (record / MANIFEST).exists()
            and all(path.is_file() and not path.is_symlink() for path in record.iterdir())
        ):
            sign(record)
    for environment in _inside(directory / "environments"):
        if environment.is_file() and not environment.is_symlink():
            name = hashlib.sha256(environment.read_bytes()).hexdigest()[:16]
            environment.rename(environment.with_name(f"{name}.json"))


def _inside(directory: Path) -> list[Path]:
    """Entries of a directory, without symbolic links."""
    if directory.is_symlink() or not directory.is_dir():
        return []
    return [each for each in directory.iterdir() if not each.is_symlink()]


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


def commands(directory: Path, original: Path, out: str) -> list[list[str]]:
    """Return the command lines that read a result set."""
    path = str(directory)
    above = str(directory.parent)
    return [
        ["library", above, "--output", f"{out}/library.html"],
        ["history", above, "--output", f"{out}/history.html"],
        ["library", above, "--json"],
        ["report", path, "--figures", "svg", "--output", out],
        ["compare", path],
        ["export", path, "--format", "json", "--output", out],
        ["export", path, "--format", "parquet", "--output", out],
        ["sql", path, "SELECT * FROM case_metrics"],
        ["sql", path, "SELECT * FROM warnings, faults", "--format", "csv"],
        ["report", path, "--format", "md"],
        ["report", path, "--json"],
        ["report", path, "--format", "html"],
        ["compare", str(original), path],
        ["check", path, "--baseline", str(original), "--baseline", path],
        ["export", path, "--format", "csv", "--output", out],
        ["export", path, "--format", "fio-json", "--output", out],
        ["export", path, "--format", "hdr", "--output", out],
        ["resume", path, "--time-limit", "500ms"],
        ["resume", path, "--retry-failed", "--allow-commands", "0" * 64],
    ]


def carry_out(command: Sequence[str]) -> None:
    """Run a command line in this process; `AssertionError` if it prints a control character.

    `IosondeError` if a value was refused by the last resort only.
    """
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
    if UNFORESEEN in text:
        raise IosondeError(text[text.index(UNFORESEEN) :])


class _Kept(io.BytesIO):
    """Bytes that outlive the streams that wrote them."""

    def close(self) -> None:
        """Keep them."""


UNFORESEEN = "cannot be interpreted"

CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}


class Fuzzer:
    """Mutates copies of result sets, in turn."""

    def __init__(self, scratch: Path, seed: int, *, commands_each: int = 1) -> None:
        """A command reads every so many mutations."""
        self._scratch, self._copy, self._out = scratch, scratch / "a" / "b" / "set", scratch / "out"
        self._target, self._state = scratch / "a" / "target", scratch / "state"
        self._random, self._commands_each = random.Random(seed), commands_each
        self._target.mkdir(parents=True)
        with patch.dict(os.environ, XDG_STATE_HOME=str(self._state)):
            self._originals = [make(scratch / "originals" / name, self._target) for name, make in VARIED.items()]
        self._target.joinpath("victim").write_text("years of work")
        (scratch / "a" / "victim").write_text("years of work")
        self.tracebacks: list[str] = []
        self.written: list[str] = []
        self.unforeseen: Counter[str] = Counter()
        self.mutations = 0

    def step(self) -> None:
        """Mutate once, read, and note what went wrong."""
        for each in (
            self._copy,
            self._out,
            *self._target.glob("iosonde-*"),
        ):  # The plan decides whether the last is kept.
            shutil.rmtree(each, ignore_errors=True)
        original = self._originals[self.mutations % len(self._originals)]
        shutil.copytree(original, self._copy, symlinks=True)
        done = f"{original.name}: {self._incomplete()}{mutate(self._copy, self._random)}"
        before = self._outside()
        self.mutations += 1
        with patch.dict(os.environ, IOSONDE_ENGINE=str(FAKE), XDG_STATE_HOME=str(self._state)):
            for action in self._actions(original):
                self._try(action, done)
        changed = sorted({path for path, _ in before.items() ^ self._outside().items()})
        if changed:
            self.written.append(f"{done}: {', '.join(changed)}")

    def _incomplete(self) -> str:
        """Sometimes remove a record, so that `resume` has work."""
        records = sorted((self._copy / "records").iterdir())
        if not records or self._random.random() < 0.7:
            return ""
        missing = self._random.choice(records)
        shutil.rmtree(missing)
        return f"without {missing.name}; "

    def _actions(self, original: Path) -> Iterator[Callable[[], None]]:
        yield lambda: read(self._copy)
        if self._random.random() < 0.25:
            yield lambda: continue_it(self._copy)
        if self.mutations % self._commands_each == 0:
            line = self._random.choice(commands(self._copy, original, str(self._out)))
            yield lambda: carry_out(line)

    def _try(self, action: Callable[[], None], mutation: str) -> None:
        try:
            with _limited():
                action()
        except IosondeError as error:
            if UNFORESEEN in str(error):
                self.unforeseen[re.sub(r"`[^`]*`", "_", str(error).split("\n\n", 1)[0])] += 1
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.tracebacks.append(f"{mutation}\n{traceback.format_exc(limit=-6)}")

    def _outside(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file outside; of directories only that they exist."""
        found: dict[str, tuple[int, int]] = {}
        for root, names, files in os.walk(self._scratch):
            own = {self._copy, self._state, self._out, *self._target.glob("iosonde-*")}
            names[:] = [name for name in names if Path(root, name) not in own]
            found |= {str(Path(root, name)): (0, 0) for name in names}
            for path in (Path(root, name) for name in files):
                details = path.lstat()
                found[str(path)] = (details.st_size, details.st_mtime_ns)
        return found


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `TimeoutError` after `CPU_S` of CPU time: what is mutated may be the number of something."""

    def end(*_: object) -> None:
        raise TimeoutError(f"more than {CPU_S} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def main() -> None:
    """Mutate as often as requested, and print failures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mutations", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # A target without a path would be created here.
        fuzzer = Fuzzer(Path(scratch) / "fuzz", chosen.seed)
        begin = time.monotonic()
        stopped: list[bool] = []
        with suppress(KeyboardInterrupt):
            # A shell's background job would ignore SIGINT, and a command takes a KeyboardInterrupt for its own.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.append(True))
            while not stopped and fuzzer.mutations < chosen.mutations:
                fuzzer.step()
                if fuzzer.mutations % PROGRESS == 0:
                    problems = len(fuzzer.tracebacks) + len(fuzzer.written)
                    print(f"{fuzzer.mutations} mutations, {problems} problems", file=sys.stderr, flush=True)
        for found in (*fuzzer.tracebacks[:20], *fuzzer.written[:20]):
            print(found)
        for found, times in fuzzer.unforeseen.most_common(30):
            print(f"{times} x {found}")
        print(
            f"{fuzzer.mutations} mutations in {time.monotonic() - begin:.0f} s: "
            f"{len(fuzzer.tracebacks)} tracebacks, {len(fuzzer.written)} writes outside, "
            f"{fuzzer.unforeseen.total()} values refused by the last resort"
        )
    sys.exit(bool(fuzzer.tracebacks or fuzzer.written))


if __name__ == "__main__":
    main()
