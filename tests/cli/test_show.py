from __future__ import annotations

from pathlib import Path

from command_line import CHECKOUT, Iosonde
from inline_snapshot import snapshot


def test_show_prints_question_factors_profiles_and_source(iosonde: Iosonde) -> None:
    shown = iosonde("show", "han2021-device")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.replace(str(CHECKOUT), "CHECKOUT") == snapshot("""\
Buffered and direct I/O with 64 threads and a file each (han2021-device)

Does the page cache help or hinder this device, and does it matter whether
access is sequential or random?

64 threads, each with its own file, 512 KiB per I/O: sequential and random reads
and writes, buffered and direct. It is the baseline of the publication's RAID
study, in which all three devices are nearly equal in both modes. Each repeat
starts with the files' pages dropped from the cache. Buffered writes complete
when the cache has them, as in the publication, so with files that fit in memory
they measure memory rather than the device.

Source: Han et al. 2021, Optane SSDs in RAID (Table 1), measured with fio

part device
  access     sequential random
  operation  read write
  io_mode    buffered direct

profiles
  quick     8 cases, 28 runs, about 39.2 s
            64 files of 32 MiB, in a minute
  standard  8 cases, 46 runs, about 8 min 35 s
            64 files of 256 MiB, in ten minutes
  paper     8 cases, 46 runs, about 6 h 8 min
            64 files of 4 GiB, each read or written once, five repeats

published values
  Han 2021, Table 1 (han2021_table1_single_device.csv)

file: CHECKOUT/python/iosonde/data/studies/han2021-device.toml
""")


def test_show_takes_a_file_of_ones_own(iosonde: Iosonde, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('name = "own"\ntitle = "Own"\nquestion = "Why?"\n[[parts]]\n[profiles.standard]\n')
    assert iosonde("show", own).stdout == snapshot("""\
Own (own)

Why?

part main
  one case

profiles
  standard  1 case, 3 runs, about 36.6 s
""")
