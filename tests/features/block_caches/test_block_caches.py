"""Block caches: commands, superblocks, counters and removal, on a fake `/sys` and recorded output.

Real ones are created in the lab (`tests/lab/test_block_caches_for_real.py`).
"""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iosonde.core.check import OTHER_KERNEL
from iosonde.errors import StudyError, TargetError
from iosonde.features.block_caches import bcache, block_cache, checks, device_mapper, kernel_support, layers, superblock
from iosonde.features.block_caches.block_cache import JOURNALED, BlockCache
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.plan import Setup
from iosonde.storage import tools
from iosonde.storage.block_layer import kernel_modules
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import MOUNTS
from iosonde.study.setup import resolve

MIB = 1 << 20
NAME = "iosonde-12345678"
IDENTITY = bcache.identity_of(NAME)
CACHED = BlockCacheSetup(kind="bcache", mode="writeback")


def resolved(**parameters: Any) -> Setup:
    setup = resolve(parameters, devices=2)
    assert setup
    return setup


def cache_of(**parameters: Any) -> BlockCacheSetup:
    cache = resolved(**parameters).layer(BlockCacheSetup)
    assert cache
    return cache


def test_a_cache_has_the_defaults_of_its_kind() -> None:
    assert cache_of(cache="bcache").mode == "writethrough"
    assert cache_of(cache="dm-writecache").mode == "writeback"
    assert cache_of(cache="bcache", cache_state="warm").hit_ratio == 0.9
    assert cache_of(cache="bcache").sequential_cutoff == 4 * MIB
    assert cache_of(cache="bcache", cache_sequential_cutoff=0).sequential_cutoff == 0
    assert resolved(cache="bcache", array="raid0").devices == 1


def test_the_parameters_of_a_case_have_every_default_of_its_cache() -> None:
    assert resolved(cache="bcache", cache_state="warm").parameters.items() >= {
        ("cache", "bcache"),
        ("cache_mode", "writethrough"),
        ("cache_hit_ratio", 0.9),
    }


def test_setups_without_a_cache_have_no_part_of_it() -> None:
    """A case without a cache may have its other parameters: `cache` is a factor then."""
    assert resolved(cache="none", cache_state="warm") == Setup()


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"cache": "dm-cache", "cache_mode": "writearound"}, "has no mode `writearound`"),
        ({"cache": "bcache", "cache_state": "dirty"}, "dirty data in writeback mode only"),
        ({"cache": "bcache", "cache_hit_ratio": 0.5}, "requires a warm cache"),
        ({"cache": "bcache", "cache_mode": "writeback", "cache_dirty_fraction": 0.5}, "requires a dirty cache"),
        ({"cache": "dm-cache", "cache_sequential_cutoff": 0}, "requires bcache"),
        ({"cache": "dm-writecache", "cache_state": "warm"}, "caches writes only"),
        ({"cache": "bcache", "array": "raid0", "array_kind": "btrfs"}, "requires one block device below it"),
        ({"cache": "bcache", "array": "raid0", "devices": 2}, "requires 3 devices, one of them for the cache"),
        ({"cache": "bcache", "cache_state": "warm", "cache_hit_ratio": 1.5}, "out of range"),
        ({"cache": "flashcache"}, "cannot be `flashcache`"),
    ],
)
def test_impossible_caches_are_refused(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(StudyError) as caught:
        resolved(**parameters)
    assert problem in caught.value.what


def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_a_missing_kernel_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_root(monkeypatch)
    monkeypatch.setattr(tools, "find", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(kernel_modules, "SYS", tmp_path)
    monkeypatch.setattr(kernel_modules, "MODULE_FILES", tmp_path)
    with pytest.raises(TargetError) as caught:
        layers.check_possible(BlockCacheSetup(kind="dm-cache", mode="writethrough"))
    assert caught.value.what == "this kernel has no dm-cache"
    assert "`dm-cache` and `dm-cache-smq` (CONFIG_DM_CACHE)" in caught.value.hint


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    as_root(monkeypatch)
    monkeypatch.setattr(tools, "find", lambda tool: None)
    with pytest.raises(TargetError) as caught:
        layers.check_possible(CACHED)
    assert "`make-bcache` is not installed" in caught.value.what
    assert "apt install bcache-tools" in caught.value.hint


def test_only_root_creates_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TargetError, match="only root can create a block cache"):
        layers.check_possible(CACHED)


def test_kernel_support_is_read_from_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_modules, "SYS", tmp_path / "sys")
    monkeypatch.setattr(kernel_modules, "MODULE_FILES", tmp_path)
    folder = tmp_path / os.uname().release
    folder.mkdir()
    (folder / "modules.dep").write_text("kernel/drivers/md/dm-cache.ko.xz: x\nkernel/drivers/md/dm-writecache.ko:\n")
    (folder / "modules.builtin").write_text("kernel/drivers/md/bcache/bcache.ko\n")
    assert [each.state for each in kernel_support.every()] == ["built in", "missing", "module"]
    (tmp_path / "sys/module/bcache").mkdir(parents=True)
    (folder / "modules.dep").write_text("kernel/drivers/md/dm-cache.ko.xz:\nkernel/drivers/md/dm-cache-smq.ko.xz:\n")
    assert [each.state for each in kernel_support.every()] == ["loaded", "module", "missing"]


def written_superblock(*, set_uuid: str = IDENTITY, device: str = "", version: int = 4) -> bytes:
    own = uuid.UUID(device) if device else uuid.uuid4()
    head = struct.pack("<QQQ16s16s16s32s", 0, 8, version, superblock.MAGIC, own.bytes, uuid.UUID(set_uuid).bytes, b"")
    return bytes(superblock.OFFSET) + head + bytes(8192)


def test_a_superblock_is_read(tmp_path: Path) -> None:
    device, own = tmp_path / "device", str(uuid.uuid4())
    device.write_bytes(written_superblock(device=own))
    found = superblock.read(device)
    assert found == superblock.Superblock(device_uuid=own, set_uuid=IDENTITY, is_backing=True)
    device.write_bytes(written_superblock(version=3))
    assert found and superblock.read(device) and not superblock.read(device).is_backing  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", bytes(4096 + 20), bytes(16384), b"\xff" * 16384])
def test_anything_else_is_no_superblock(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "device").write_bytes(content)
    assert superblock.read(tmp_path / "device") is None
    assert superblock.read(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("17", 17), ("4.0M", 4 * MIB), ("0.5k", 512), ("1.5G", 3 << 29), ("", None), ("none", None)],
)
def test_numbers_are_read_as_bcache_prints_them(text: str, expected: int | None) -> None:
    assert bcache.number(text) == expected


def test_the_chosen_word_is_read() -> None:
    assert bcache.chosen("writethrough [writeback] writearound none") == "writeback"
    assert bcache.chosen("4.0M") == "4.0M"


class FakeBcache:
    """A `/sys` and device files that behave as bcache does; devices are files, and registering creates directories."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch
        self.backing, self.cache, self.device = root / "slow", root / "fast", root / "bcache0"
        for path in (self.backing, self.cache, self.device):
            path.write_bytes(bytes(MIB))
        self.sys = root / "sys"
        (self.sys / "fs/bcache").mkdir(parents=True)
        for name in ("slow", "fast", "bcache0"):
            (self.sys / "class/block" / name).mkdir(parents=True)
        (self.sys / "class/block/bcache0/dev").write_text("251:0\n")
        self.commands: list[tuple[str, ...]] = []
        self.wiped: list[str] = []
        self.is_busy = False
        self._patch()

    def _patch(self) -> None:
        for name, value in {
            "SYS": self.sys,
            "load": lambda kind: None,
            "call": self._call,
            "number_of": lambda path: path.name,
            "node_of": lambda number: self.device,
            "_ask": self._ask,
            "_write": self._write,
            "opened_exclusively": self._opened,
            "BUSY_S": 0.2,
            "ACTIVE_S": 0.2,
            "POLL_S": 0.01,
        }.items():
            self.monkeypatch.setattr(bcache, name, value)
        self.monkeypatch.setattr(bcache.block_stack, "size_bytes", lambda number: 256 * MIB)

    def _call(self, *command: str) -> dict[str, Any]:
        self.commands.append(command)
        self.backing.write_bytes(written_superblock(version=4))
        self.cache.write_bytes(written_superblock(version=3))
        return {"command": list(command), "seconds": 0.0, "output": ""}

    def _write(self, file: Path, value: str) -> None:
        if file.name == "register_quiet":
            self._register(Path(value))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(value)

    def _register(self, device: Path) -> None:
        folder = self.sys / "class/block" / device.name / "bcache"
        folder.mkdir()
        if device == self.cache:
            (self.sys / "fs/bcache" / IDENTITY).mkdir()
            (self.sys / "fs/bcache" / IDENTITY / "stop").touch()
        else:
            (folder / "stop").touch()
            (folder / "state").write_text("clean\n")
            (folder / "dev").symlink_to("../bcache0")

    def _ask(self, file: Path) -> None:
        """A device stops when it is not in use, and a cache set with its cache device."""
        if self.is_busy:
            return
        import shutil

        shutil.rmtree(file.parent)
        if file.parent.name == IDENTITY:
            shutil.rmtree(self.sys / "class/block/fast/bcache")

    @contextmanager
    def _opened(self, device: Path) -> Iterator[int]:
        if (self.sys / "class/block" / device.name / "bcache").exists():
            raise TargetError(f"`{device}` is claimed exclusively by another program")
        self.wiped.append(device.name)
        descriptor = os.open(device, os.O_RDWR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def registered(self) -> list[str]:
        folders = [*(self.sys / "class/block").glob("*/bcache"), *(self.sys / "fs/bcache").iterdir()]
        return sorted(folder.parent.name if folder.name == "bcache" else folder.name for folder in folders)

    def build(self) -> BlockCache:
        return bcache.build(self.backing, self.cache, CACHED, NAME)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBcache:
    return FakeBcache(tmp_path, monkeypatch)


def test_a_cache_is_built_of_exactly_what_was_named(fake: FakeBcache) -> None:
    built = fake.build()
    assert fake.commands == [
        ("make-bcache", "--bucket", "512k", "--cset-uuid", IDENTITY, "-C", str(fake.cache), "-B", str(fake.backing))
    ]
    assert built.device == fake.device
    assert fake.registered() == sorted(["fast", "slow", IDENTITY, "bcache0"])
    settings = fake.sys / "class/block/bcache0/bcache"
    assert (settings / "cache_mode").read_text() == "writeback"
    assert (settings / "sequential_cutoff").read_text() == str(4 * MIB)
    [entry] = journal.entries()
    assert (entry.what, entry.path) == (JOURNALED, str(MOUNTS / NAME / "cache"))
    assert entry.facts["members"] == [str(fake.backing), str(fake.cache)]
    assert len(entry.facts["uuids"]) == 2
    journal.removed(Path(entry.path))


def test_removal_stops_and_wipes_both(fake: FakeBcache) -> None:
    built = fake.build()
    (fake.sys / "class/block/bcache0/bcache").rename(fake.root / "gone")
    fake.wiped.clear()
    journal.undo(built.key)
    assert fake.registered() == []
    assert sorted(fake.wiped) == ["fast", "slow"]
    assert (superblock.read(fake.backing), superblock.read(fake.cache)) == (None, None)
    assert journal.entries() == []


@pytest.mark.parametrize("step", ["make-bcache", "register cache", "register backing", "settings"])
def test_cleanup_after_a_kill_at_any_step(fake: FakeBcache, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL leaves what the steps before it have done; cleanup finds all of it."""

    class KilledError(BaseException):
        pass

    def killed(*_: Any) -> Any:
        raise KilledError

    if step == "make-bcache":
        call = fake._call
        monkeypatch.setattr(bcache, "call", lambda *command: (call(*command), killed()))
    elif step == "register cache":
        monkeypatch.setattr(bcache, "_register", killed)
    elif step == "register backing":
        register = bcache._register
        monkeypatch.setattr(bcache, "_register", lambda device: register(device) if device == fake.cache else killed())
    else:
        monkeypatch.setattr(bcache, "_set_up", killed)
    with pytest.raises(KilledError):
        fake.build()
    [entry] = journal.entries()
    fake.wiped.clear()
    journal.undo(Path(entry.path))
    assert [name for name in fake.registered() if name != "bcache0"] == []
    assert sorted(fake.wiped) == ["fast", "slow"]
    assert journal.entries() == []


def test_a_cache_in_use_stays_in_the_journal(fake: FakeBcache) -> None:
    built = fake.build()
    fake.is_busy = True
    with pytest.raises(OSError, match="still in use"):
        journal.undo(built.key)
    [entry] = journal.entries()
    fake.is_busy = False
    journal.undo(Path(entry.path))
    assert journal.entries() == []


def test_devices_of_another_cache_are_left_alone(fake: FakeBcache) -> None:
    """After a kill the devices may belong to somebody else's cache by now."""
    built = fake.build()
    for device in (fake.backing, fake.cache):
        device.write_bytes(written_superblock(set_uuid=str(uuid.uuid4())))
    (fake.sys / "fs/bcache" / IDENTITY / "stop").unlink()
    (fake.sys / "fs/bcache" / IDENTITY).rmdir()
    fake.wiped.clear()
    journal.undo(built.key)
    assert fake.wiped == []
    assert superblock.read(fake.backing) is not None
    assert "slow" in fake.registered()


def test_a_detached_backing_device_is_still_ours(fake: FakeBcache) -> None:
    """Emptying a cache detaches it, which clears the cache set's UUID on the backing device."""
    built = fake.build()
    [entry] = journal.entries()
    fake.backing.write_bytes(written_superblock(set_uuid=str(uuid.UUID(int=0)), device=entry.facts["uuids"][0]))
    fake.wiped.clear()
    journal.undo(built.key)
    assert sorted(fake.wiped) == ["fast", "slow"]


def test_a_device_that_make_bcache_skipped_is_an_error(fake: FakeBcache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcache, "call", lambda *command: {"command": list(command)})
    with pytest.raises(TargetError, match="make-bcache wrote no superblock"):
        fake.build()
    journal.undo(MOUNTS / NAME / "cache")


def test_one_device_cannot_be_both(fake: FakeBcache) -> None:
    with pytest.raises(TargetError, match="both backing device and cache device"):
        bcache.build(fake.backing, fake.backing, CACHED, NAME)
    assert journal.entries() == []


def test_emptying_detaches_and_attaches(fake: FakeBcache, monkeypatch: pytest.MonkeyPatch) -> None:
    built = fake.build()
    folder = fake.sys / "class/block/bcache0/bcache"
    written: list[tuple[str, str]] = []

    def write(file: Path, value: str) -> None:
        written.append((file.name, value))
        (folder / "state").write_text({"detach": "no cache", "attach": "clean"}.get(file.name, "clean"))

    monkeypatch.setattr(bcache, "_write", write)
    bcache.empty(built)
    assert written == [("detach", "1"), ("attach", IDENTITY), ("cache_mode", "writeback")]
    journal.removed(built.key)


def test_attaching_again_waits_until_the_kernel_has_detached(fake: FakeBcache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux 6.1 reports the state `no cache` before it accepts the next cache."""
    built = fake.build()
    folder = fake.sys / "class/block/bcache0/bcache"
    refusals = iter([True, True, False])

    def write(file: Path, value: str) -> None:
        if file.name == "attach" and next(refusals):
            raise TargetError("the kernel refused it")
        (folder / "state").write_text("no cache" if file.name == "detach" else "clean")

    monkeypatch.setattr(bcache, "_write", write)
    bcache.empty(built)
    assert list(refusals) == []
    journal.removed(built.key)


def test_the_kernel_may_attach_a_device_while_it_is_asked_to(fake: FakeBcache, monkeypatch: pytest.MonkeyPatch) -> None:
    """It then refuses, since the device is attached already."""
    registers = fake._write

    def write(file: Path, value: str) -> None:
        if file.name == "attach":
            (file.parent / "state").write_text("clean")
            raise TargetError("the kernel refused it")
        registers(file, value)
        if file.name == "register_quiet" and Path(value) == fake.backing:
            (fake.sys / "class/block" / fake.backing.name / "bcache/state").write_text("no cache")

    monkeypatch.setattr(bcache, "_write", write)
    assert fake.build().identity == IDENTITY
    journal.removed(MOUNTS / NAME / "cache")


def test_counters_are_read_from_sysfs(fake: FakeBcache) -> None:
    built = fake.build()
    folder = fake.sys / "class/block/bcache0/bcache"
    (folder / "stats_total").mkdir()
    for name, text in {"cache_hits": "300", "cache_misses": "100", "bypassed": "1.5M"}.items():
        (folder / "stats_total" / name).write_text(text + "\n")
    (folder / "dirty_data").write_text("4.0M\n")
    (fake.sys / "fs/bcache" / IDENTITY / "congested").write_text("0\n")
    assert bcache.counters(built) == {
        "cache_hits": 300,
        "cache_misses": 100,
        "bypassed_bytes": 3 * MIB // 2,
        "dirty_bytes": 4 * MIB,
        "congested": 0,
    }
    assert bcache.state(built)["mode"] == "writeback"
    journal.removed(built.key)


def test_settling_ends_when_the_counters_change(fake: FakeBcache, monkeypatch: pytest.MonkeyPatch) -> None:
    built = fake.build()
    polls = iter([{"cache_hits": 1}, {"cache_hits": 1, "dirty_bytes": 5}, {"cache_hits": 9}])
    monkeypatch.setattr(bcache, "counters", lambda _: next(polls))
    bcache.settle(built)
    assert list(polls) == []
    journal.removed(built.key)


DM_CACHE = (
    "0 1048576 cache 8 27/1024 128 100/1024 600 200 30 40 2 102 7 1 writeback 2 migration_threshold 2048 smq 0 rw -"
)
"""Linux 6.1: `metadata block size, used/total, block size, used/total, read hits, read misses, ...`."""
DM_WRITECACHE = "0 1048576 writecache 0 8000 7000 16 500 350 900 10 20 30 840 3 0"


def test_the_status_of_dm_cache_is_read() -> None:
    found = device_mapper.parse("dm-cache", DM_CACHE)
    assert (found["cache_hits"], found["cache_misses"]) == (600, 200)
    assert (found["promotions"], found["demotions"], found["dirty_bytes"]) == (102, 2, 7 * 65536)
    assert found["used_bytes"] == 100 * 65536


def test_the_status_of_dm_writecache_is_read() -> None:
    found = device_mapper.parse("dm-writecache", DM_WRITECACHE)
    assert (found["cache_hits"], found["cache_misses"]) == (350, 150)
    assert (found["dirty_bytes"], found["writing_back_bytes"]) == (1000 * 4096, 16 * 4096)
    assert found["bypassed_bytes"] == 30 * 4096


def test_another_target_has_no_counters() -> None:
    assert device_mapper.parse("dm-cache", "0 1048576 linear 8:0 0") == {}
    assert device_mapper.parse("dm-cache", "") == {}


def test_tables_name_both_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_mapper, "number_of", lambda path: path.name)
    monkeypatch.setattr(device_mapper.block_stack, "size_bytes", lambda number: 512 * MIB)
    backing, cache = Path("/dev/slow"), Path("/dev/fast")
    assert device_mapper.table_of("dm-cache", "writethrough", backing, cache, NAME) == (
        f"0 1048576 cache /dev/mapper/{NAME}-cache-metadata /dev/mapper/{NAME}-cache-data /dev/slow 128 1 writethrough "
        "smq 0"
    )
    assert device_mapper.table_of("dm-writecache", "writeback", backing, cache, NAME) == (
        "0 1048576 writecache s /dev/slow /dev/fast 4096 0"
    )
    assert device_mapper.metadata_bytes(512 * MIB) == 5 * MIB


class FakeDmsetup:
    """Devices by name with the names of what is below them and their UUIDs."""

    def __init__(self, devices: dict[str, tuple[list[str], str]]) -> None:
        self.devices = devices
        self.existing = set(devices)

    def __call__(self, *words: str) -> dict[str, Any]:
        name = words[-1]
        if name not in self.existing:
            raise TargetError("Device does not exist")
        if words[1] == "remove":
            self.existing.remove(name)
        return {"output": self.devices[name][1]}


def undone(monkeypatch: pytest.MonkeyPatch, fake: FakeDmsetup, sys: Path) -> list[str]:
    """Operations of `undo` on the drives, in order: `open 8:16`, `remove NAME`, `wipe /dev/...`."""
    done: list[str] = []

    @contextmanager
    def opened(number: str) -> Iterator[int]:
        if number == "8:2":
            raise OSError(errno.ENXIO, "No such device or address")
        done.append(f"open {number}")
        yield 0
        done.append(f"close {number}")

    @contextmanager
    def claimed(device: Path) -> Iterator[int]:
        done.append(f"wipe {device}")
        yield 0

    def dmsetup(*words: str) -> dict[str, Any]:
        if words[1] == "remove":
            done.append(f"remove {words[-1].removeprefix(NAME)}")
        return fake(*words)

    for number, (name, (members, _)) in enumerate(fake.devices.items()):
        directory = sys / f"dev/block/253:{number}"
        (directory / "dm").mkdir(parents=True)
        (directory / "dm/name").write_text(name)
        (directory / "dm/uuid").write_text(fake.devices[name][1])
        for member in members:
            (directory / "slaves" / member).mkdir(parents=True)
        (sys / f"class/block/dm-{number}").mkdir(parents=True)
        (sys / f"class/block/dm-{number}/dev").write_text(f"253:{number}")
    for number, drive in enumerate(("slow", "fast", "unplugged")):
        (sys / f"class/block/{drive}").mkdir(parents=True)
        (sys / f"class/block/{drive}/dev").write_text(f"8:{number}")
    monkeypatch.setattr(device_mapper, "Kernel", partial(Kernel, sys=sys))
    monkeypatch.setattr(device_mapper, "call", dmsetup)
    monkeypatch.setattr(device_mapper, "find", lambda tool: tool)
    monkeypatch.setattr(device_mapper, "opened", opened)
    monkeypatch.setattr(device_mapper, "opened_exclusively", claimed)
    monkeypatch.setattr(device_mapper, "node_of", lambda number: Path("/dev", number))
    monkeypatch.setattr(device_mapper.signatures, "wipe_edges", lambda descriptor: None)
    key = MOUNTS / NAME / "cache"
    block_cache.announce(key, "dm-cache", NAME, Path("/dev/other"), Path("/dev/another"))
    journal.undo(key)
    return done


def test_removal_of_device_mapper_caches_goes_from_top_to_bottom(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The names of the members in the journal lead elsewhere by now: what was below the volumes is wiped."""
    below = {"-cached": ["dm-1", "dm-2", "slow"], "-cache-metadata": ["fast"], "-cache-data": ["fast"]}
    devices = {
        f"{NAME}{part}": (members, f"{device_mapper.UUID_PREFIX}{NAME}{part}") for part, members in below.items()
    }
    assert undone(monkeypatch, FakeDmsetup(devices), tmp_path) == [
        *("open 8:0", "open 8:1"),
        *("remove -cached", "remove -cache-metadata", "remove -cache-data"),
        *("wipe /dev/8:0", "wipe /dev/8:1"),
        *("close 8:1", "close 8:0"),
    ]
    assert journal.entries() == []


def test_a_cache_whose_member_was_unplugged_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"{NAME}-cached"
    devices = {name: (["slow", "unplugged"], f"{device_mapper.UUID_PREFIX}{name}")}
    done = undone(monkeypatch, FakeDmsetup(devices), tmp_path)
    assert done == ["open 8:0", "remove -cached", "wipe /dev/8:0", "close 8:0"]


def test_a_device_of_the_same_name_and_another_uuid_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeDmsetup({f"{NAME}-cached": (["slow", "fast"], "LVM-something")})
    assert undone(monkeypatch, fake, tmp_path) == []


def test_an_entry_of_another_kind_of_cache_is_not_acted_on(tmp_path: Path) -> None:
    key = MOUNTS / NAME / "cache"
    journal.created(key, JOURNALED, facts={"kind": "zfs", "name": NAME, "members": []})
    assert journal.entries() == []
    [problem] = [each for each in journal.cleanup() if each.failed]
    assert "the fact `kind` is missing or wrong" in problem.reason
    journal.removed(key)


def test_doctor_reports_present_and_missing_block_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_modules, "SYS", tmp_path / "sys")
    monkeypatch.setattr(kernel_modules, "MODULE_FILES", tmp_path)
    (tmp_path / "sys/module/bcache").mkdir(parents=True)
    found = {each.name: each for make in checks.CHECKS for each in make()}
    assert list(found) == ["bcache", "dm-cache", "dm-writecache"]
    assert (found["bcache"].state, found["bcache"].found) == ("ok", 'loaded, for setups with `cache = "bcache"`')
    missing = found["dm-writecache"]
    assert (missing.state, missing.found) == (
        "note",
        'not in this kernel (CONFIG_DM_WRITECACHE), for setups with `cache = "dm-writecache"`',
    )
    assert missing.advice == OTHER_KERNEL
