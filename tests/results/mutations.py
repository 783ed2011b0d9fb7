"""Mutates the files of a result set and reads it in every way: no traceback, and no write outside the set.

    python tests/results/mutations.py [--mutations 10000] [--seed 1]     (Ctrl-C: stop and print the result so far)

Half of the mutations are as a damaged disk makes them. In the other half the checksums are written anew, as somebody who
edits on purpose would do, so that the content itself is what has to be refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from plans import sign  # noqa: E402  # run as a program, too

from iosonde.errors import IosondeError  # noqa: E402
from iosonde.results import ResultSet  # noqa: E402
from iosonde.results.schema import MANIFEST  # noqa: E402

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


def query(directory: Path) -> None:
    """Compute metrics, which read every table."""
    ResultSet.open(directory).sql("SELECT * FROM case_metrics")


def report(directory: Path) -> None:
    """Write a report, which reads what the tables do not."""
    from iosonde import report

    report.write([ResultSet.open(directory)], directory / "report.md", format="md")


class Fuzzer:
    """Mutates copies of one result set."""

    def __init__(self, original: Path, scratch: Path, seed: int) -> None:
        self._original, self._copy = original, scratch / "a" / "b" / "set"
        self._victim = scratch / "a" / "victim"
        self._random = random.Random(seed)
        self._victim.parent.mkdir(parents=True)
        self._victim.write_text("years of work")
        self._scratch = scratch
        self.tracebacks: list[str] = []
        self.written: list[str] = []
        self.mutations = 0

    def step(self) -> None:
        """Mutate once, read, and note what went wrong."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._original, self._copy, symlinks=True)
        done = [mutate(self._copy, self._random) for _ in range(self._random.choice((1, 1, 1, 3)))]
        before = self._outside()
        self.mutations += 1
        slow = (query,) if self.mutations % 5 == 0 else (report,) if self.mutations % 31 == 0 else ()
        for action in (read, *slow):
            try:
                action(self._copy)
            except IosondeError:
                pass
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self.tracebacks.append(f"{'; '.join(done)}\n{traceback.format_exc(limit=-6)}")
        if self._outside() != before:
            self.written.append("; ".join(done))

    def _outside(self) -> list[tuple[str, int, int]]:
        found = []
        for root, _, files in os.walk(self._scratch):
            if not Path(root).is_relative_to(self._copy):
                details = ((name, Path(root, name).lstat()) for name in files)
                found += [(str(Path(root, name)), each.st_size, each.st_mtime_ns) for name, each in details]
        return sorted(found)


def main() -> None:
    """Mutate as often as asked for, and print what went wrong."""
    from made_sets import measured

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mutations", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        fuzzer = Fuzzer(measured(Path(scratch) / "original"), Path(scratch) / "fuzz", chosen.seed)
        begin = time.monotonic()
        with suppress(KeyboardInterrupt):
            while fuzzer.mutations < chosen.mutations:
                fuzzer.step()
        for found in fuzzer.tracebacks[:20]:
            print(found)
        print(
            f"{fuzzer.mutations} mutations in {time.monotonic() - begin:.0f} s: "
            f"{len(fuzzer.tracebacks)} tracebacks, {len(fuzzer.written)} writes outside"
        )
    sys.exit(bool(fuzzer.tracebacks or fuzzer.written))


if __name__ == "__main__":
    main()
