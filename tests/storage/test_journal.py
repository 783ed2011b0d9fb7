"""The journal: what iosonde made is removed after a crash, and nothing else ever is."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iosonde.base.cache import remember, temporary_file
from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import identity_of
from iosonde.storage.control_groups import hierarchy
from iosonde.storage.safety import journal, own_directory

pytestmark = pytest.mark.engine


def left_by_a_killed_process(path: Path, what: str = "file", until: str = "identified", keep: str = "no") -> None:
    child = os.fork()
    if child == 0:
        create(path, what, until, keep)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert journal.find(path) is not None


@contextmanager
def used_by_another_process(path: Path, what: str) -> Iterator[int]:
    """A process that has created a thing, and runs."""
    child = os.fork()
    if child == 0:
        create(path, what, "identified", "no")
        signal.pause()
    try:
        while (entry := journal.find(path)) is None or entry.identity is None:
            time.sleep(0.01)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def create(path: Path, what: str, until: str, keep: str) -> None:
    journal.created(path, what, keep=keep == "keep")
    if until != "announced":
        path.touch(0o600) if what == "file" else path.mkdir()
    if what == "file" and until != "announced":
        path.write_text("x")
    if until == "identified":
        journal.identify(path)


def reasons() -> list[str]:
    return [each.reason for each in journal.cleanup()]


def test_a_file_left_by_a_killed_process_is_removed(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "left")
    (file,) = journal._directory().glob("*.json")
    damage("owner", "a ² 7")(file)  # A process number with other digits is none.
    assert reasons() == ["removed"]
    assert list(tmp_path.iterdir()) == []
    left_by_a_killed_process(tmp_path / "left", until="announced")
    assert reasons() == ["is gone already"]
    assert reasons() == []


@pytest.mark.parametrize("handles", [True, False])
def test_a_file_of_the_user_with_the_inode_number_of_the_removed_one_is_left_alone(
    handles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ext4 gives the number to the next file. Without handles, the mode differs: iosonde's files are its user's alone."""
    path = tmp_path / "t"
    if not handles:
        monkeypatch.setattr(own_directory, "handle_of", lambda path: None)
    left_by_a_killed_process(path)
    path.unlink()
    path.write_text("important")
    path.chmod(0o644)
    (file,) = journal._directory().glob("*.json")
    damage("identity", identity_of(path.stat()))(file)  # As if it had the same number: not always the case.
    assert not journal.is_ours(path) and not journal.take_over(path, keep=False)
    assert reasons() == ["is no longer what iosonde created: left alone"]
    assert path.read_text() == "important"


def test_without_handles_a_file_with_a_second_name_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, on an overlay: iosonde gives its files one name, so this one may be the user's."""
    monkeypatch.setattr(own_directory, "handle_of", lambda path: None)
    path = tmp_path / "t"
    left_by_a_killed_process(path)
    (tmp_path / "second").hardlink_to(path)
    assert not journal.is_ours(path) and not journal.take_over(path, keep=False)
    assert reasons() == ["is no longer what iosonde created: left alone"]
    assert path.exists()


def test_a_file_of_ours_on_a_file_system_with_its_own_owners_and_modes_stays_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as CIFS or ntfs-3g, which have no lasting handles either."""
    monkeypatch.setattr(own_directory, "handle_of", lambda path: None)
    path = tmp_path / "t"
    journal.created(path, "file")
    path.touch()
    path.chmod(0o777)
    journal.identify(path)
    assert journal.is_ours(path)
    journal.remove(path)
    assert not path.exists()


def test_a_file_of_the_user_in_a_directory_of_ours_with_the_inode_number_of_a_removed_one_is_left_alone(
    tmp_path: Path,
) -> None:
    left = tmp_path / "left"
    left_by_a_killed_process(left, "directory")
    (left / "data").write_text("x")
    journal.add_files(left, {"data": (left / "data").stat().st_ino})
    entry = journal.find(left)
    assert entry and entry.own_files == entry.files
    (left / "data").unlink()
    (left / "data").write_text("important")
    journal._write(replace(entry, files={"data": (left / "data").stat().st_ino}))
    [reason] = reasons()
    assert "contains files that iosonde did not create" in reason
    assert (left / "data").read_text() == "important"


def test_what_another_iosonde_uses_is_not_undone_for_a_copy_of_its_result_set(tmp_path: Path) -> None:
    own = "iosonde-0123abcd"
    place = tmp_path / f"{own}-setup"
    with used_by_another_process(place, "directory") as process:
        with pytest.raises(TargetError, match=rf"is in use by another iosonde \(process {process}\)"):
            journal.clear(own)
        with pytest.raises(TargetError, match="in use by another iosonde"):
            journal.take_over(place, keep=False)
        assert reasons() == [f"is in use by process {process}"]
        assert place.is_dir() and journal.find(place)
    journal.clear(own)
    assert not place.exists()


@pytest.mark.needs("root", "memory limits")
def test_a_control_group_of_a_session_that_was_killed_before_it_identified_it_is_removed() -> None:
    """A control group is never empty: it has files of the kernel."""
    path = hierarchy().directory / "iosonde-0badcafe"
    left_by_a_killed_process(path, "control group", until="created")
    assert any(path.iterdir())
    assert reasons() == ["removed"]
    assert not path.exists()


def test_a_session_that_continues_keeps_what_it_reuses_and_removes_the_rest(tmp_path: Path) -> None:
    own = tmp_path / "iosonde-0123abcd"
    left_by_a_killed_process(own, "directory")
    other = tmp_path / "socket" / own.name
    other.parent.mkdir()
    left_by_a_killed_process(other, "directory")
    journal.clear(own.name)
    assert own.is_dir() and other.is_dir()
    journal.clear(own.name, reused=[own])
    assert own.is_dir() and not other.exists()
    assert [entry.path for entry in journal.entries()] == [str(own)]


def test_a_directory_is_removed_with_the_files_in_it(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left_by_a_killed_process(left, "directory")
    (left / "data").write_text("x")
    (left / "data.verify").write_text("x")
    (left / "lmdb-01234567").mkdir()
    (left / "lmdb-01234567/database").mkdir()
    (left / "lmdb-01234567/database/data.mdb").write_text("x")
    (left / "lmdb-01234567/link").symlink_to(tmp_path)
    journal.add_files(left, {name: (left / name).stat().st_ino for name in ("data", "lmdb-01234567")})
    assert reasons() == ["removed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "link as a companion", "replaced", "hard link"])
def test_files_of_the_user_in_a_created_directory_are_kept_and_reported(tmp_path: Path, kind: str) -> None:
    """D9."""
    left, victim = tmp_path / "left", tmp_path / "victim"
    theirs = left / ("data.verify" if "companion" in kind else "theirs")
    left_by_a_killed_process(left, "directory")
    (left / "data").write_text("x")
    journal.add_files(left, {"data": (left / "data").stat().st_ino})
    victim.write_text("precious")
    match kind:
        case "directory":
            theirs.mkdir()
        case "symlink" | "link as a companion":
            theirs.symlink_to(victim if "companion" in kind else tmp_path)
        case "hard link":
            theirs.hardlink_to(victim)
        case _:
            if kind == "replaced":
                journal.add_files(left, {"theirs": (left / "data").stat().st_ino})
            theirs.write_text("precious")
    (cleaned,) = journal.cleanup()
    assert cleaned.failed
    assert f"`{theirs.name}`" in cleaned.reason
    assert list(left.iterdir()) == [theirs], "what is ours was removed"
    assert victim.read_text() == "precious"
    theirs.rmdir() if kind == "directory" else theirs.unlink()
    assert reasons() == ["removed"], "nothing prevents it any more"


@pytest.mark.parametrize(
    ("what", "until", "by"),
    [("directory", "identified", "link"), ("directory", "announced", "link"), ("file", "identified", "file")],
)
def test_what_took_the_place_of_ours_is_left_alone(what: str, until: str, by: str, tmp_path: Path) -> None:
    """D9: what the link leads to has files of the same names."""
    left, precious = tmp_path / "left", tmp_path / "precious"
    left_by_a_killed_process(left, what, until)
    if until == "identified":
        left.rename(precious)
    precious.mkdir(exist_ok=True) if what == "directory" else None
    if what == "directory":
        (precious / "data").write_text("precious")
        journal.add_files(left, {"data": (precious / "data").stat().st_ino})
    left.symlink_to(precious) if by == "link" else left.write_text("precious")
    assert reasons() == ["is no longer what iosonde created: left alone"]
    assert left.is_symlink() == (by == "link")
    assert (left / "data" if what == "directory" else left).read_text() == "precious"


def test_a_file_that_was_only_announced_is_ours_as_long_as_it_has_no_data(tmp_path: Path) -> None:
    """The process died between announcing it and noting its inode."""
    for name, content in (("empty", ""), ("full", "precious"), ("large", "precious" * (1 << 18)), ("hole", "")):
        left_by_a_killed_process(tmp_path / name, "directory")
        (tmp_path / name / "data").write_text(content)
        journal.add_files(tmp_path / name, {"data": own_directory.ANNOUNCED})
    os.truncate(tmp_path / "hole/data", 2 << 20)
    reasons = {Path(cleaned.path).name: cleaned.reason for cleaned in journal.cleanup()}
    assert [reasons["empty"], reasons["hole"]] == ["removed"] * 2
    for name in ("full", "large"):
        assert "contains files that iosonde did not create" in reasons[name]
        assert (tmp_path / name / "data").read_text().startswith("precious")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "large"]


def test_a_created_but_unidentified_entry_is_ours_only_if_empty(tmp_path: Path) -> None:
    """The process died between creating it and noting its inode: a name alone proves nothing about content."""
    left_by_a_killed_process(tmp_path / "full", until="created")
    left_by_a_killed_process(tmp_path / "empty", "directory", until="created")
    assert journal.is_ours(tmp_path / "empty")
    left_by_a_killed_process(tmp_path / "full directory", "directory", until="created")
    (tmp_path / "full directory/data").write_text("precious")
    assert not journal.take_over(tmp_path / "full", keep=False)
    assert not journal.take_over(tmp_path / "full directory", keep=False)
    assert sorted(reasons()) == ["is no longer what iosonde created: left alone"] * 2 + ["removed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "full directory"]
    assert (tmp_path / "full directory/data").read_text() == "precious"
    left_by_a_killed_process(tmp_path / "adopted", "directory", until="created")
    assert journal.take_over(tmp_path / "adopted", keep=False), "a kill must not stop a study permanently"
    (tmp_path / "adopted" / "data").write_text("x")
    assert journal.is_ours(tmp_path / "adopted"), "it is known now, whatever it holds"


def test_kept_entries_are_removed_only_on_request(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "kept", keep="keep")
    assert reasons() == ["was kept (`--kept PATH` removes it as well)"]
    assert journal.cleanup(kept=[tmp_path / "other"])[0].reason == reasons()[0]
    assert [entry.path for entry in journal.kept_below([tmp_path])] == [str(tmp_path / "kept")]
    assert [each.reason for each in journal.cleanup(kept=[tmp_path])] == ["removed"]


def test_what_the_engine_knows_of_a_kept_file_goes_with_it(tmp_path: Path) -> None:
    for name in ("data", "data.verify", "data.other", "data2"):
        left_by_a_killed_process(tmp_path / name, keep="keep")
    journal.cleanup(kept=[tmp_path / "data"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data.other", "data2"]


def damage(field: str, value: object) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))

    return change


DAMAGE: dict[str, Callable[[Path], object]] = {
    "is damaged: it is not an entry": lambda file: file.write_text("{"),
    "is damaged: it is not an entry ": lambda file: file.write_text("[" * 100_000),
    "is damaged: `path` has the wrong type": damage("path", 5),
    "is damaged: there is no kind `planet`": damage("what", "planet"),
    "which is not a path of a mount of iosonde": damage("what", "mount"),
    "which is not a path of a file of iosonde": damage("path", "/tmp/../etc/passwd"),
    "is damaged: `files` is wrong": damage("files", {"../data": 5}),
    "is damaged: `marks` is wrong": damage("marks", {"": None}),
    "is damaged: `marks` is wrong ": damage("marks", {"a\0b": "1:aa"}),
    "is damaged: the fact `members` is wrong": damage("facts", {"members": ["a\0b"]}),
    "is not the entry about `/etc/passwd`": damage("path", "/etc/passwd"),
    "is damaged: it has characters that no path has": damage("path", "/tmp/x\ud800"),
    "is damaged: it has characters that no path has ": damage("facts", {"device": "/dev/a\0b"}),
    "is damaged: it has characters that no path has  ": damage("owner", "a\0 1 2"),
    "belongs to user 65534": lambda file: os.chown(file, 65534, 65534),
    "can be written by other users": lambda file: file.chmod(0o666),
    "is not a regular file with a single hard link": lambda file: file.with_name("second").hardlink_to(file),
    "cannot be read": lambda file: file.rename(file.with_name("moved")).parent.joinpath(file.name).symlink_to("moved"),
}


@pytest.mark.needs("root")
@pytest.mark.parametrize("problem", DAMAGE)
def test_an_entry_that_cannot_be_trusted_is_reported_and_not_acted_on(tmp_path: Path, problem: str) -> None:
    """D8: and the others are still removed."""
    left_by_a_killed_process(tmp_path / "left")
    (file,) = journal._directory().glob("*.json")
    left_by_a_killed_process(tmp_path / "other")
    DAMAGE[problem](file)
    other, damaged = journal.cleanup()
    assert (other.path, other.reason) == (str(tmp_path / "other"), "removed")
    assert damaged.path == str(file)
    assert damaged.failed
    assert problem.strip() in damaged.reason
    assert (tmp_path / "left").exists()
    assert journal.find(tmp_path / "left") is None


def queue_setting(name: str, monkeypatch: pytest.MonkeyPatch, undo: Callable[[journal.Entry], object]) -> Path:
    """A journaled setting, and how it is undone."""
    setting = journal.kinds()[journal.QUEUE_SETTING]
    monkeypatch.setattr("iosonde.study.servers.undo.KINDS", (replace(setting, undo=undo),))
    path = Path("/sys/block/none/queue", name)
    journal.created(path, journal.QUEUE_SETTING, facts={"value": "1", "own": "iosonde-12345678", "disk": ""})
    return path


@pytest.mark.parametrize(("boot", "is_written"), [("now", True), ("earlier", False)])
def test_kernel_state_of_an_earlier_boot_is_not_restored(
    monkeypatch: pytest.MonkeyPatch, boot: str, is_written: bool
) -> None:
    """After a reboot the setting has the kernel's own value, and a device with the name is perhaps another one."""
    undone: list[str] = []
    path = queue_setting("scheduler", monkeypatch, lambda entry: undone.append(entry.path))
    (file,) = journal._directory().glob("*.json")
    owner = json.loads(file.read_text())["owner"] if boot == "now" else "00000000-0000-0000-0000-000000000000 1 2"
    damage("owner", owner.replace(f" {os.getpid()} ", " 999999999 "))(file)
    assert reasons() == ["the queue setting was removed" if is_written else "ended with the last boot"]
    assert undone == ([str(path)] if is_written else [])
    assert journal.find(path) is None


def test_a_setting_that_the_kernel_refuses_does_not_prevent_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    undone: list[str] = []

    def undo(entry: journal.Entry) -> None:
        if entry.path.endswith("scheduler"):
            raise OSError(errno.EBUSY, "Device or resource busy")
        undone.append(entry.path)

    first, busy = (queue_setting(name, monkeypatch, undo) for name in ("nr_requests", "scheduler"))
    with pytest.raises(TargetError, match=f"cannot restore `{busy}`: Device or resource busy"):
        journal.restore([first, busy])
    assert undone == [str(first)]
    assert (journal.find(first), journal.find(busy) is None) == (None, False)


def test_what_a_killed_writer_left_in_the_cache_and_in_the_journal_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "iosonde"
    cache.mkdir()
    for name in (".tmp-999999999-x", f".tmp-{os.getpid()}-x", ".tmp-old", "kept.rows"):
        (cache / name).touch()
    (cache / ".tmp-link").symlink_to(cache / "kept.rows")
    with temporary_file() as of_this_process:
        pass
    journal.created(tmp_path / "unused", "file")
    dead, alive = (journal._directory() / f".tmp-0123.json-{number}" for number in (999999999, os.getpid()))
    dead.touch()
    alive.touch()
    assert reasons() == ["is in use by process " + str(os.getpid()), "removed", "removed", "removed"]
    assert (dead.exists(), alive.exists()) == (False, True)
    kept = {f".tmp-{os.getpid()}-x", ".tmp-link", "kept.rows", Path(of_this_process.name).name}
    assert {each.name for each in cache.iterdir()} == kept
    dead.touch()
    journal.clear("iosonde-0123abcd", reused=[])
    assert (dead.exists(), alive.exists()) == (False, True)


def test_the_oldest_files_of_a_directory_in_the_cache_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = tmp_path / "iosonde" / "drawings"
    for age, name in enumerate("abc"):
        remember(directory / name, b"")
        os.utime(directory / name, (age, age))
    remember(directory / "d", b"", most=2)
    assert {each.name for each in directory.iterdir()} == {"c", "d"}


def test_only_its_user_can_read_the_journal_and_nothing_is_created_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        journal.created(tmp_path / "new", "file")
    finally:
        os.umask(before)
    (file,) = journal._directory().glob("*.json")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parents[1])] == [0o600, 0o700, 0o700]
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="cannot record"):
        journal.created(tmp_path / "new", "file")
