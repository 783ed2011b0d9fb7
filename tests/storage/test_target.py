"""Valid and invalid targets: real files, real mounts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.storage import DirectoryTarget, FileTarget, VirtualTarget, open_target
from iosonde.storage.safety import journal
from iosonde.storage.targets.file_target import looks_like_mount_point


def refusal(text: str | Path, *, hide: Path | None = None) -> str:
    with pytest.raises(TargetError) as caught:
        open_target(str(text))
    return str(caught.value).replace(str(hide), "DIR") if hide else str(caught.value)


def test_in_a_directory_iosonde_uses_a_fresh_one_of_its_own(tmp_path: Path) -> None:
    first, second = open_target(str(tmp_path)), open_target(str(tmp_path))
    assert isinstance(first, DirectoryTarget)
    spec = first.spec_target("shared", 4096)
    assert Path(spec["path"]).parent.parent == tmp_path
    assert spec["path"] != second.spec_target("shared", 4096)["path"]
    assert first.spec_target("per_job", 4096)["directory"] == str(Path(spec["path"]).parent)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_exist_is_a_target_but_not_one_for_each_job(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "new"))
    assert isinstance(target, FileTarget)
    assert target.spec_target("shared", 4096) == {"kind": "file", "path": str(tmp_path / "new"), "size_bytes": 4096}
    assert not (tmp_path / "new").exists()
    with pytest.raises(TargetError, match="every job needs its own"):
        target.spec_target("per_job", 4096)


def test_a_file_that_iosonde_created_and_kept_is_a_target_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    journal.created(kept, "file", keep=True)
    kept.write_bytes(b"x" * 8192)
    journal.identify(kept)
    target = open_target(str(kept))
    assert isinstance(target, FileTarget)
    assert target.destroys(4096, keep=True)[0].what.startswith("overwrites the file that iosonde kept there, 4 KiB")
    kept.rename(tmp_path / "elsewhere")
    kept.write_text("somebody else's")
    assert "would be overwritten" in refusal(kept), "the journal knows the inode, not only the name"
    assert kept.read_text() == "somebody else's"


def test_what_cannot_be_a_target_is_refused_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("data")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    wrong = {
        file: "`DIR/file` exists already, and would be overwritten",
        tmp_path / "no" / "such": "`DIR/no/such` cannot be created: there is no directory `DIR/no`",
        f"{tmp_path}/missing/": "there is no directory `DIR/missing/`",
        file / "below": "cannot access `DIR/file/below`: Not a directory",
        fifo: "`DIR/fifo` is neither a directory nor a file",
        "/proc/sys": "`/proc/sys` is on `proc`, which stores no data",
        "/dev/null": "`/dev/null` is neither a directory nor a file",
        "/no-such-mount": "`/no-such-mount` does not exist, and its name looks like a mount point",
    }
    for name, reason in wrong.items():
        text = refusal(name, hide=tmp_path)
        assert text.startswith(reason) and "\n\nhint: " in text
    assert file.read_text() == "data"


def test_a_missing_name_looks_like_a_mount_point_where_file_systems_are_mounted() -> None:
    like = ("/new", "/mnt/new", "/media/new", "/media/me/new", "/srv/new", "/run/media/me/new")
    unlike = ("/tmp/new", "/mnt/disk/new", "/media/me/stick/new", "/run/new", "/home/me/new", "/mnt/new.dat")
    assert [looks_like_mount_point(Path(name)) for name in (*like, *unlike)] == [True] * 6 + [False] * 6


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("/dev/mapper/none", "there is no block device `/dev/mapper/none`", "iosonde devices"),
        ("tmp:foo", "there is no kind of target `tmp`", "./tmp:foo"),
        (" ", "the target is empty", "--target ."),
        ("-", "the target cannot start with a hyphen, as `-` does", "./-"),
    ],
)
def test_a_name_that_was_not_meant_as_a_new_file_is_refused(text: str, problem: str, hint: str) -> None:
    with pytest.raises(TargetError) as refused:
        open_target(text)
    assert refused.value.what == problem and hint in refused.value.hint


def test_virtual_targets_are_read_back_from_their_names() -> None:
    target = open_target("simulated:servers=4,read=100us,write=20us,service=exponential")
    assert isinstance(target, VirtualTarget) and target == open_target(target.name)
    assert target.name == "simulated:servers=4,read=100us,write=20us,service=exponential,size=1TiB"
    assert target.backend() == {
        "kind": "simulated",
        "servers": 4,
        "read_service_ns": 100_000,
        "write_service_ns": 20_000,
        "service": "exponential",
    }
    null = open_target("null:2GiB")
    assert (null.free_bytes(), null.backend(), null.block_devices()) == (2 << 30, {"kind": "null"}, [])
    assert null.spec_target("per_job", 4096) == {"kind": "virtual", "size_bytes": 4096}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("null:much", "the size of `null:much` cannot be `much`: `much` is not a size"),
        ("simulated:severs=4", "`simulated:severs=4` has no setting `severs`"),
        ("simulated:read=5", "the read of `simulated:read=5` cannot be `5`: `5` has no unit"),
        ("simulated:service=fast", "the service of `simulated:service=fast` cannot be `fast`"),
    ],
)
def test_a_virtual_target_with_a_wrong_setting_is_refused(text: str, problem: str) -> None:
    assert refusal(text).startswith(problem)


def test_a_directory_that_may_not_be_written_is_refused() -> None:
    # Not below `tmp_path`, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        before = os.geteuid()
        os.seteuid(before or 65534)  # Without root's right to write everywhere.
        try:
            assert refusal(directory).startswith(f"you may not write in `{directory}`")
        finally:
            os.seteuid(before)


def test_a_file_system_mounted_read_only_is_refused(loop_file_system: Callable[..., Any]) -> None:
    mounted = loop_file_system(options="ro")
    text = refusal(mounted.directory)
    assert text.startswith(f"`{mounted.directory}` is on a file system that is mounted read-only")


def test_more_than_there_is_room_for_is_refused_before_anything_is_written(
    loop_file_system: Callable[..., Any],
) -> None:
    directory = loop_file_system(size="8M").directory
    target = open_target(str(directory))
    before = sorted(directory.iterdir())
    target.check(1 << 20, [4096], "direct")
    with pytest.raises(TargetError, match="no room on"):
        target.check(64 << 20, [4096], "buffered")
    assert sorted(directory.iterdir()) == before


def test_blocks_smaller_than_the_device_takes_are_refused_for_direct_io_only(
    loop_file_system: Callable[..., Any],
) -> None:
    target = open_target(str(loop_file_system(sector_bytes=4096).directory))
    target.check(0, [4096, 8192], "direct")
    target.check(0, [512], "buffered")
    with pytest.raises(TargetError) as caught:
        target.check(0, [4096, 512], "direct")
    assert f"direct I/O of 512 B is not supported on `{target.name}`: it takes multiples of 4 KiB" in str(caught.value)
    assert "--set block_size=4KiB" in caught.value.hint and "--set io_mode=buffered" in caught.value.hint


def test_a_target_lists_what_it_creates(tmp_path: Path) -> None:
    [directory] = open_target(str(tmp_path)).destroys(1 << 30)
    [file] = open_target(str(tmp_path / "new")).destroys(4096, keep=True)
    assert directory.what == "creates a directory with 1 GiB of files and removes it at the end"
    assert file.what.startswith("does not exist yet: creates a file of 4 KiB on the file system ")
    assert file.what.endswith(", and keeps it")
    assert open_target("null:1GiB").destroys(1 << 30) == []
