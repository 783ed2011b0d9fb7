"""How many small faults the tests notice: mutants of the code that decides about values, verdicts and data.

A mutant changes one operator, constant or branch. The sample in `mutants.json` was drawn once (`draw`), from the areas
in `AREAS`, so that scores of two versions of the tests compare. `run` tries each mutant of Python on the tests that
coverage assigns to its line, fastest first, and each of Rust on the tests of its crate, in a copy of the checkout.

    pip install pytest-cov
    pytest -m "unit or engine" --cov=python/iosonde --cov-context=test --cov-report= --junitxml=JUNIT
    python bench/mutation.py run --coverage .coverage --junit JUNIT --out results.json
"""

from __future__ import annotations

import argparse
import ast
import json
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
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLE = Path(__file__).with_name("mutants.json")
SEED = 20261128
LIMIT_S = 60
"""Of one mutant: tests of a third of it are chosen, so that what exceeds it hangs."""
AREAS = {
    "verdict": (35, ["python/iosonde/verdict/*.py"]),
    "metrics and statistics": (40, ["python/iosonde/metrics/*.py", "python/iosonde/metrics/intervals/*.py"]),
    "guard and journal": (35, ["python/iosonde/storage/safety/*.py"]),
    "comparison and regression": (35, ["python/iosonde/comparison/*.py", "python/iosonde/regression/[dcs]*.py"]),
    "fio import": (25, ["python/iosonde/interop/fio/*.py", "python/iosonde/interop/fio/aspects/*.py"]),
    "histogram and pacing": (30, ["crates/metrics/src/histogram.rs", "crates/load/src/arrival.rs",
                                  "crates/load/src/schedule.rs"]),
}  # fmt: skip
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
    """A replacement at a place of a file; `old` proves that the file is still the one that was drawn from."""

    area: str
    file: str
    line: int
    column: int
    """In bytes of UTF-8."""
    old: str
    new: str


def python_mutants(area: str, path: Path) -> Iterator[Mutant]:
    """Every mutant of a module, outside annotations."""
    source = path.read_text(encoding="utf-8")
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)

    def between(first: ast.AST, second: ast.AST) -> tuple[int, int]:
        return starts[first.end_lineno - 1] + first.end_col_offset, starts[second.lineno - 1] + second.col_offset  # type: ignore[attr-defined]

    def mutant(begin: int, end: int, new: str) -> Mutant:
        line = max(number for number, start in enumerate(starts) if start <= begin)
        place = str(path.relative_to(CHECKOUT))
        return Mutant(area, place, line + 1, begin - starts[line], whole[begin:end].decode(), new)

    def span(node: ast.expr) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (
            node.end_col_offset or 0
        )

    tree = ast.parse(source)
    skipped = {ast.dump(node, include_attributes=True) for node in _annotations(tree)}
    for node in ast.walk(tree):
        if ast.dump(node, include_attributes=True) in skipped:
            continue
        match node:
            case ast.Compare(ops=[operator], comparators=[right]):
                begin, end = between(node.left, right)
                text = whole[begin:end].decode()
                yield mutant(begin, end, text.replace(text.strip(" ()\n"), OPERATORS[type(operator)], 1))
            case ast.BinOp(op=(ast.Add() | ast.Sub() | ast.Mult() | ast.Div()) as operator):
                begin, end = between(node.left, node.right)
                text = whole[begin:end].decode()
                symbol = re.search(r"[-+*/]", text)
                if symbol:
                    yield mutant(begin, end, text.replace(symbol[0], OPERATORS[type(operator)], 1))
            case ast.BoolOp(op=operator, values=[first, second, *_]):
                begin, end = between(first, second)
                text = whole[begin:end].decode()
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                yield mutant(begin, end, text.replace(old, new, 1))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield mutant(*span(node), f"({ast.get_source_segment(source, operand)})")
            case ast.If(test=test) | ast.IfExp(test=test) if "TYPE_CHECKING" not in ast.dump(test):
                yield mutant(*span(test), f"(not ({ast.get_source_segment(source, test)}))")
            case ast.Constant(value=bool() as value):
                yield mutant(*span(node), str(not value))
            case ast.Constant(value=int() | float() as value):
                yield mutant(*span(node), str(value + 1 if isinstance(value, int) else (value * 2 or 1.0)))
            case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
                yield mutant(*span(called), CALLS[name])


def _annotations(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if each is not None:
                yield from ast.walk(each)


def rust_mutants(area: str, path: Path) -> Iterator[Mutant]:
    """Every mutant of a file up to its tests, outside comments and attributes."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#[cfg(test)]"):
            return
        code = line.split("//")[0]
        if not code.strip() or code.strip().startswith(("#", "use ", "impl", "pub struct")) or "where" in code:
            continue
        place = str(path.relative_to(CHECKOUT))
        for old, new in RUST.items():
            for found in re.finditer(re.escape(old), code):
                yield Mutant(area, place, number, len(code[: found.start()].encode()), old, new)
        for found in re.finditer(r"(?<![\w.\"])\d[\d_]*(?=(?:u64|u32|usize|f64|i64|[^\w.]|$))", code):
            text = found[0].rstrip("_")
            yield Mutant(
                area, place, number, len(code[: found.start()].encode()), text, str(int(text.replace("_", "")) + 1)
            )


def draw() -> None:
    """Draw the sample, and write it."""
    random.seed(SEED)
    drawn: list[Mutant] = []
    for area, (count, patterns) in AREAS.items():
        files = sorted(path for pattern in patterns for path in CHECKOUT.glob(pattern))
        every = [
            each for path in files for each in (rust_mutants if path.suffix == ".rs" else python_mutants)(area, path)
        ]
        drawn += random.sample(every, count)
        print(f"{area}: {count} of {len(every)}", file=sys.stderr)
    rows = ",\n".join(json.dumps(asdict(each)) for each in drawn)
    SAMPLE.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


def sample() -> list[Mutant]:
    """The mutants that were drawn."""
    return [Mutant(**each) for each in json.loads(SAMPLE.read_text(encoding="utf-8"))]


class Tests:
    """Tests by the lines that they execute, and how long each takes."""

    def __init__(self, coverage: Path, junits: list[Path], root: Path) -> None:
        self.seconds: dict[str, float] = {}
        for case in (case for junit in junits for case in ElementTree.parse(junit).iter("testcase")):
            if not any(each.tag in ("failure", "error", "skipped") for each in case):
                folder, file, *classes = re.split(r"\.(?=test_)|\.(?=[A-Z])", case.attrib["classname"])
                name = "::".join([f"{folder.replace('.', '/')}/{file}.py", *classes, case.attrib["name"]])
                self.seconds[name] = float(case.attrib["time"])
        self.of_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.of_file: dict[str, set[str]] = defaultdict(set)
        connection = sqlite3.connect(coverage)
        rows = connection.execute(
            "SELECT file.path, context.context, line_bits.numbits FROM line_bits"
            " JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
        )
        for path, context, bits in rows:
            test = context.partition("|")[0]
            if test not in self.seconds:
                continue
            name = os.path.relpath(path, root)
            self.of_file[name].add(test)
            for number, byte in enumerate(bits):
                for bit in range(8):
                    if byte & 1 << bit:
                        self.of_line[name, 8 * number + bit].add(test)

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
    original = path.read_bytes()
    lines = original.split(b"\n")
    rest = b"\n".join(lines[mutant.line - 1 :])
    assert rest[mutant.column :].startswith(mutant.old.encode()), mutant
    changed = rest[: mutant.column] + mutant.new.encode() + rest[mutant.column + len(mutant.old.encode()) :]
    if not tests and path.suffix == ".py":
        return "no test"
    try:
        path.write_bytes(b"\n".join([*lines[: mutant.line - 1], changed]))
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
    crate = path.relative_to(copy / "crates").parts[0]
    command = ["cargo", "test", "--quiet", "--offline", "--package", f"iosonde-{crate}"]
    # What the crate's users test of it: the harness paces and counts by these.
    if crate in ("metrics", "load"):
        command += ["--package", "iosonde-harness"]
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


def run(arguments: argparse.Namespace) -> None:
    """Try every mutant, and write what happened to it."""
    tests = Tests(arguments.coverage, arguments.junit, arguments.root)
    part, of = map(int, arguments.part.split("/"))
    found = []
    with tempfile.TemporaryDirectory(prefix="iosonde-mutants-") as directory:
        copy = Path(directory, "main")
        shutil.copytree(
            arguments.root, copy, ignore=shutil.ignore_patterns(".git", ".venv", "iosonde-results"), symlinks=True
        )
        for number, mutant in enumerate(sample()):
            if number % of != part or (arguments.only and arguments.only not in mutant.area):
                continue
            chosen = tests.of(mutant)
            what = outcome(mutant, copy, chosen, number)
            found.append({**asdict(mutant), "number": number, "tests": len(chosen), "outcome": what})
            print(
                f"{number} {mutant.file}:{mutant.line} {mutant.old!r} -> {mutant.new!r}: {what}",
                file=sys.stderr,
                flush=True,
            )
            arguments.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found)


def show(found: list[dict[str, object]]) -> None:
    for area in AREAS:
        outcomes = Counter(
            each["outcome"] for each in found if each["area"] == area and each["outcome"] != "not compiled"
        )
        noticed = outcomes["failed"] + outcomes["timeout"]
        print(f"{area:26} {noticed:3} of {sum(outcomes.values()):3}  {dict(outcomes)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["draw", "run", "show"])
    parser.add_argument("--coverage", type=Path)
    parser.add_argument("--junit", type=Path, nargs="*")
    parser.add_argument(
        "--root", type=Path, default=CHECKOUT, help="checkout whose tests run, and to which the coverage belongs"
    )
    parser.add_argument("--part", default="0/1", help="every N-th mutant only: I/N")
    parser.add_argument("--only", help="mutants of an area only")
    parser.add_argument("--out", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.what == "draw":
        draw()
    elif arguments.what == "run":
        [arguments.out] = arguments.out
        run(arguments)
    else:
        show([each for path in arguments.out for each in json.loads(path.read_text(encoding="utf-8"))])


if __name__ == "__main__":
    main()
