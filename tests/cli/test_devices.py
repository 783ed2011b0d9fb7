from __future__ import annotations

from collections.abc import Callable
from typing import Any

from command_line import Iosonde
from inline_snapshot import snapshot

from iosonde.cli.commands.devices import lines
from iosonde.storage.block_layer import block_stack
from iosonde.storage.safety.devices import Device, DevicePart


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
    device = Device(
        name="nvme0n1",
        model="FAST 9000",
        serial="S1",
        refusals=["`nvme0n1p1` is swap", "`nvme0n1p2` is part of `md0`"],
        contents="",
        facts={"size_bytes": 10**12, "kind": "disk", "transport": "nvme", "firmware": "1.0", "rotational": False}
        | {"logical_block_bytes": 512, "physical_block_bytes": 4096, "write_cache": "write through", "under": ["sda"]}
        | {"scheduler": "none", "nr_requests": 1023, "hardware_queues": 16, "temperature_celsius": 41.85}
        | {"pcie_link": "8.0 GT/s PCIe x4", "pcie_link_max": "16.0 GT/s PCIe x4"},
        parts=[
            DevicePart(name="nvme0n1", size_bytes=10**12, signature="a gpt partition table"),
            DevicePart(name="nvme0n1p1", size_bytes=1 << 30, is_swap=True, signature="swap"),
            DevicePart(name="nvme0n1p2", size_bytes=1 << 38, holders=["md0", "dm-1"], signature="linux_raid_member"),
            DevicePart(name="nvme0n1p3", size_bytes=1 << 30),
        ],
    )
    assert "\n".join(lines(device)) == snapshot("""\
nvme0n1  931 GiB, FAST 9000, serial S1, firmware 1.0
  kind         disk, nvme, not rotational
  sectors      512 B logical, 4 KiB physical
  queue        scheduler none, 1023 requests, 16 hardware queues, cache write through
  link         PCIe 8.0 GT/s PCIe x4 of 16.0 GT/s PCIe x4
  temperature  42 °C
  backed by    sda
  in use       nvme0n1 (931 GiB) contains a gpt partition table
  in use       nvme0n1p1 (1 GiB) is swap
  in use       nvme0n1p2 (256 GiB) is part of `md0`, is part of `dm-1`
  overwrite    no, `nvme0n1p1` is swap; `nvme0n1p2` is part of `md0`\
""")
