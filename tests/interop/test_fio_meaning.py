"""A study made from a job file does what fio does with that file: as many I/Os of as many bytes, section by section."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

from iosonde.execution.session import execute
from iosonde.interop.fio import import_job_file
from iosonde.planning import expand, parse
from iosonde.storage import open_target

pytestmark = [pytest.mark.system, pytest.mark.needs("fio")]

JOBS = Path(__file__).with_name("jobs")
Done = Counter[tuple[str, str, str]]
"""(section, operation, `bytes` or `count`) -> how many."""


def by_fio(path: Path, directory: Path) -> Done:
    command = ["fio", "--output-format=json", f"--output={directory}/fio.json", f"--aux-path={directory}", str(path)]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=300)
    text = (directory / "fio.json").read_text()
    done: Done = Counter()
    for job in json.loads(text[text.index("{") :])["jobs"]:
        for operation in ("read", "write", "trim"):
            add(done, job["jobname"], operation, job[operation]["io_bytes"], job[operation]["total_ios"])
    return +done


def by_iosonde(path: Path, directory: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> Done:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    study = parse(import_job_file(path, environment={}).text)
    results = execute(expand(study, open_target(target), repeats=1), directory / "results")
    assert [record.outcome for record in results.records()] == ["complete"] * len(study.parts)
    rows = results.sql(
        "SELECT part, stream, operation, sum(bytes) AS bytes, sum(count) AS count"
        " FROM intervals JOIN runs USING (run_id) WHERE phase = 'measure' AND operation <> 'flush' GROUP BY ALL"
    )
    several = {part.name: bool(part.streams) for part in study.parts}
    done: Done = Counter()
    for row in rows.iter_rows(named=True):
        section = row["stream"] if several[row["part"]] else row["part"]
        add(done, section, row["operation"], row["bytes"], row["count"])
    return +done


def add(done: Done, section: str, operation: str, size_bytes: Any, count: Any) -> None:
    done[section, operation, "bytes"] += int(size_bytes)
    done[section, operation, "count"] += int(count)


@pytest.mark.parametrize("name", ["phases", "beside", "files"])
def test_without_chance_both_do_exactly_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("fio", "iosonde", "target"):
        (tmp_path / directory).mkdir()
    path = JOBS / f"{name}.fio"
    expected = by_fio(path, tmp_path / "fio")
    assert len(expected) >= 4
    target = str(tmp_path / "target") if name == "files" else "null:1GiB"
    assert by_iosonde(path, tmp_path / "iosonde", target, monkeypatch) == expected


def test_what_fio_verifies_iosonde_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    written, read = "[w]\nrw=randwrite\nsize=4m\nverify=crc32c\n", "[r]\nstonewall\nrw=read\nsize=4m\nverify=crc32c\n"
    (tmp_path / "verify.fio").write_text(written + read)
    (tmp_path / "target").mkdir()
    study = parse(import_job_file(tmp_path / "verify.fio", environment={}).text)
    results = execute(expand(study, open_target(str(tmp_path / "target")), repeats=1), tmp_path / "results")
    rows = results.sql("SELECT part, verified_bytes, wrong_sectors FROM runs ORDER BY part")
    assert rows.rows() == [("r", 4 << 20, 0), ("w", 4 << 20, 0)]
