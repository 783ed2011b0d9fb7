"""`iosonde verify` as a user meets it, and as the one to ask after a kill in the middle of writing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Iosonde

VERIFIED = ("--span", "4MiB", "--duration", "300ms", "--ramp", "0s", "--read-fraction", "0.5", "--queue-depth", "8")


@pytest.fixture
def kept(iosonde: Iosonde, tmp_path: Path) -> Path:
    """A file that a verified run left, with all blocks known."""
    data = tmp_path / "data"
    done = iosonde("io", "--target", str(data), *VERIFIED, "--set", "verify=after", "--keep")
    assert done.returncode == 0, done.stderr
    return data


def test_what_was_written_is_there(iosonde: Iosonde, kept: Path) -> None:
    done = iosonde("verify", str(kept))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{kept}: 4 MiB checked, no wrong sectors\n"


def test_what_is_wrong_is_listed_with_its_place(iosonde: Iosonde, kept: Path) -> None:
    data = bytearray(kept.read_bytes())
    data[5 * 4096 + 1000] ^= 1
    data[9 * 4096 : 10 * 4096] = data[2 * 4096 : 3 * 4096]
    kept.write_bytes(data)
    done = iosonde("verify", str(kept.parent))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].endswith(" checked, 9 wrong sectors")
    assert "  1 sector flipped: bits differ from what was written" in lines
    assert "  8 sectors misdirected: data belongs to another offset" in lines
    assert any(line.startswith(f"  {kept} at {5 * 4096 + 512}, 512 bytes flipped: ") for line in lines)
    assert any(line.startswith(f"  {kept} at {9 * 4096}, 4096 bytes misdirected: ") for line in lines)
    (result,) = json.loads(iosonde("verify", str(kept), "--json").stdout)
    assert result["faults"]["misdirected"] == 8


def test_a_run_that_meets_wrong_data_warns_and_keeps_what_it_found(
    iosonde: Iosonde, kept: Path, tmp_path: Path
) -> None:
    data = bytearray(kept.read_bytes())
    data[1000] ^= 1
    kept.write_bytes(data)
    output = tmp_path / "results"
    again = (*VERIFIED, "--read-fraction", "1", "--set", "verify=during", "--set", "access=sequential")
    again += ("--duration", "60s", "--set", "limit_bytes=4MiB")
    done = iosonde("io", "--target", str(kept), *again, "--output", str(output))
    assert done.returncode == 0
    assert "warning: data read differs from data written (sectors: " in done.stderr
    rows = iosonde("sql", str(output), "SELECT fault, offset_bytes, bytes FROM faults", "--format", "csv").stdout
    assert rows.split() == ["fault,offset_bytes,bytes", "flipped,512,512"]
    rows = iosonde("sql", str(output), "SELECT wrong_sectors > 0 AS wrong FROM runs", "--format", "csv").stdout
    assert rows.split() == ["wrong", "true"]
    assert not kept.exists()
    assert not kept.with_name("data.verify").exists(), "what was kept goes with its file"


def test_verification_of_data_written_without_it_is_refused(iosonde: Iosonde, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert iosonde("io", "--target", str(data), *VERIFIED, "--keep").returncode == 0
    done = iosonde("io", "--target", str(data), *VERIFIED, "--set", "verify=after", "--keep")
    assert done.returncode == 1
    refused = f"error: `{data}` cannot be verified: what it holds at offset 0 was written without verification\n"
    assert refused in done.stderr and 'layout = "always"' in done.stderr
    done = iosonde("verify", str(data))
    assert done.returncode == 1
    assert "was written without verification" in done.stderr
    assert "--keep" in done.stderr


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_target_without_anything_verified_is_an_error(iosonde: Iosonde, tmp_path: Path, name: str) -> None:
    done = iosonde("verify", str(tmp_path / name))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("durability", "io_mode"), [("none", "direct"), ("dsync", "direct"), ("flush:8", "direct"), ("flush:8", "buffered")]
)
def test_after_a_kill_in_the_middle_of_writing_nothing_acknowledged_is_missing(
    iosonde: Iosonde, tmp_path: Path, durability: str, io_mode: str
) -> None:
    """Engine and iosonde are killed together, and what they leave is checked at once."""
    command = [sys.executable, "-m", "iosonde", "io", "--target", str(tmp_path), "--span", "8MiB", "--ramp", "0s"]
    settings = {"verify": "during", "durability": durability, "io_mode": io_mode, "read_fraction": "0.2", "jobs": "2"}
    settings |= {"queue_depth": "8", "block_size": "4KiB/70:64KiB/30", "duration": "1h", "interval": "100ms"}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    assert running.stderr
    lines = iter(running.stderr.readline, "")
    seen = [line for line, _ in zip((line for line in lines if "IOPS" in line or "/s" in line), range(3), strict=False)]
    assert seen, "it measures"
    kill_engine_of(running.pid)
    running.kill()
    running.wait()
    running.stderr.close()
    done = iosonde("verify", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 MiB checked, no wrong sectors" in done.stdout


def kill_engine_of(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 300
    while not (numbers := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in numbers:
        os.kill(int(number), signal.SIGKILL)
