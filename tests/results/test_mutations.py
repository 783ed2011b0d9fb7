"""Random changes to the files of a result set, then read in every way: no traceback, and no write outside the set.

The result sets are of every kind of study (`made_sets.VARIED`). Reading includes `resume`, with an engine that measures
nothing, and every command that reads result sets, in turn. Some mutations are as a damaged disk makes them; for others the
checksums are recomputed, as somebody who edits on purpose would do, so that the content itself has to be refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from command_line import in_this_process
from engines import FAKE
from made_sets import VARIED
from plans import sign, sign_plan

from iosonde.errors import IosondeError
from iosonde.execution.session import Interrupted, resume
from iosonde.results import ResultSet
from iosonde.results.schema import MANIFEST

pytestmark = pytest.mark.engine

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 2**80, 1e308, -0.5, float("nan"), float("inf")),
    *("", "x", "../../../victim", "/etc/passwd", "\x1b[2J", "\ud800", "a" * 5000, "%s{}[*?]'\"", "\0"),
    *([], {}, [[]], [None], {"": None}, {"kind": "block"}),
    *(10**400, 1e-320, "1e999", "2026-01-01T00:00:00", [0] * 100, {"x": {"x": {"x": [{}]}}}),
)


PLACES = ("records", "environments")


def mutate(directory: Path, chosen: random.Random) -> str:
    """Change one to three things in a result set; returns what."""
    done = [_mutate_once(directory, chosen) for _ in range(chosen.choice((1, 1, 2, 3)))]
    if chosen.random() < 0.7:
        _sign(directory)
        done.append("signed")
    return "; ".join(done)


def _mutate_once(directory: Path, chosen: random.Random) -> str:
    files = sorted(path for path in directory.rglob("*") if _is_plain(path) and path.name != "lock")
    documents = [path for path in files if path.suffix == ".json"]
    if documents and chosen.random() < 0.7:
        plan = directory / "plan.json"
        file = plan if chosen.random() < 0.4 and plan in documents else chosen.choice(documents)
        done = _edit(file, chosen)
    else:
        file = chosen.choice(files)
        done = _spoil(file, chosen)
    return f"{file.relative_to(directory)}: {done}"


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _spoil(file: Path, chosen: random.Random) -> str:
    """Change a file as a damaged disk or a wrong copy does, or put a link in its place."""
    content, how = bytearray(file.read_bytes()), chosen.choice(("flip", "cut", "extend", "remove", "link", "swap"))
    match how:
        case "flip":
            for _ in range(chosen.choice((1, 1, 8, 64)) if content else 0):
                content[chosen.randrange(len(content))] = chosen.randrange(256)
        case "cut":
            del content[chosen.randrange(len(content) + 1) :]
        case "extend":
            content += chosen.randbytes(chosen.choice((1, 100, 5000)))
        case "swap":
            other = chosen.choice(sorted(path for path in file.parent.rglob("*") if _is_plain(path)))
            content[:] = other.read_bytes()
        case _:
            file.unlink()
            if how == "link":
                file.symlink_to(chosen.choice(("/etc/passwd", "../../../victim", ".", "/dev/zero", "/proc/self/mem")))
            return how
    file.write_bytes(content)
    return how


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
    how = chosen.choice(("removed", "replaced", "replaced", "added"))
    if how == "removed":
        del holder[key]
    elif how == "added" and isinstance(holder, dict):
        key = chosen.choice(("x", "run_id", "../x", ""))
        holder[key] = chosen.choice(VALUES)
    else:
        holder[key] = chosen.choice(VALUES)
    file.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
    return f"`{key}` {how}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield value, key
        yield from _places(each)


def _sign(directory: Path) -> None:
    if _is_plain(directory / "plan.json") and _is_plain(directory / "format.json"):
        with suppress(ValueError, TypeError):
            sign_plan(directory)
    entries = {place: [each for each in directory.glob(f"{place}/*") if not each.is_symlink()] for place in PLACES}
    for record in entries["records"]:
        if (record / MANIFEST).exists() and all(map(_is_plain, record.iterdir())):
            sign(record)
    for environment in filter(Path.is_file, entries["environments"]):
        name = hashlib.sha256(environment.read_bytes()).hexdigest()[:16]
        environment.rename(environment.with_name(f"{name}.json"))


def commands(directory: Path, original: Path, out: str) -> list[list[str]]:
    path, above = str(directory), str(directory.parent)
    formats = ("json", "parquet", "csv", "fio-json", "hdr")
    return [
        *([page, above, "--output", f"{out}/{page}.html"] for page in ("library", "history")),
        *(["export", path, "--format", each, "--output", out] for each in formats),
        *(["report", path, *options] for options in (["--format", "md"], ["--format", "html"], ["--json"])),
        ["report", path, "--figures", "svg", "--output", out],
        ["library", above, "--json"],
        ["compare", str(original), path],
        ["sql", path, "SELECT * FROM case_metrics"],
        ["sql", path, "SELECT * FROM warnings, faults", "--format", "csv"],
        ["check", path, "--baseline", str(original), "--baseline", path],
        ["resume", path, "--retry-failed", "--allow-commands", "0" * 64],
    ]


CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}


class Fuzzer:
    def __init__(self, scratch: Path, seed: int) -> None:
        self._scratch, self._copy, self._out = scratch, scratch / "a" / "b" / "set", scratch / "out"
        self._target, self._state = scratch / "a" / "target", scratch / "state"
        self._random = random.Random(seed)
        self._target.mkdir(parents=True)
        self._originals = [make(scratch / "originals" / name, self._target) for name, make in VARIED.items()]
        for place in (self._target, scratch / "a"):
            (place / "victim").write_text("years of work")
        self.problems: list[str] = []

    def step(self, number: int) -> None:
        for each in (self._copy, self._out, *self._own_files()):
            shutil.rmtree(each, ignore_errors=True)
        original = self._originals[number % len(self._originals)]
        shutil.copytree(original, self._copy, symlinks=True)
        done = f"{original.name}: {mutate(self._copy, self._random)}"
        before = self._outside()
        with patch.dict(os.environ, IOSONDE_ENGINE=str(FAKE), XDG_STATE_HOME=str(self._state)):
            for use in (self._read, self._resume, lambda: self._call(original)):
                try:
                    use()
                except (IosondeError, Interrupted):
                    pass
                except Exception:
                    self.problems.append(f"{done}\n{traceback.format_exc(limit=-6)}")
        if changed := sorted({path for path, _ in before.items() ^ self._outside().items()}):
            self.problems.append(f"{done}: {', '.join(changed)}")

    def _read(self) -> None:
        found = ResultSet.open(self._copy)
        _ = found.problems, repr(found), found.environments()
        _ = found.cases, found.runs, found.jobs, found.warnings, found.evidence, found.faults
        with found.lock():
            found.missing_runs()

    def _resume(self) -> None:
        if self._random.random() < 0.25:
            resume(self._copy, retry_failed=True, time_limit_s=0.5)

    def _call(self, original: Path) -> None:
        command = self._random.choice(commands(self._copy, original, str(self._out)))
        done = in_this_process(*command)
        assert not set(done.stdout + done.stderr) & CONTROL, f"a control character on the terminal: {command}"

    def _own_files(self) -> list[Path]:
        """What a resumed study created; the plan decides whether it is kept."""
        return list(self._target.glob("iosonde-*"))

    def _outside(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file outside; of directories only that they exist."""
        found: dict[str, tuple[int, int]] = {}
        own = {self._copy, self._state, self._out, *self._own_files()}
        for root, names, files in os.walk(self._scratch):
            names[:] = [name for name in names if Path(root, name) not in own]
            found |= {str(Path(root, name)): (0, 0) for name in names}
            for path in (Path(root, name) for name in files):
                details = path.lstat()
                found[str(path)] = (details.st_size, details.st_mtime_ns)
        return found


@pytest.mark.parametrize(
    ("seed", "mutations"), [(7, 24), *(pytest.param(each, 1000, marks=pytest.mark.extended) for each in range(8, 18))]
)
def test_no_mutation_causes_a_traceback_or_a_write_outside(
    seed: int, mutations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # A target without a path would be created here.
    fuzzer = Fuzzer(tmp_path / "fuzz", seed)
    for number in range(mutations):
        fuzzer.step(number)
    assert fuzzer.problems == []
