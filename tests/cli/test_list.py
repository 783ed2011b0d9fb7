"""Studies as `iosonde list` and `iosonde show` present them."""

from __future__ import annotations

import re
from pathlib import Path

from command_line import CHECKOUT, Iosonde

from iosonde.data import adapters, shipped


def test_list_shows_every_study_once_with_its_time_title_and_needs(iosonde: Iosonde) -> None:
    shown = iosonde("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = re.findall(r"^  (\S+) +(≤?[0-9.]+ (?:min|h))  (.*)$", shown.stdout, re.MULTILINE)
    listed = {name: (time, rest) for name, time, rest in rows}
    assert sorted(name for name, _, _ in rows) == sorted([*shipped(), *adapters()])
    assert listed["quick"] == ("2 min", "Two-minute overview of a disk")
    assert listed["snia-iops"] == ("≤4.0 h", "Random IOPS in steady state, by block size and mix")
    assert listed["han2021-tpcc"][1] == "TPC-C on MariaDB InnoDB over RAID levels [root, 8 devices, MariaDB]"
    headings = re.findall(r"^(\w.*)$", shown.stdout, re.MULTILINE)
    assert headings[:2] == ["One device", "Latency under load"]
    assert headings[-1] == "Times are those of the profile `standard`. Details: iosonde show STUDY"


def test_times_with_ramps_until_steady_are_upper_bounds(iosonde: Iosonde, tmp_path: Path) -> None:
    assert "36 runs, at most about 54 min 7 s" in iosonde("show", "log-device").stdout
    planned = iosonde("plan", "ycsb", "--target", tmp_path, "--profile", "quick")
    assert "\ntime      at most about 1 min" in planned.stdout
    fixed = iosonde("plan", "ycsb", "--target", tmp_path, "--profile", "quick", "--set", "ramp_until=time")
    assert "\ntime      about 1 min" in fixed.stdout


def test_list_shows_every_simulated_drive(iosonde: Iosonde) -> None:
    shown = iosonde("list", "--drives")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "sim:p900      Intel Optane SSD 900P 480 GB (3D XPoint)" in shown.stdout.splitlines()
    assert len(shown.stdout.splitlines()) == 9


def test_show_prints_question_factors_profiles_and_source(iosonde: Iosonde) -> None:
    shown = iosonde("show", "han2021-device")
    assert (shown.returncode, shown.stderr) == (0, "")
    text = shown.stdout
    assert text.startswith("Buffered and direct I/O with 64 threads and a file each (han2021-device)\n\nDoes the page")
    assert "\nSource: Han et al. 2021, Optane SSDs in RAID (Table 1), measured with fio\n" in text
    assert "\npart device\n  access     sequential random\n  operation  read write\n  io_mode    buffered" in text
    assert re.search(
        r"^  quick +8 cases, 28 runs, about 39\.2 s\n +64 files of 32 MiB, in a minute$", text, re.MULTILINE
    )
    assert "\npublished values\n  Han 2021, Table 1 (han2021_table1_single_device.csv)\n" in text
    assert text.endswith(f"file: {CHECKOUT}/python/iosonde/data/studies/han2021-device.toml\n")


def test_show_takes_a_file_of_ones_own(iosonde: Iosonde, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('name = "own"\ntitle = "Own"\nquestion = "Why?"\n[[parts]]\n[profiles.standard]\n')
    shown = " ".join(iosonde("show", own).stdout.split())
    assert shown == "Own (own) Why? part main one case profiles standard 1 case, 3 runs, about 36.6 s"
