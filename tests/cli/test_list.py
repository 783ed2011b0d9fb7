"""Commands that measure nothing: `iosonde list`, `show`, `plan` and `devices`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT, Iosonde
from inline_snapshot import snapshot

from iosonde.cli.commands.doctor import lines
from iosonde.data import adapters, shipped
from iosonde.plan import Plan
from iosonde.storage.block_layer import block_stack
from iosonde.storage.safety.guard import Device, DevicePart, Findings


def test_list_shows_every_study_once_with_its_time_title_and_needs(iosonde: Iosonde) -> None:
    shown = iosonde("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = re.findall(r"^  (\S+) +(≤?[0-9.]+ (?:min|h))  (.*)$", shown.stdout, re.MULTILINE)
    listed = {name: (time, rest) for name, time, rest in rows}
    assert sorted(name for name, _, _ in rows) == sorted([*shipped(), *adapters()])
    assert listed["quick"] == ("1 min", "Two-minute overview of a disk")
    assert listed["snia-iops"] == ("≤3.9 h", "Random IOPS in steady state, by block size and mix")
    assert listed["han2021-tpcc"][1] == "TPC-C on MariaDB InnoDB over RAID levels [root, 8 devices, MariaDB]"


def test_show_prints_question_factors_profiles_and_source(iosonde: Iosonde) -> None:
    shown = iosonde("show", "han2021-device")
    assert (shown.returncode, shown.stderr) == (0, "")
    text = shown.stdout
    assert text.startswith("Buffered and direct I/O with 64 threads and a file each (han2021-device)\n\nDoes the page")
    assert "\nSource: Han et al. 2021, Optane SSDs in RAID (Table 1), measured with fio\n" in text
    assert "\npart device\n  access     sequential random\n  operation  read write\n  io_mode    buffered" in text
    assert re.search(r"^  quick +8 cases, 28 runs, about 41 s\n +64 files of 32 MiB, in a minute$", text, re.MULTILINE)
    assert "\npublished values\n  Han 2021, Table 1 (han2021_table1_single_device.csv)\n" in text
    assert text.endswith(f"file: {CHECKOUT}/python/iosonde/data/studies/han2021-device.toml\n")


def test_show_prints_the_limits_of_an_application_and_their_meaning(iosonde: Iosonde) -> None:
    text = " ".join(iosonde("show", "etcd").stdout.split())
    assert "limits flush.completion_latency_ns_p99 < 10ms (required): Slower log writes delay heartbeats" in text
    assert "standard 1 case, 1 run, about " in text and text.endswith("/data/applications/etcd.toml")


def test_devices_shows_every_block_device_and_whether_it_may_be_written(iosonde: Iosonde) -> None:
    shown = iosonde("devices")
    assert (shown.returncode, shown.stderr) == (0, "")
    blocks = [block for block in shown.stdout.split("\n\n") if "  kind  " in block]
    # Other processes may create and remove devices at the same time.
    assert blocks or not block_stack.all_devices()
    assert all(block.count("\n  overwrite  ") == 1 for block in blocks)


def test_a_mounted_device_is_shown_with_its_directory(iosonde: Iosonde, loop_file_system: Callable[..., Any]) -> None:
    mounted = loop_file_system()
    name = mounted.device.removeprefix("/dev/")
    shown = iosonde("devices").stdout
    own = next(text for text in shown.split("\n\n") if text.startswith(f"{name}  "))
    assert f"in use       {name} (32 MiB) is mounted at `{mounted.directory}`" in own
    assert f"overwrite    no, `{name}` is mounted at `{mounted.directory}`" in own
    assert f"measure files on it with `--target {mounted.directory}`" in own


def test_a_device_with_everything_is_readable() -> None:
    facts = {"size_bytes": 10**12, "kind": "disk", "transport": "nvme", "firmware": "1.0", "rotational": False}
    facts |= {"logical_block_bytes": 512, "physical_block_bytes": 4096, "under": ["sda"], "temperature_celsius": 41.85}
    facts |= {
        "scheduler": "none",
        "nr_requests": 1023,
        "pcie_link": "8.0 GT/s PCIe x4",
        "pcie_link_max": "16.0 GT/s PCIe x4",
    }
    parts = [
        DevicePart(name="nvme0n1", size_bytes=10**12, uses=["contains a gpt partition table"]),
        DevicePart(name="nvme0n1p1", size_bytes=1 << 30, uses=["is swap"]),
        DevicePart(name="nvme0n1p2", size_bytes=1 << 38, uses=["is part of `md0`", "is part of `dm-1`"]),
    ]
    facts |= {"name": "nvme0n1", "model": "FAST 9000"}
    findings = Findings(number="259:0", refusals=["`nvme0n1p1` is swap"])
    device = Device(serial="S1", findings=findings, facts=facts, parts=parts)
    assert "\n".join(lines(device)) == snapshot("""\
nvme0n1  931 GiB, FAST 9000, serial S1, firmware 1.0
  kind         disk, nvme, not rotational
  sectors      512 B logical, 4 KiB physical
  queue        scheduler none, 1023 requests
  link         PCIe 8.0 GT/s PCIe x4 of 16.0 GT/s PCIe x4
  temperature  42 °C
  backed by    sda
  in use       nvme0n1 (931 GiB) contains a gpt partition table
  in use       nvme0n1p1 (1 GiB) is swap
  in use       nvme0n1p2 (256 GiB) is part of `md0`, is part of `dm-1`
  overwrite    no, `nvme0n1p1` is swap\
""")


def test_a_device_of_which_nothing_is_known_has_no_empty_lines_or_columns() -> None:
    """All that the kernel reports of a device may be missing, but its name, kind and size."""
    facts = {"device": "259:0", "name": "sda", "kind": "disk", "size_bytes": 0}
    device = Device(serial="", findings=Findings(number="259:0"), facts=facts, parts=[])
    assert "\n".join(lines(device)) == snapshot("""\
sda  0 B, unknown model, no serial number
  kind         disk, not rotational
  sectors      512 B logical, 512 B physical
  overwrite    yes, with `--target /dev/sda --destroy /dev/sda`\
""")


def anonymous(text: str, target: Path) -> str:
    return re.sub("iosonde-[0-9a-f]{8}", "iosonde-XXXXXXXX", text.replace(str(target), "DIR"))


def test_plan_shows_every_case_its_cost_and_what_is_created(iosonde: Iosonde, tmp_path: Path) -> None:
    shown = iosonde("plan", "quick", "--target", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert anonymous(shown.stdout, tmp_path) == snapshot("""\
Two-minute overview of a disk (quick, profile standard)
on DIR

question  What bandwidth, IOPS and latency does this disk deliver, and at which queue depth?
runs      43, shuffled (seed 2)
time      about 1.3 min
writes    at most 3.86 GiB, 1 GiB of it before measuring
power     with 3 repeats a difference of 13 % between two sessions (5.7 % in an A/B run) will be found with 90 %
          probability, if run-to-run noise is 2 % (assumed)
target    DIR/iosonde-XXXXXXXX:
          creates a directory with 1 GiB of files and removes it at the end

sequential: Sequential, 1 MiB (4 cases x 3 runs of about 1.3 s)
  access sequential, block_size 1MiB, jobs 1, span 1GiB, io_mode direct, backend uring, ramp 400ms, duration 1600ms,
  interval 200ms
  operation read: read_fraction 1
  operation write: read_fraction 0, limit_bytes 224MiB, ramp_bytes 32MiB
    queue_depth 1  operation read write
    queue_depth 8  operation read write

random: Random, 4 KiB (8 cases x 3 runs of about 1.5 s)
  access random, block_size 4KiB, jobs 1, span 1GiB, io_mode direct, backend uring, ramp 400ms, duration 1600ms,
  interval 200ms
  operation read: read_fraction 1
  operation write: read_fraction 0, limit_bytes 72MiB, ramp_bytes 8MiB
    operation read   queue_depth 1 4 16 64
    operation write  queue_depth 1 4 16 64

mix: Random, 4 KiB, 70 % reads (1 case x 3 runs of about 1.8 s)
  access random, block_size 4KiB, queue_depth 16, jobs 1, read_fraction 0.7, span 1GiB, io_mode direct, backend uring,
  ramp 400ms, ramp_bytes 16MiB, duration 1600ms, limit_bytes 128MiB, interval 200ms

control (4 runs, one after every 13)
  access random, block_size 4KiB, queue_depth 4, jobs 1, read_fraction 1, span 1GiB, io_mode direct, backend uring,
  ramp 400ms, duration 1600ms, interval 200ms
""")
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("option", "value"), [("--server", "{}"), ("--set", "server_url={}"), ("--server", "{}/name?sslmode=off")]
)
def test_an_error_names_the_server_s_option_and_not_its_password(iosonde: Iosonde, option: str, value: str) -> None:
    done = iosonde("plan", "oltp", "--target", "null:1GiB", option, value.format("postgresql://me:geheim@host:5432"))
    assert done.returncode != 0
    assert f"in `{option}" in done.stderr and "contains a password" in done.stderr and "PGPASSWORD" in done.stderr
    assert "geheim" not in done.stderr + done.stdout
