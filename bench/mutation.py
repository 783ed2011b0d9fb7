"""How many small faults the tests notice: mutants of the code that decides about values, verdicts and data.

A mutant changes one operator, constant or branch. A sample of each area in `AREAS` is drawn by a seed, so that scores
of two versions of the tests compare on one version of the code. Each mutant of Python is tried on the tests that
coverage assigns to its line, fastest first, and each of Rust on the tests of its crate, in a copy of the checkout.

    pip install pytest-cov
    pytest -m "unit or engine" --cov=python/iosonde --cov-context=test --cov-report= --junitxml=JUNIT
    python bench/mutation.py --coverage .coverage --junit JUNIT [--only AREA] [--seed 20261128]
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from shared import options

CHECKOUT = Path(__file__).resolve().parents[1]
LIMIT_S = 60
"""Of one mutant: tests of a third of it are chosen, so that what exceeds it hangs."""
AREAS = {
    "verdict": (35, "python/iosonde/metrics/verdict/**/*.py"),
    "metrics and statistics": (40, "python/iosonde/metrics/*.py"),
    "guard and journal": (35, "python/iosonde/storage/safety/**/*.py"),
    "comparison": (20, "python/iosonde/findings/comparison/**/*.py"),
    "regression": (15, "python/iosonde/findings/regression.py"),
    "fio import": (25, "python/iosonde/interop/fio/**/*.py"),
    "histogram": (15, "crates/harness/src/metrics/histogram.rs"),
    "arrivals": (8, "crates/harness/src/load/arrival.rs"),
    "schedules": (7, "crates/harness/src/load/schedule.rs"),
}
"""Mutants and files of each area."""
OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"},
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
RUST = {
    **{" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ", " && ": " || "},
    **{" || ": " && ", " + ": " - ", " - ": " + ", " * ": " / ", " / ": " * ", " += ": " -= ", "<<": ">>", ">>": "<<"},
    **{".min(": ".max(", ".max(": ".min("},
}


@dataclass(frozen=True)
class Mutant:
    """A replacement at a place of a file."""

    file: str
    line: int
    begin: int
    """First byte of the file that is replaced, and the end."""
    end: int
    new: str


def python_mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module, outside annotations."""
    source, name = path.read_bytes(), str(path.relative_to(CHECKOUT))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def before(node: ast.expr) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def after(node: ast.expr) -> int:
        return starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def replaced(begin: int, end: int, pattern: str, new: str) -> Iterator[Mutant]:
        text = source[begin:end].decode()
        if found := re.search(pattern, text):
            line = max(number for number, start in enumerate(starts, 1) if start <= begin)
            yield Mutant(name, line, begin, end, text[: found.start()] + new + text[found.end() :])

    def whole(node: ast.expr, new: str) -> Iterator[Mutant]:
        return replaced(before(node), after(node), r"(?s)^.*$", new)

    def text_of(node: ast.expr) -> str:
        return source[before(node) : after(node)].decode()

    tree = ast.parse(source)
    annotations = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    skipped = {id(node) for each in annotations if each is not None for node in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from replaced(after(left), before(right), r"[^\s()]+( \w+)?", OPERATORS[type(operator)])
            case ast.BinOp(left=left, op=(ast.Add() | ast.Sub() | ast.Mult() | ast.Div()) as operator, right=right):
                yield from replaced(after(left), before(right), r"[-+*/]", OPERATORS[type(operator)])
            case ast.BoolOp(op=operator, values=[first, second, *_]):
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                yield from replaced(after(first), before(second), old, new)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from whole(node, f"({text_of(operand)})")
            case ast.If(test=test) | ast.IfExp(test=test) if "TYPE_CHECKING" not in text_of(test):
                yield from whole(test, f"(not ({text_of(test)}))")
            case ast.Constant(value=bool() as value):
                yield from whole(node, str(not value))
            case ast.Constant(value=int() | float() as value):
                yield from whole(node, str(value + 1 if isinstance(value, int) else (value * 2 or 1.0)))
            case ast.Call(func=ast.Name(id=called) as function) if called in CALLS:
                yield from whole(function, CALLS[called])


def rust_mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file up to its tests, outside comments and attributes."""
    start, name = 0, str(path.relative_to(CHECKOUT))
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if line.startswith(b"#[cfg(test)]"):
            return
        code = line.split(b"//")[0].decode()
        is_skipped = code.strip().startswith(("#", "use ", "impl", "pub struct")) or "where" in code
        found = (
            []
            if is_skipped
            else [(each, new) for old, new in RUST.items() for each in re.finditer(re.escape(old), code)]
        )
        if not is_skipped:
            for each in re.finditer(r"(?<![\w.\"])\d[\d_]*(?=(?:u64|u32|usize|f64|i64|[^\w.]|$))", code):
                found.append((each, str(int(each[0].replace("_", "")) + 1)))
        for each, new in found:
            begin = start + len(code[: each.start()].encode())
            yield Mutant(name, number, begin, begin + len(each[0].encode()), new)
        start += len(line)


def drawn(seed: int) -> Iterator[tuple[str, Mutant]]:
    """The sample of every area."""
    for area, (count, pattern) in AREAS.items():
        chosen = random.Random(f"{seed} {area}")
        files = sorted(CHECKOUT.glob(pattern))
        every = [each for file in files for each in (rust_mutants if file.suffix == ".rs" else python_mutants)(file)]
        yield from ((area, each) for each in chosen.sample(every, count))


class Tests:
    """Tests by the lines that they execute, and how long each takes."""

    def __init__(self, coverage: Path, junit: Path) -> None:
        self.seconds: dict[str, float] = {}
        for case in ElementTree.parse(junit).iter("testcase"):
            if not any(each.tag in ("failure", "error", "skipped") for each in case):
                folder, file, *classes = re.split(r"\.(?=test_)|\.(?=[A-Z])", case.attrib["classname"])
                name = "::".join([f"{folder.replace('.', '/')}/{file}.py", *classes, case.attrib["name"]])
                self.seconds[name] = float(case.attrib["time"])
        self.of_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.of_file: dict[str, set[str]] = defaultdict(set)
        rows = sqlite3.connect(coverage).execute(
            "SELECT file.path, context.context, line_bits.numbits FROM line_bits"
            " JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
        )
        for path, context, bits in rows:
            test = context.partition("|")[0]
            if test not in self.seconds:
                continue
            name = os.path.relpath(path, CHECKOUT)
            self.of_file[name].add(test)
            for line in (8 * number + bit for number, byte in enumerate(bits) for bit in range(8) if byte & 1 << bit):
                self.of_line[name, line].add(test)

    def of(self, mutant: Mutant) -> list[str]:
        """Tests of the line, fastest first, of a third of the limit; of the file, where it runs when imported."""
        found = self.of_line.get((mutant.file, mutant.line)) or self.of_file[mutant.file]
        chosen, seconds = [], 0.0
        for test in sorted(found, key=lambda test: (self.seconds[test], test)):
            seconds += self.seconds[test] + 0.01
            if chosen and seconds > LIMIT_S / 3:
                break
            chosen.append(test)
        return chosen


def outcome(mutant: Mutant, copy: Path, tests: list[str], number: int) -> str:
    """`failed` or `timeout`, if the tests notice it; `survived` or `no test`."""
    path = copy / mutant.file
    if not tests and path.suffix == ".py":
        return "no test"
    original = path.read_bytes()
    try:
        path.write_bytes(original[: mutant.begin] + mutant.new.encode() + original[mutant.end :])
        stamp = time.time() + 2 * number + 2  # Bytecode is valid by size and second.
        os.utime(path, (stamp, stamp))
        return rust_outcome(copy, path) if path.suffix == ".rs" else python_outcome(copy, tests)
    finally:
        path.write_bytes(original)


def python_outcome(copy: Path, tests: list[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(tests))
        names.flush()
        command = ["pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "unit or engine or system", f"@{names.name}"]
        environment = {**os.environ, "PYTHONPATH": str(copy / "python")}
        return ended(command, copy, environment, {0: "survived", 1: "failed", 2: "failed", 3: "failed", 4: "failed"})


def rust_outcome(copy: Path, path: Path) -> str:
    package = f"iosonde-{path.relative_to(copy / 'crates').parts[0]}"
    command = ["cargo", "test", "--quiet", "--offline", f"--package={package}"]
    return ended(command, copy, dict(os.environ), {0: "survived", 101: "failed"}, 5 * LIMIT_S)


def ended(
    command: list[str], copy: Path, environment: dict[str, str], codes: dict[int, str], limit_s: int = LIMIT_S
) -> str:
    """Return the meaning of the exit code. The CPU time is limited, which a busy machine does not change."""
    bounded = ["prlimit", f"--cpu={limit_s}", *command]
    process = subprocess.Popen(
        bounded, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
    )
    try:
        output, _ = process.communicate(timeout=10 * limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timeout"
    if b"could not compile" in output:
        return "not compiled"
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    return codes.get(process.returncode, f"exit {process.returncode}")


def main() -> None:
    given = options(__doc__, coverage=Path, junit=Path, only="", seed=20261128)
    tests, found = Tests(given.coverage, given.junit), defaultdict[str, Counter[str]](Counter)
    with tempfile.TemporaryDirectory(prefix="iosonde-mutants-") as directory:
        copy, ignored = Path(directory, "main"), shutil.ignore_patterns(".git", ".venv", "iosonde-results")
        shutil.copytree(CHECKOUT, copy, ignore=ignored, symlinks=True)
        for number, (area, mutant) in enumerate(drawn(given.seed)):
            if given.only not in area:
                continue
            old = (copy / mutant.file).read_bytes()[mutant.begin : mutant.end].decode()
            what = outcome(mutant, copy, tests.of(mutant), number)
            found[area][what] += what != "not compiled"
            print(f"{mutant.file}:{mutant.line} {old!r} -> {mutant.new!r}: {what}", file=sys.stderr, flush=True)
    for area, outcomes in found.items():
        noticed = outcomes["failed"] + outcomes["timeout"]
        print(f"{area:26} {noticed:3} of {outcomes.total():3}  {dict(outcomes)}")


if __name__ == "__main__":
    main()
