"""A feature is one folder: `toy` has a parameter, a setup with undo, an instrument, a fact, a metric, a question and a
table, and a study uses them from file to report without a change to any other file.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from iosonde.base import features
from iosonde.features import FEATURES
from iosonde.findings.question import QuestionKind
from iosonde.metrics.metric import Metric
from iosonde.results.column import Column
from iosonde.storage.safety.journal import MOUNTS
from iosonde.study.setup_extension import SetupExtension
from iosonde.study.workload.workload import Backend, Workload

STUDY = """
name = "toy"
title = "A toy"
question = "What is the largest mark?"
repeats = 3

[measurement]
setup_size = "16MiB"
span = "1MiB"
duration = "100ms"
interval = "100ms"
ramp = 0

[[parts]]
factors.toy_mark = [2, 7]

[[analysis]]
kind = "toy_mark"
over = "toy_mark"
metric = "toy_mark_squared"

[profiles.standard]
"""
PYTHON = Path(features.__file__).parents[1]


def iosonde_with_toy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with one more feature than it has."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "iosonde", *arguments],
        env={**os.environ, "PYTHONPATH": path, "IOSONDE_FEATURES": "toy", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.system
@pytest.mark.needs("root", "loop devices")
def test_a_study_with_the_toy_ends_in_a_report_with_its_finding_and_table(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(STUDY)
    output = tmp_path / "set"
    done = iosonde_with_toy("run", str(tmp_path / "toy.toml"), "--target", str(tmp_path), "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "The largest mark squared is 49" in " ".join(done.stdout.split())
    marks = iosonde_with_toy("sql", str(output), "SELECT DISTINCT toy_mark_found FROM runs ORDER BY 1")
    assert marks.stdout.split() == ["toy_mark_found", "2", "7"]
    report = tmp_path / "report.md"
    iosonde_with_toy("report", str(output), "--format", "md", "--output", str(report))
    assert "Toy marks" in report.read_text()
    assert not list(MOUNTS.glob("iosonde-*/toy")), "removed with the setup"


@pytest.mark.engine
def test_a_wrong_value_is_an_error_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(STUDY.replace("[2, 7]", "[-1]"))
    done = iosonde_with_toy("plan", str(tmp_path / "toy.toml"), "--target", str(tmp_path))
    assert done.returncode != 0 and "`toy_mark` must be at least 0" in done.stderr


@pytest.mark.engine
def test_a_study_can_have_the_workload_of_the_toy(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(STUDY.replace("repeats = 3", 'workload = "toy_load"\nrepeats = 3'))
    arguments = ("plan", str(tmp_path / "toy.toml"), "--target", str(tmp_path))
    done = iosonde_with_toy(*arguments)
    assert done.returncode == 0, done.stderr
    (tmp_path / "toy.toml").write_text(STUDY.replace("repeats = 3", 'workload = "toy_loads"\nrepeats = 3'))
    done = iosonde_with_toy(*arguments)
    assert done.returncode != 0 and "`toy_loads` is no workload" in done.stderr
    assert "did you mean `toy_load`?" in done.stderr


@pytest.mark.engine
def test_a_target_can_be_of_the_kind_of_the_toy(tmp_path: Path) -> None:
    plain, asked = STUDY.replace("factors.toy_mark = [2, 7]\n", ""), STUDY[STUDY.index("[[analysis]]") :]
    plain = plain.replace('setup_size = "16MiB"\n', "").replace(asked, "[profiles.standard]\n")
    (tmp_path / "toy.toml").write_text(plain)
    output = tmp_path / "set"
    done = iosonde_with_toy("run", str(tmp_path / "toy.toml"), "--target", "toy:box", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "A toy on toy:box" in done.stderr
    assert "toy:box" in iosonde_with_toy("list", "--drives").stdout
    refused = iosonde_with_toy("plan", "quick", "--target", "toys:x")
    assert "the kinds are `null`, `simulated`, `sim`, `nfs` and `toy`" in " ".join(refused.stderr.split())


CORE = [path for path in PYTHON.iterdir() if path.is_dir() and path.name not in ("features", "data", "__pycache__")]
LEFT_OUT = ("base/memory.py", "base/tools.py", "engine/protocol/validation.py")
"""Counters of the kernel with names of columns; packages that features need; the check of specs and records, some of which
have stores that the protocol no longer has."""


WORDS = ("zram", "zswap", "memcached", "cassandra", "mongodb", "rocksdb", "lmdb", "wiredtiger")
"""Terms of features that are no names of what they contribute."""


ORDINARY = {"array_state", "cache_hit_ratio"}
"""Parameters whose names are those of a file of the kernel and of a metric of the core too."""


def names_of_features() -> set[str]:
    """Return the names of the folders, and of the parameters, columns, metrics and questions that they contribute.

    A parameter of one word, such as `cache`, may be an ordinary word of the core.
    """
    contributed = features.contributed
    models: list[type[BaseModel]] = [
        *(extension.parameters for extension in contributed("setup", "EXTENSIONS", SetupExtension)),
        *contributed("setup", "SETTINGS"),
        *(each.parameters for each in contributed("backends", "BACKENDS", Backend) if each.parameters),
    ]
    return {
        *WORDS,
        *(name for model in models for name in model.model_fields if "_" in name and name not in ORDINARY),
        *(name.rpartition(".")[2] for name in FEATURES),
        *(column.name for column in contributed("facts", "COLUMNS", Column)),
        *(backend.name for backend in contributed("backends", "BACKENDS", Backend)),
        *(metric.name for metric in contributed("facts", "METRICS", Metric)),
        *(name for name, _ in contributed("facts", "COUNTERS", tuple)),
        *(kind.name for kind in contributed("questions", "KINDS", QuestionKind)),
    }


def texts_of(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the strings and identifiers of a file with their lines, if something wanted is anywhere in it."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if wanted.search(source) else ():
        for field in ("id", "attr", "name", "module", "value", "arg"):
            text = getattr(node, field, "")
            if isinstance(text, str):
                yield getattr(node, "lineno", 0), text


SHARED = {
    *("command", "durability", "arrays"),
    *("voluntary_switches", "involuntary_switches", "fs_inputs", "fs_outputs", "stalled_ns", "database_bytes"),
    "read_cache",
}
"""Names that other things have, too: a subcommand, a parameter of writes, a topic, counters of the kernel, the engine and
PostgreSQL, and a directory in targets of specs."""


def test_the_core_does_not_name_a_feature() -> None:
    """No import, string or identifier of the core has the name of a feature, or of what one contributes."""
    pattern = re.compile(
        rf"(?<![a-z_])({'|'.join(sorted(names_of_features() - SHARED))})(?![a-z_])|iosonde\.features\."
    )
    workloads = {each.name for each in features.contributed("workload", "WORKLOADS", Workload)} - SHARED
    either = re.compile("|".join([pattern.pattern, *map(re.escape, workloads)]))
    files = sorted(each for folder in CORE for each in folder.rglob("*.py"))
    found = [
        f"{path}:{line}: {text}"
        for path in files
        if str(path.relative_to(PYTHON)) not in LEFT_OUT
        for line, text in texts_of(path, either)
        if text in workloads or pattern.search(text)
    ]
    assert found == []


ORDINARY_NAMES = {"COLUMNS", "COUNTERS", "EXPORTS", "KINDS", "METRICS", "PARTS", "SETTINGS", "STATES", "WORDS"}
"""Names of tuples that modules of features have for other things, too."""


def test_what_a_feature_lists_stands_where_the_core_reads_it() -> None:
    """A tuple in another module of a feature than the table of `features.py` names would contribute nothing."""
    rows = re.findall(r"^ {4}(?:(\w+)\.py +| {15})([A-Z_]+) ", features.__doc__ or "", re.MULTILINE)
    modules = itertools.accumulate((module for module, _ in rows), lambda above, module: module or above)
    places: dict[str, set[str]] = {}
    for module, (_, name) in zip(modules, rows, strict=True):
        places.setdefault(name, set()).add(module)
    assert len(places) > 30
    found = [
        f"{path}: {name}"
        for path in (PYTHON / "features").rglob("*.py")
        for name in re.findall(r"^([A-Z_]+)\b(?:: [^=]*)? = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name in places.keys() - ORDINARY_NAMES and path.stem not in places[name]
    ]
    assert found == []
