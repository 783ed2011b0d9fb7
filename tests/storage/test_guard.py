"""Reasons to refuse a block device, on made-up `/sys` and `/proc` trees: stacks that no test machine has."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from iosonde.storage.block_layer import block_nodes, kernel, signatures
from iosonde.storage.block_layer.block_nodes import LoopStatus, device_number, names_in, number_of, sys_path
from iosonde.storage.block_layer.kernel import Kernel, MapperTable, parse
from iosonde.storage.block_layer.signatures import Signature
from iosonde.storage.safety import guard


class Machine:
    """`/sys`, `/proc` and `/dev` of a made-up machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.numbers: dict[str, str] = {}
        self.loops: list[LoopStatus] = []
        self.tables: dict[str, MapperTable] = {}
        self.kernel = Kernel(proc=root / "proc", read_loops=lambda: self.loops, read_table=self.tables.get)
        for directory in ("sys/dev/block", "sys/class/block", "sys/block", "proc/self/ns", "dev"):
            (root / directory).mkdir(parents=True)
        (root / "proc/self/mountinfo").touch()
        self.swap()

    def disk(self, name: str, number: str, *, sectors: int = 2048, read_only: bool = False) -> str:
        """A device that is not a partition."""
        return self._device(self.root / "sys/block" / name, number, sectors, read_only)

    def partition(self, name: str, number: str, *, of: str, start: int = 0, sectors: int = 1024) -> str:
        path = self.root / "sys/block" / of / name
        made = self._device(path, number, sectors, False)
        (path / "partition").write_text("1\n")
        (path / "start").write_text(f"{start}\n")
        return made

    def holds(self, upper: str, lower: str) -> None:
        """`lower` is a member of `upper`."""
        holders = (self.root / "sys/dev/block" / self.numbers[lower]).resolve() / "holders"
        (holders / upper).mkdir(parents=True)

    def attach(self, name: str, **status: Any) -> None:
        """A loop device is attached, as `LOOP_GET_STATUS64` reports it."""
        self.loops.append(LoopStatus(number=self.numbers[name], **status))

    def mount(
        self, number: str, point: str, *, source: str = "none", process: str = "self", kind: str = "ext4"
    ) -> None:
        table = self.root / "proc" / process / "mountinfo"
        table.parent.mkdir(exist_ok=True)
        (table.parent / "ns").mkdir(exist_ok=True)
        if not (table.parent / "ns/mnt").is_symlink():
            (table.parent / "ns/mnt").symlink_to(f"mnt:[{process}]")
        with table.open("a") as file:
            file.write(f"36 35 {number} / {point} rw,noatime - {kind} {source} rw\n")

    def swap(self, *nodes: Path) -> None:
        lines = ["Filename Type Size Used Priority", *(f"{node} partition 1 0 -2" for node in nodes)]
        (self.root / "proc/swaps").write_text("\n".join(lines) + "\n")

    def node(self, name: str) -> Path:
        path = self.root / "dev" / name
        major, minor = map(int, self.numbers[name].split(":"))
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
        return path

    def refusals(self, name: str) -> list[str]:
        return guard.examine(self.numbers[name], kernel=replace(self.kernel), read_contents=False).refusals

    def _device(self, path: Path, number: str, sectors: int, read_only: bool) -> str:
        path.mkdir(parents=True)
        (path / "dev").write_text(f"{number}\n")
        (path / "size").write_text(f"{sectors}\n")
        (path / "ro").write_text(f"{int(read_only)}\n")
        (self.root / "sys/dev/block" / number).symlink_to(path)
        (self.root / "sys/class/block" / path.name).symlink_to(path)
        self.numbers[path.name] = number
        return number


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(block_nodes, "SYS", tmp_path / "sys")
    made.disk("vdb", "254:16")
    return made


def test_a_device_that_was_removed_while_it_is_examined_has_no_members(tmp_path: Path) -> None:
    """Between two system calls, so there is no moment to remove it in; the error is that of its directory."""
    (tmp_path / "slaves").mkdir()
    (tmp_path / "slaves" / "vda").touch()
    assert (names_in(tmp_path / "slaves"), names_in(tmp_path / "holders")) == (["vda"], [])
    assert [number_of(path) for path in (tmp_path, "/dev/null", "relative", tmp_path / "missing")] == [""] * 4


def test_devices_are_found_by_name_where_a_container_hides_those_by_number(machine: Machine) -> None:
    """Podman mounts an empty file system over `/sys/dev/block`."""
    machine.partition("vdb1", "254:17", of="vdb")
    machine.disk("md0", "9:0")
    machine.holds("md0", "vdb1")
    machine.mount("9:0", "/")

    def found() -> tuple[list[Path], list[str], list[str]]:
        paths = [sys_path(number) for number in machine.numbers.values()]
        return paths, machine.refusals("vdb"), replace(machine.kernel).numbers

    shown = found()
    for link in (machine.root / "sys/dev/block").iterdir():
        link.unlink()
    assert found() == shown and shown[1]
    assert not sys_path("254:99").exists()


def test_the_device_under_the_root_is_refused_through_everything_between(machine: Machine) -> None:
    machine.partition("vdb1", "254:17", of="vdb")
    for upper, number, lower in (("md0", "9:0", "vdb1"), ("dm-0", "253:0", "md0"), ("dm-1", "253:1", "dm-0")):
        machine.disk(upper, number)
        machine.holds(upper, lower)
    machine.mount("253:1", "/")
    assert machine.refusals("vdb") == ["`vdb1` is part of `md0`", "`dm-1`, stacked on `vdb`, is mounted at `/`"]


def test_a_mount_is_seen_also_in_another_namespace(machine: Machine) -> None:
    machine.disk("vda", "254:0")
    machine.mount("254:0", "/other")
    (machine.root / "proc/4712").mkdir()  # Of a process that has exited meanwhile.
    assert machine.refusals("vdb") == []
    machine.mount("254:16", "/data", process="4711")
    assert machine.refusals("vdb") == ["`vdb` is mounted at `/data`"]
    machine.mount("254:16", "/")
    assert machine.refusals("vdb") == ["`vdb` is mounted at `/`", "`vdb` is mounted at `/data`"]


def test_a_mounted_partition_is_refused_and_so_is_its_disk(machine: Machine) -> None:
    machine.partition("vdb1", "254:17", of="vdb")
    machine.partition("vdb2", "254:18", of="vdb", start=1024)
    machine.mount("254:17", "/home")
    assert machine.refusals("vdb") == machine.refusals("vdb1") == ["`vdb1` is mounted at `/home`"]
    assert machine.refusals("vdb2") == []
    machine.mount("254:16", "/odd")
    assert machine.refusals("vdb2") == ["`vdb` is mounted at `/odd`"]


def test_swap_is_refused_and_so_is_swap_on_a_volume_of_it(machine: Machine) -> None:
    machine.disk("dm-0", "253:0")
    machine.holds("dm-0", "vdb")
    machine.swap(machine.node("vdb"), machine.node("dm-0"))
    assert machine.refusals("vdb") == [
        "`vdb` is active swap",
        "`vdb` is part of `dm-0`",
        "`dm-0`, stacked on `vdb`, is active swap",
    ]
    assert guard.part_of("254:16", machine.kernel).uses == ["is swap", "is part of `dm-0`"]


def test_a_member_of_a_mounted_btrfs_is_refused_although_another_was_mounted(machine: Machine) -> None:
    machine.disk("vdc", "254:32")
    members = machine.root / "sys/fs/btrfs/5a5a-uuid/devices"
    members.mkdir(parents=True)
    for name in ("vdb", "vdc"):
        (members / name).symlink_to(machine.root / "sys/block" / name)
    assert machine.refusals("vdb") == ["`vdb` is a member of the mounted btrfs 5a5a-uuid"]
    # A btrfs has a number of its own: its device is the one that was mounted.
    machine.mount("0:42", "/pool", source=str(machine.node("vdb")), kind="btrfs")
    assert machine.refusals("vdb") == ["`vdb` is mounted at `/pool`"]


def test_a_loop_device_and_the_node_below_it_are_refused_for_each_other(machine: Machine) -> None:
    """D2, in both directions."""
    machine.disk("loop5", "7:5")
    machine.attach("loop5", backing_device="254:16")
    assert machine.refusals("vdb") == ["`loop5` is attached to `vdb`"]
    machine.disk("md0", "9:0")
    machine.holds("md0", "vdb")
    assert machine.refusals("loop5") == ["`vdb` is part of `md0`"]
    machine.mount("254:16", "/data")
    assert machine.refusals("loop5")[1:] == ["`vdb`, which is below `loop5`, is mounted at `/data`"]


def test_loop_devices_on_the_same_bytes_of_a_file_are_refused(machine: Machine) -> None:
    """D3, whether or not the other one is in use: it may be mounted at any time."""
    for name, number in (("loop5", "7:5"), ("loop6", "7:6"), ("loop7", "7:7")):
        machine.disk(name, number, sectors=1024)
    machine.attach("loop5", file_system="8:1", inode=12)
    machine.attach("loop6", file_system="8:1", inode=12, offset=512 * 512)
    machine.attach("loop7", file_system="8:1", inode=12, offset=1536 * 512)
    assert machine.refusals("loop5") == ["`loop6` is attached to the same file as `loop5`"]
    assert machine.refusals("loop7") == [], "its bytes are its own"
    machine.mount("7:6", "/data")
    assert machine.refusals("loop5")[1] == "`loop6`, which shares data with `loop5`, is mounted at `/data`"


def test_an_array_over_a_loop_device_shares_data_with_other_loop_devices_on_the_file(machine: Machine) -> None:
    machine.disk("loop5", "7:5")
    machine.disk("loop6", "7:6")
    machine.disk("md0", "9:0")
    machine.holds("md0", "loop5")
    for name in ("loop5", "loop6"):
        machine.attach(name, file_system="8:1", inode=12)
    machine.mount("7:6", "/data")
    assert "`loop6`, which shares data with `md0`, is mounted at `/data`" in machine.refusals("md0")
    assert "`md0` shares data with `loop6`" in machine.refusals("loop6")


def without_tables(machine: Machine, *members: str) -> None:
    """`dm-0` and on, each on a member, with no table that the kernel would report."""
    for place, member in enumerate(members):
        machine.disk(f"dm-{place}", f"253:{place}")
        (machine.root / "sys/block" / f"dm-{place}" / "dm").mkdir()
        machine.holds(f"dm-{place}", member)


def test_volumes_without_a_table_on_one_member_may_share_data(machine: Machine) -> None:
    """They counted as disjoint, although the kernel allows tables over the same sectors."""
    without_tables(machine, "vdb", "vdb")
    assert machine.refusals("dm-0")[0].startswith(
        "`dm-1` has a member in common with `dm-0`, and the kernel does not report which part of it `dm-0` uses "
    )
    machine.mount("253:1", "/home")
    assert "`dm-1`, which shares data with `dm-0`, is mounted at `/home`" in machine.refusals("dm-0")
    assert "`vdb` is part of `dm-0`" in machine.refusals("vdb")


@pytest.mark.parametrize("printed", [None, "", "0 8 linear 254:16\n", "dm-0: 0 8 linear 254:16 0\n"])
def test_a_table_that_dmsetup_does_not_print_whole_counts_as_not_reported(
    printed: str | None, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no dmsetup, as in containers."""
    answer = CompletedProcess([], 0, stdout=printed)
    monkeypatch.setattr(kernel, "find", lambda name: None if printed is None else name)
    monkeypatch.setattr(kernel, "ask", lambda *command: answer)
    without_tables(machine, "vdb", "vdb")
    machine.kernel = replace(machine.kernel, read_table=kernel.mapper_table)
    assert machine.refusals("dm-0")[0].startswith("`dm-1` has a member in common with `dm-0`")


def test_a_volume_without_a_table_shares_nothing_with_volumes_on_other_members(machine: Machine) -> None:
    machine.disk("vdc", "254:32")
    machine.partition("vdb1", "254:17", of="vdb", sectors=1024)
    machine.partition("vdb2", "254:18", of="vdb", start=1024)
    without_tables(machine, "vdc", "vdb1", "vdb2")
    machine.mount("253:2", "/home")
    assert machine.refusals("dm-0") == machine.refusals("dm-1") == []


def test_a_volume_without_a_table_may_share_data_with_one_that_has_a_table(machine: Machine) -> None:
    without_tables(machine, "vdb", "vdb")
    machine.tables["253:1"] = parse([(0, 1024, "linear", "254:16 0")])
    for one, other in (("dm-0", "dm-1"), ("dm-1", "dm-0")):
        assert machine.refusals(one)[0].startswith(f"`{other}` has a member in common with `{one}`")
        assert "which part of it `dm-0` uses" in machine.refusals(one)[0]
    machine.tables["253:0"] = parse([(0, 1024, "linear", "254:16 1024")])
    assert machine.refusals("dm-0") == machine.refusals("dm-1") == [], "reported by now"


def volumes(machine: Machine, *tables: tuple[int, int, str, str]) -> None:
    """`dm-0` and on, each with a table of one target, on `vdb` (2048 sectors) and `vdc`."""
    machine.disk("vdc", "254:32")
    for place, table in enumerate(tables):
        machine.disk(f"dm-{place}", f"253:{place}", sectors=table[1])
        for name, number in (("vdb", "254:16"), ("vdc", "254:32")):
            if number in table[3].split():
                machine.holds(f"dm-{place}", name)
        machine.tables[f"253:{place}"] = parse([table])


CRYPT = "aes-xts-plain64 0000 0"


@pytest.mark.parametrize(
    ("table", "mounted", "is_refused"),
    [
        ((0, 2048, "linear", "254:16 0"), (0, 2048, "linear", "254:16 0"), True),
        ((0, 1024, "linear", "254:16 0"), (0, 1024, "linear", "254:16 1023"), True),
        ((0, 1024, "linear", "254:16 0"), (0, 1024, "linear", "254:16 1024"), False),
        ((0, 1024, "crypt", f"{CRYPT} 254:16 512"), (0, 1024, "linear", "254:16 0"), True),
        ((0, 1024, "crypt", f"{CRYPT} 254:16 1024"), (0, 1024, "flakey", "254:16 0 9 0 0"), False),
        ((0, 2048, "striped", "2 8 254:16 0 254:32 0"), (0, 1024, "linear", "254:32 512"), True),
        ((0, 2048, "striped", "2 8 254:16 0 254:32 0"), (0, 1024, "linear", "254:32 1024"), False),
        ((0, 1024, "delay", "254:16 0 5 254:32 0 5"), (0, 1024, "linear", "254:32 0"), True),
        ((0, 1024, "snapshot", "254:16 254:32 P 8"), (0, 2048, "snapshot-origin", "254:16"), False),
        ((0, 1024, "snapshot", "254:16 254:32 P 8"), (0, 2048, "linear", "254:32 0"), True),
        ((0, 1024, "thin", "254:16 1"), (0, 1024, "thin", "254:16 2"), False),
        ((0, 1024, "mirror", "core 1 8 2 254:16 0 254:32 0"), (0, 2048, "snapshot-origin", "254:32"), True),
    ],
)
def test_volumes_are_compared_by_the_sectors_that_their_tables_map(
    machine: Machine, table: tuple[int, int, str, str], mounted: tuple[int, int, str, str], is_refused: bool
) -> None:
    """Tables made by hand may map the same sectors twice, which the kernel allows."""
    volumes(machine, table, mounted)
    machine.mount("253:1", "/data")
    refusals = machine.refusals("dm-0")
    assert ("`dm-1`, which shares data with `dm-0`, is mounted at `/data`" in refusals) == is_refused, refusals
    assert bool(refusals) == is_refused


def test_a_loop_device_on_a_part_of_a_volume_shares_data_with_what_maps_these_sectors(machine: Machine) -> None:
    volumes(machine, (0, 2048, "linear", "254:16 0"), (0, 1024, "linear", "254:16 0"))
    for name, number, offset in (("loop5", "7:5", 0), ("loop6", "7:6", 1024 * 512)):
        machine.disk(name, number, sectors=1024)
        machine.attach(name, backing_device="253:0", offset=offset)
    machine.mount("253:1", "/data")
    assert "`dm-1`, which shares data with `loop5`, is mounted at `/data`" in machine.refusals("loop5")
    assert not [each for each in machine.refusals("loop6") if "dm-1" in each]


def test_a_device_with_a_file_system_under_a_loop_device_is_refused_without_a_mount(machine: Machine) -> None:
    """The file system was unmounted lazily: no mount table lists it, and the loop device keeps it in use."""
    machine.disk("loop5", "7:5")
    machine.attach("loop5", file_system="254:16", inode=12)
    assert machine.refusals("vdb") == ["`loop5` is backed by a file in the file system on `vdb`"]
    assert machine.refusals("loop5") == []


def test_a_file_that_is_swap_is_refused_as_the_backing_file_of_a_loop_device(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "swap file"
    file.touch()
    machine.disk("loop5", "7:5")
    found = file.stat()
    machine.attach("loop5", file_system=device_number(found.st_dev), inode=found.st_ino)
    machine.swap(Path(str(file).replace(" ", "\\040")))
    assert machine.refusals("loop5") == [f"the file below `loop5` is active swap (`{file}`)"]


def test_nothing_is_written_while_the_backing_file_of_a_loop_device_is_unknown(machine: Machine) -> None:
    machine.disk("loop5", "7:5")
    machine.attach("loop5", problem="Permission denied")
    assert machine.refusals("vdb") == [
        "the backing file of `loop5` cannot be determined (Permission denied) and may be on `vdb`: detach it with "
        "`losetup --detach /dev/loop5`"
    ]
    machine.loops.clear()
    # Its path is in a file system elsewhere.
    machine.mount("0:50", "/srv", kind="fuse.sshfs")
    machine.attach("loop5", problem="Permission denied", path="/srv/image")
    assert machine.refusals("vdb") == []
    machine.loops.clear()
    # Its FUSE daemon has exited: it shares data with no device.
    machine.attach("loop5", problem="Transport endpoint is not connected", is_disconnected=True)
    assert machine.refusals("vdb") == []


def test_two_paths_to_one_disk_share_data(machine: Machine) -> None:
    machine.disk("vdc", "254:32")
    for name in ("vdb", "vdc"):
        (machine.root / "sys/block" / name / "wwid").write_text("eui.0123456789abcdef\n")
    machine.mount("254:32", "/data")
    assert machine.refusals("vdb") == ["`vdc`, which shares data with `vdb`, is mounted at `/data`"]


def test_what_cannot_be_written_is_refused(machine: Machine) -> None:
    machine.disk("sr0", "11:0", sectors=0)
    machine.disk("vdd", "254:48", read_only=True)
    assert machine.refusals("sr0") == ["`sr0` has no size"]
    assert machine.refusals("vdd") == ["`vdd` is read-only"]
    machine.numbers["gone"] = "8:0"
    assert machine.refusals("gone") == ["the kernel has no such device"]


@pytest.mark.parametrize(
    ("kind", "several", "is_refused"),
    [
        *((kind, False, True) for kind in ("linux_raid_member", "LVM2_member", "zfs_member", "ddf_raid_member")),
        *((kind, False, True) for kind in ("bcache", "swsuspend")),
        *((kind, False, False) for kind in ("btrfs", "ext4", "swap", "gpt", "data")),
        ("btrfs", True, True),
    ],
)
def test_members_are_refused_by_signature_and_other_signatures_are_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: str, several: bool, is_refused: bool
) -> None:
    found = Signature(device="vdb", kind=kind, is_one_of_several=several)
    claimed = False
    monkeypatch.setattr(guard, "signatures", lambda number, name: [found])
    monkeypatch.setattr(guard, "is_claimed", lambda number: claimed)
    findings = guard.examine("254:16", kernel=machine.kernel)
    assert findings.signatures == [found]
    assert bool(findings.refusals) == is_refused
    claimed = True
    findings = guard.examine("254:16", kernel=machine.kernel)
    assert (findings.refusals == ["`vdb` is claimed exclusively by another program"]) == (not is_refused)
    assert (
        guard.examine("254:16", kernel=machine.kernel, is_claimed_by_us=True).refusals == findings.refusals * is_refused
    )


def test_the_edges_of_a_device_are_wiped_and_nothing_else(tmp_path: Path) -> None:
    image, edge = tmp_path / "image", signatures.EDGE_BYTES
    image.write_bytes(b"x" * (3 * edge))
    with image.open("r+b") as file:
        signatures.wipe_edges(file.fileno())
    assert image.read_bytes() == bytes(edge) + b"x" * edge + bytes(edge)
    with image.open("r+b") as file:
        signatures.wipe_measured(file.fileno())
    content = image.read_bytes()
    assert content[:512] == signatures.MARK and not any(content[512:edge]) and not any(content[-edge:])
    small = tmp_path / "small"
    small.write_bytes(b"x" * 4096)
    with small.open("r+b") as file:
        signatures.wipe_edges(file.fileno())
    assert small.read_bytes() == bytes(4096)
