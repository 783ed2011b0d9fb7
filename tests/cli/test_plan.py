from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from command_line import Iosonde
from inline_snapshot import snapshot

from iosonde.cli.commands.plan import lines
from iosonde.cli.tables import text_width
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.storage import open_target


def anonymous(text: str, target: Path) -> str:
    return re.sub("iosonde-[0-9a-f]{8}", "iosonde-XXXXXXXX", text.replace(str(target), "DIR"))


def test_plan_shows_every_case_its_cost_and_what_is_created(iosonde: Iosonde, tmp_path: Path) -> None:
    shown = iosonde("plan", "quick", "--target", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert anonymous(shown.stdout, tmp_path) == snapshot("""\
Two-minute overview of a disk (quick, profile standard)
on DIR

question  What bandwidth, IOPS and latency does this disk deliver, and at which
          queue depth?
runs      43, shuffled (seed 2)
time      about 1 min 37 s
writes    at most 3.86 GiB, 1 GiB of it before measuring
power     with 3 repeats a difference of 13 % between two sessions (5.7 % in an
          A/B run) will be found with 90 % probability, if run-to-run noise is
          2 % (assumed)
target    DIR/iosonde-XXXXXXXX:
          creates a directory with 1 GiB of files and removes it at the end

sequential: Sequential, 1 MiB (4 cases x 3 runs of 2 s)
  access sequential, block_size 1MiB, jobs 1, span 1GiB, io_mode direct,
  backend uring, ramp 400ms, duration 1600ms, interval 200ms
  operation read: read_fraction 1
  operation write: read_fraction 0, limit_bytes 224MiB, ramp_bytes 32MiB
    queue_depth 1  operation read write
    queue_depth 8  operation read write

random: Random, 4 KiB (8 cases x 3 runs of 2 s)
  access random, block_size 4KiB, jobs 1, span 1GiB, io_mode direct,
  backend uring, ramp 400ms, duration 1600ms, interval 200ms
  operation read: read_fraction 1
  operation write: read_fraction 0, limit_bytes 72MiB, ramp_bytes 8MiB
    operation read   queue_depth 1 4 16 64
    operation write  queue_depth 1 4 16 64

mix: Random, 4 KiB, 70 % reads (1 case x 3 runs of 2 s)
  access random, block_size 4KiB, queue_depth 16, jobs 1, read_fraction 0.7,
  span 1GiB, io_mode direct, backend uring, ramp 400ms, ramp_bytes 16MiB,
  duration 1600ms, limit_bytes 128MiB, interval 200ms

control (4 runs, one after every 13)
  access random, block_size 4KiB, queue_depth 4, jobs 1, read_fraction 1,
  span 1GiB, io_mode direct, backend uring, ramp 400ms, duration 1600ms,
  interval 200ms
""")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_340_cases_names_each_and_fits_on_a_screen(iosonde: Iosonde) -> None:
    shown = iosonde("plan", "davidovic2019-grid", "--target", "null:1TiB", "--profile", "paper").stdout
    rows = re.findall(r"block_size ((?:[0-9]+(?:B|KiB|MiB)\s+)+)", shown)
    assert sum(len(row.split()) for row in rows) == 340
    assert len(shown.splitlines()) < 80


def test_streams_that_differ_are_shown_apart(iosonde: Iosonde, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'name = "own"\ntitle = "Own"\nquestion = "?"\n[[parts]]\n'
        'streams = [{ name = "reader" }, { name = "writer", set = { read_fraction = 0, queue_depth = 2 } }]\n'
        "factors.jobs = [1, 2]\n[profiles.standard]\n"
    )
    shown = " ".join(iosonde("plan", own, "--target", "null:1GiB").stdout.split())
    assert "runs 6, shuffled (seed 1)" in shown and "writes nothing creates nothing" in shown
    assert "reader.queue_depth 1, writer.queue_depth 2, reader.read_fraction 1, writer.read_fraction 0" in shown


def test_plan_as_json_is_the_plan_itself(iosonde: Iosonde, tmp_path: Path) -> None:
    arguments = ["--profile", "quick", "--repeats", "1", "--seed", "9", "--set", "queue_depth=2", "--keep"]
    shown = iosonde("plan", "quick", "--target", tmp_path / "new", *arguments, "--json")
    plan = Plan.model_validate(json.loads(shown.stdout))
    assert (plan.profile, plan.repeats, plan.seed, plan.keep) == ("quick", 1, 9, True)
    assert plan.settings == {"queue_depth": "2"}
    assert not (tmp_path / "new").exists()


def test_a_plan_that_cannot_be_carried_out_is_refused(iosonde: Iosonde, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    wrong = {
        ("/dev/null",): "`/dev/null` is neither a directory nor a file",
        (tmp_path / "precious",): "exists already, and would be overwritten",
        ("null:1GiB", "--set", "span=2GiB"): "`null:1GiB` is too small: 1 GiB, and 2 GiB are needed",
        ("null:1GiB", "--seed", "-1"): "`--seed` must be a whole number from 0 to 2^64 - 1; got `-1`",
        ("null:1GiB", "--set", "queue_depth"): "`--set` must be NAME=VALUE, such as `--set queue_depth=1,4,16`",
    }
    for arguments, problem in wrong.items():
        refused = iosonde("plan", "quick", "--target", *arguments)
        assert (refused.returncode, refused.stdout) == (2 if "must be" in problem else 1, "")
        assert problem in refused.stderr
    assert (tmp_path / "precious").read_text() == "data"


def test_a_store_s_options_are_shown_as_a_study_writes_them_one_a_piece(iosonde: Iosonde, tmp_path: Path) -> None:
    shown = iosonde("plan", "han2021-dbbench", "--target", tmp_path, "--profile", "quick").stdout
    words = [word.strip() for word in shown.replace("\n", ",").split(",")]
    assert "rocksdb write_buffer_size=8388608" in words
    assert "rocksdb use_direct_io_for_flush_and_compaction=true" in words
    assert "duration none" in words


@pytest.mark.parametrize(
    ("option", "value"), [("--server", "{}"), ("--set", "server_url={}"), ("--server", "{}/name?sslmode=off")]
)
def test_an_error_names_the_option_of_the_server_and_not_its_password(
    iosonde: Iosonde, option: str, value: str
) -> None:
    done = iosonde("plan", "oltp", "--target", "null:1GiB", option, value.format("postgresql://me:geheim@host:5432"))
    assert done.returncode != 0
    assert f"in `{option}" in done.stderr and "contains a password" in done.stderr and "PGPASSWORD" in done.stderr
    assert "geheim" not in done.stderr + done.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.unit
def test_a_plan_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = expand(load("quick"), open_target("null:1GiB"))
    monkeypatch.setenv("COLUMNS", "70")
    assert text_width() == 80
    monkeypatch.setattr(sys, "stdout", Terminal())
    for columns, width in (("20", 40), ("64", 64), ("100", 100), ("300", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert text_width() == width
    monkeypatch.setenv("COLUMNS", "70")
    narrow = list(lines(plan))
    monkeypatch.setenv("COLUMNS", "110")
    wide = list(lines(plan))
    assert max(map(len, narrow)) <= 70 < max(map(len, wide)) <= 110
    assert " ".join(narrow).split() == " ".join(wide).split()
