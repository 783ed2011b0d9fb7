"""Outputs go to files and pipes, never to a block device: one is written only as a target that `--destroy` names."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from command_line import Iosonde
from fabricate import result_set, small_study
from loop_stacks import loop_devices

MIB = 1 << 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result_set(tmp_path_factory.mktemp("sets") / "set", small_study(), seconds=1).directory


COMMANDS = (
    ("report", "{set}", "--output"),
    ("report", "{set}", "--format", "md", "--output"),
    ("library", "{set}/..", "--output"),
    ("history", "{set}/..", "--output"),
    ("check", "{set}", "--baseline", "{other}", "--junit"),
    ("check", "{set}", "--baseline", "{other}", "--markdown"),
)


@pytest.mark.system
@pytest.mark.needs("root", "loop devices")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_block_device_is_no_output(
    command: tuple[str, ...], directory: Path, tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = result_set(tmp_path / "other", small_study(), seconds=1).directory if "check" in command else ""
    with loop_devices(tmp_path, 8 * MIB) as [device]:
        content = b"years of work".ljust(8 * MIB, b"x")
        device.write_bytes(content)
        (tmp_path / "link").symlink_to(device)
        for name in (device, tmp_path / "link"):
            done = iosonde(*(each.format(set=directory, other=other) for each in command), name)
            assert done.returncode == (2 if "check" in command else 1)
            assert f"`{name}`: it is a block device" in done.stderr
        assert device.read_bytes() == content


@pytest.mark.parametrize("command", ["library", "history"])
def test_a_page_replaces_no_file_of_another_program(command: str, tmp_path: Path, iosonde: Iosonde) -> None:
    result_set(tmp_path / "set", small_study(), seconds=1)
    page = tmp_path / f"{command}.html"
    page.write_text("<title>My books</title>")
    done = iosonde(command, tmp_path)
    assert done.returncode == 1
    assert f"`{page}` already exists and was not written by iosonde" in done.stderr
    assert page.read_text() == "<title>My books</title>"
    page.unlink()
    for _ in range(2):
        assert iosonde(command, tmp_path).returncode == 0
    assert 'content="iosonde"' in page.read_text()


def test_a_page_is_not_written_to_standard_output(
    directory: Path, tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("report", "library", "history"):
        done = iosonde(command, directory, "--output", "-")
        assert done.returncode == 2
        assert "cannot write a page to standard output; use a file name" in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_and_a_link_are_outputs(directory: Path, tmp_path: Path, iosonde: Iosonde) -> None:
    (tmp_path / "page").write_text("longer than the page" * 100_000)
    (tmp_path / "link").symlink_to(tmp_path / "page")
    assert iosonde("report", directory, "--output", tmp_path / "link").returncode == 0
    assert (tmp_path / "page").read_text().rstrip().endswith("</html>")
    assert (tmp_path / "link").is_symlink()
    pipe, end = os.pipe()
    with os.fdopen(pipe, "rb") as reading, os.fdopen(end, "wb"):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, MIB)
        done = iosonde("library", directory.parent, "--output", f"/dev/fd/{end}")
        assert done.returncode == 0, done.stderr
        assert reading.read(15) == b"<!doctype html>"
