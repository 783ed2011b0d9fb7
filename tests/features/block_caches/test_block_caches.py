"""Block caches: setups, kernel support, superblocks and counters as drivers print them.

Real ones are created in the lab (`tests/lab/test_block_caches_for_real.py`).
"""

from __future__ import annotations

import os
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from iosonde.base.check import OTHER_KERNEL
from iosonde.errors import StudyError, TargetError
from iosonde.features.block_caches import bcache, device_mapper, run, storage
from iosonde.features.block_caches.setup import JOURNALED, MODULES, BlockCacheSetup
from iosonde.plan import Setup
from iosonde.storage import tools
from iosonde.storage.block_layer.block_nodes import chosen
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS
from iosonde.study.setup import resolve

MIB = 1 << 20
NAME = "iosonde-12345678"
IDENTITY = bcache.identity_of(NAME)


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
    assert resolved(cache="bcache", cache_state="warm").parameters.items() >= {
        ("cache", "bcache"),
        ("cache_mode", "writethrough"),
        ("cache_hit_ratio", 0.9),
    }
    assert resolved(cache="none", cache_state="warm") == Setup(), "other parameters where `cache` is a factor"


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


@pytest.mark.needs("root")
def test_kernel_support_is_read_from_modules_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SYS", tmp_path / "sys")
    monkeypatch.setattr(tools, "MODULE_FILES", tmp_path)
    modules = tmp_path / os.uname().release
    modules.mkdir()
    (modules / "modules.dep").write_text("kernel/drivers/md/dm-cache.ko.xz: x\nkernel/drivers/md/dm-writecache.ko:\n")
    (modules / "modules.builtin").write_text("kernel/drivers/md/bcache/bcache.ko\n")
    assert [tools.state_of(*each) for each in MODULES.values()] == ["built in", "missing", "module"]
    (tmp_path / "sys/module/bcache").mkdir(parents=True)
    (modules / "modules.dep").write_text("kernel/drivers/md/dm-cache.ko.xz:\nkernel/drivers/md/dm-cache-smq.ko.xz:\n")
    assert [tools.state_of(*each) for each in MODULES.values()] == ["loaded", "module", "missing"]
    (tmp_path / "dmsetup").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = BlockCacheSetup(kind="dm-writecache", mode="writeback")
    with pytest.raises(TargetError, match="this kernel has no dm-writecache") as caught:
        storage.check_possible(missing)
    assert "CONFIG_DM_WRITECACHE" in caught.value.hint
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TargetError, match="only root can create a block cache"):
        storage.check_possible(missing)
    found = {each.name: each for make in run.CHECKS for each in make()}
    assert (found["bcache"].state, found["bcache"].found) == ("ok", 'loaded, for setups with `cache = "bcache"`')
    assert (found["dm-writecache"].state, found["dm-writecache"].advice) == ("note", OTHER_KERNEL)


def written_superblock(*, set_uuid: str = IDENTITY, device: str = "") -> bytes:
    own = uuid.UUID(device) if device else uuid.uuid4()
    head = struct.pack("<QQQ16s16s16s32s", 0, 8, 4, bcache.MAGIC, own.bytes, uuid.UUID(set_uuid).bytes, b"")
    return bytes(bcache.OFFSET) + head + bytes(8192)


def test_a_superblock_is_read_and_anything_else_is_none(tmp_path: Path) -> None:
    device, own = tmp_path / "device", str(uuid.uuid4())
    assert bcache.read_superblock(device) is None
    device.write_bytes(written_superblock(device=own))
    assert bcache.read_superblock(device) == bcache.Superblock(device_uuid=own, set_uuid=IDENTITY)
    for content in (b"", bytes(4096 + 20), bytes(16384), b"\xff" * 16384):
        device.write_bytes(content)
        assert bcache.read_superblock(device) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("17", 17), ("4.0M", 4 * MIB), ("0.5k", 512), ("1.5G", 3 << 29), ("", None), ("none", None)],
)
def test_numbers_and_chosen_words_are_read_as_bcache_prints_them(text: str, expected: int | None) -> None:
    assert bcache.number(text) == expected
    assert chosen(f"writethrough [{text}] writearound none") == chosen(text) == text


DM_CACHE = (
    "0 1048576 cache 8 27/1024 128 100/1024 600 200 30 40 2 102 7 1 writeback 2 migration_threshold 2048 smq 0 rw -"
)
"""Linux 6.1: `metadata block size, used/total, block size, used/total, read hits, read misses, ...`."""
DM_WRITECACHE = "0 1048576 writecache 0 8000 7000 16 500 350 900 10 20 30 840 3 0"


def test_the_status_of_device_mapper_caches_is_read() -> None:
    found = device_mapper.parse("dm-cache", DM_CACHE)
    assert (found["cache_hits"], found["cache_misses"]) == (600, 200)
    assert (found["promotions"], found["demotions"], found["dirty_bytes"]) == (102, 2, 7 * 65536)
    assert found["used_bytes"] == 100 * 65536
    found = device_mapper.parse("dm-writecache", DM_WRITECACHE)
    assert (found["cache_hits"], found["cache_misses"]) == (350, 150)
    assert (found["dirty_bytes"], found["writing_back_bytes"]) == (1000 * 4096, 16 * 4096)
    assert found["bypassed_bytes"] == 30 * 4096
    for other in ("0 1048576 linear 8:0 0", ""):
        assert device_mapper.parse("dm-cache", other) == {}
    assert device_mapper.metadata_bytes(512 * MIB) == 5 * MIB


def test_an_entry_of_another_kind_of_cache_is_not_acted_on(tmp_path: Path) -> None:
    key = MOUNTS / NAME / "cache"
    journal.created(key, JOURNALED, facts={"kind": "zfs", "name": NAME, "members": []})
    assert journal.entries() == []
    [problem] = [each for each in journal.cleanup() if each.failed]
    assert "the fact `kind` is missing or wrong" in problem.reason
    journal.removed(key)
