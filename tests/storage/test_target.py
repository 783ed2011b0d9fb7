"""Valid and invalid targets: real files, real mounts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from iosonde.errors import TargetError
from iosonde.storage import DirectoryTarget, FileTarget, VirtualTarget, open_target, opening
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.storage.safety import journal
from iosonde.storage.targets.file_target import looks_like_mount_point


def refusal(text: str | Path, *, hide: Path | None = None) -> str:
    with pytest.raises(TargetError) as caught:
        open_target(str(text))
    return str(caught.value).replace(str(hide), "DIR") if hide else str(caught.value)


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


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


def test_a_file_that_iosonde_did_not_create_is_refused_unchanged(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    assert refusal(precious, hide=tmp_path) == snapshot("""\
`DIR/precious` exists already, and would be overwritten

hint: name a file that does not exist yet, or the directory `DIR`: iosonde then creates its own file there\
""")
    assert precious.read_text() == "data"


def test_a_file_that_iosonde_created_and_kept_is_a_target_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    journal.created(kept, "file", keep=True)
    kept.write_bytes(b"x" * 8192)
    journal.identify(kept)
    target = open_target(str(kept))
    assert isinstance(target, FileTarget)
    assert target.destroys(4096, keep=True)[0].what == snapshot(
        "overwrites the file that iosonde kept there, 4 KiB, and keeps it"
    )


def test_a_file_that_took_the_place_of_ours_is_refused(tmp_path: Path) -> None:
    """The journal knows the inode, not only the name."""
    kept = tmp_path / "kept"
    journal.created(kept, "file", keep=True)
    kept.touch()
    journal.identify(kept)
    kept.rename(tmp_path / "elsewhere")
    kept.write_text("somebody else's")
    assert "would be overwritten" in refusal(kept)


def test_what_cannot_be_a_target_is_refused_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refusals = [tmp_path / "no" / "such", f"{tmp_path}/missing/", file / "below", fifo, "/proc/sys", "/dev/null"]
    assert [refusal(text, hide=tmp_path) for text in refusals] == snapshot(
        [
            """\
`DIR/no/such` cannot be created: there is no directory `DIR/no`

hint: create it with `mkdir -p DIR/no`\
""",
            """\
there is no directory `DIR/missing/`

hint: create it with `mkdir -p DIR/missing/`\
""",
            """\
cannot access `DIR/file/below`: Not a directory

hint: name a directory or a new file that you may write to\
""",
            """\
`DIR/fifo` is neither a directory nor a file

hint: name a directory, or a file that does not exist yet\
""",
            """\
`/proc/sys` is on `proc`, which stores no data

hint: name a directory on a disk\
""",
            """\
`/dev/null` is neither a directory nor a file

hint: name a directory, or a file that does not exist yet\
""",
        ]
    )


def test_a_mistyped_mount_point_is_not_taken_for_a_new_file() -> None:
    mount = mount_of(Path("/"))
    assert mount is not None
    assert refusal("/no-such-mount").replace(f"file system {mount.kind}", "file system KIND") == snapshot("""\
`/no-such-mount` does not exist, and its name looks like a mount point
  a file there would be on the file system KIND mounted at `/`

hint: check the spelling, or mount the file system; for a file there name `/no-such-mount.dat`, or the directory `/`\
""")


@pytest.mark.parametrize("name", ["/new", "/mnt/new", "/media/new", "/media/me/new", "/srv/new", "/run/media/me/new"])
def test_a_missing_name_where_file_systems_are_mounted_looks_like_a_mount_point(name: str) -> None:
    assert looks_like_mount_point(Path(name))
    assert not looks_like_mount_point(Path(f"{name}.dat"))


@pytest.mark.parametrize("name", ["/tmp/new", "/mnt/disk/new", "/media/me/stick/new", "/run/new", "/home/me/new"])
def test_a_missing_name_elsewhere_looks_like_a_new_file(name: str) -> None:
    assert not looks_like_mount_point(Path(name))


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("/dev/nvme9n9", "there is no block device `/dev/nvme9n9`", "iosonde devices"),
        ("/dev/mapper/none", "there is no block device `/dev/mapper/none`", "iosonde devices"),
        ("tmp:foo", "there is no kind of target `tmp`", "./tmp:foo"),
        ("https://host/file", "there is no kind of target `https`", "simulated"),
        ("", "the target is empty", "--target ."),
        (" ", "the target is empty", "--target ."),
        ("-", "the target cannot start with a hyphen, as `-` does", "./-"),
        ("--destroy", "the target cannot start with a hyphen, as `--destroy` does", "./--destroy"),
    ],
)
def test_a_name_that_was_not_meant_as_a_new_file_is_refused(text: str, problem: str, hint: str) -> None:
    with pytest.raises(TargetError) as refused:
        open_target(text)
    assert refused.value.what == problem and hint in refused.value.hint


def test_the_name_of_a_device_without_its_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "number_of", lambda path: "259:0" if path == Path("/dev/nvme9n1") else "")
    with pytest.raises(TargetError, match="and a block device of that name") as refused:
        open_target("nvme9n1")
    assert "`/dev/nvme9n1`" in refused.value.hint
    assert open_target("./nvme9n1").name == str(tmp_path / "nvme9n1")


def test_virtual_targets_are_read_back_from_their_names() -> None:
    target = open_target("simulated:servers=4,read=100us,write=20us,service=exponential")
    assert isinstance(target, VirtualTarget)
    assert target.name == "simulated:servers=4,read=100us,write=20us,service=exponential,size=1TiB"
    assert open_target(target.name) == target
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


def test_a_virtual_target_with_a_wrong_setting_is_refused() -> None:
    texts = [
        "null:much",
        "simulated:severs=4",
        "simulated:servers=0",
        "simulated:read=5",
        "simulated:servers=many",
        "simulated:service=fast",
    ]
    assert [refusal(text) for text in texts] == snapshot(
        [
            """\
the size of `null:much` cannot be `much`: `much` is not a size; write it like `4KiB`

hint: write it like `null:1GiB`\
""",
            """\
`simulated:severs=4` has no setting `severs`

hint: write it like `simulated:servers=4,read=100us,write=20us,size=1TiB`; there is `service` as well\
""",
            """\
the servers of `simulated:servers=0` cannot be `0`

hint: `service` is `constant` or `exponential`; all others are above 0\
""",
            """\
the read of `simulated:read=5` cannot be `5`: `5` has no unit; write it like `10s`

hint: write it like `simulated:servers=4,read=100us,write=20us,size=1TiB`\
""",
            """\
the servers of `simulated:servers=many` cannot be `many`

hint: `service` is `constant` or `exponential`; all others are above 0\
""",
            """\
the service of `simulated:service=fast` cannot be `fast`

hint: `service` is `constant` or `exponential`; all others are above 0\
""",
        ]
    )


@pytest.mark.needs("root file system on a device node")
def test_a_block_device_is_refused_and_a_directory_on_it_named() -> None:
    number = Path("/").stat().st_dev
    devices = [path for path in Path("/dev").iterdir() if path.is_block_device() and path.stat().st_rdev == number]
    text = refusal(devices[0])
    assert "must not be written" in text and "is mounted at `/`" in text
    assert "name a directory on it, such as `/`" in text


def test_a_directory_that_may_not_be_written_is_refused() -> None:
    # Not below `tmp_path`, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        with as_somebody_else():
            assert refusal(directory, hide=Path(directory)) == snapshot("""\
you may not write in `DIR`

hint: name a directory of your own, or change its permissions\
""")


def test_a_file_system_mounted_read_only_is_refused(loop_file_system: Callable[..., Any]) -> None:
    mounted = loop_file_system(options="ro")
    text = refusal(mounted.directory, hide=mounted.directory).replace(mounted.device, "LOOP")
    assert text == snapshot("""\
`DIR` is on a file system that is mounted read-only
  mounted at `DIR` from `LOOP`

hint: remount it writable, or name another target\
""")


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
    assert str(caught.value).replace(target.name, "DIR") == snapshot("""\
direct I/O of 512 B is not supported on `DIR`: it takes multiples of 4 KiB
  on the file system ext4 mounted at `DIR`

hint: start at that with `--set block_size=4KiB,...`, or measure through the page cache with `--set io_mode=buffered`\
""")


def test_a_block_size_in_decimal_units_is_pointed_out(loop_file_system: Callable[..., Any]) -> None:
    target = open_target(str(loop_file_system(sector_bytes=4096).directory))
    with pytest.raises(TargetError) as caught:
        target.check(0, [4000], "direct")
    assert caught.value.hint.startswith("`4KB` are 4,000 bytes: write `4KiB`, start at that with")


def test_a_target_lists_what_it_creates(tmp_path: Path) -> None:
    target = open_target(str(tmp_path))
    assert [each.what for each in target.destroys(1 << 30)] == snapshot(
        ["creates a directory with 1 GiB of files and removes it at the end"]
    )
    mount = mount_of(tmp_path)
    assert mount is not None
    assert [each.what for each in open_target(str(tmp_path / "new")).destroys(4096, keep=True)] == [
        f"does not exist yet: creates a file of 4 KiB on the file system {mount.kind} mounted at `{mount.point}`, and "
        "keeps it"
    ]
    assert open_target("null:1GiB").destroys(1 << 30) == []
