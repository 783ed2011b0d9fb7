"""From what the user named to a target, or why it is none.

Two kinds of targets have no storage: `null:SIZE`, where every I/O completes at once, and `simulated:...`, a queue on a
clock.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from iosonde.base.text_files import expanded, is_utf8
from iosonde.errors import TargetError
from iosonde.plan import Destroys, Setup
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.targets.device_target import open_devices
from iosonde.storage.targets.file_target import open_existing, open_new
from iosonde.storage.targets.target import Files, IoMode, Target, kind_of, target_kinds
from iosonde.units import compact_duration, compact_size, format_bytes, parse_duration, parse_size

VIRTUAL_BYTES = 1 << 40
"""Size of `null:` and `simulated:` when none is named."""


@dataclass(frozen=True, kw_only=True)
class VirtualTarget(Target):
    """No storage: every I/O completes at once, or by the clock of a simulated device."""

    name: str
    kind: Literal["null", "simulated"]
    size_bytes: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the simulated device that the user named; the rest comes from the workload's parameters."""

    @property
    def is_model(self) -> bool:
        return self.kind == "simulated"

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Only the size is limited."""
        if bytes_needed > self.size_bytes:
            raise TargetError(
                f"`{self.name}` is too small: {format_bytes(self.size_bytes)}, and {format_bytes(bytes_needed)} are "
                "needed",
                hint="make it larger, or the span smaller with `--set span=...`",
            )

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """No path."""
        return {"kind": "virtual", "size_bytes": size_bytes}

    def backend(self) -> dict[str, Any]:
        """Its own."""
        return {"kind": self.kind, **self.settings}

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing."""
        return []

    def with_setup(self, setup: Setup) -> Target:
        """The null target ignores file systems; a simulated device supports no setup."""
        return self if self.kind == "null" and setup.is_bare_device else super().with_setup(setup)

    def free_bytes(self) -> int:
        """Its size."""
        return self.size_bytes

    def describe(self) -> dict[str, Any]:
        """Text that the user named."""
        mark = {"simulated": True} if self.is_model else {}
        return {"kind": self.kind, **mark, "name": self.name, "size_bytes": self.size_bytes, "devices": []}


SETTINGS: dict[str, tuple[str, Callable[[str], Any], Callable[[Any], str]]] = {
    "servers": ("servers", lambda text: int(text) if text.isdecimal() else 0, str),
    "read": ("read_service_ns", parse_duration, compact_duration),
    "write": ("write_service_ns", parse_duration, compact_duration),
    "service": ("service", str, str),
    "size": ("", parse_size, compact_size),
}
"""Settings of `simulated:...` by name: key in the spec, and what reads and writes a value."""
_EXAMPLE = "`simulated:servers=4,read=100us,write=20us,size=1TiB`"


def open_null(text: str, size: str) -> VirtualTarget:
    """The target `null:SIZE`."""
    size_bytes = _setting(text, "size", size, like="`null:1GiB`") if size else VIRTUAL_BYTES
    return VirtualTarget(name=f"null:{compact_size(size_bytes)}", kind="null", size_bytes=size_bytes)


def open_queue(text: str, rest: str) -> VirtualTarget:
    """The target `simulated:...`."""
    written = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    unknown = [name for name in written if name not in SETTINGS]
    if unknown:
        raise TargetError(
            f"`{text}` has no setting `{unknown[0]}`",
            hint=f"write it like {_EXAMPLE}; there is `service` as well",
        )
    values = {name: _setting(text, name, value) for name, value in written.items()}
    size_bytes = values.pop("size", VIRTUAL_BYTES)
    named = ",".join(f"{name}={SETTINGS[name][2](value)}" for name, value in [*values.items(), ("size", size_bytes)])
    return VirtualTarget(
        name=f"simulated:{named}",
        kind="simulated",
        size_bytes=size_bytes,
        settings={SETTINGS[name][0]: value for name, value in values.items()},
    )


def _setting(target: str, name: str, text: str, *, like: str = _EXAMPLE) -> Any:
    refused = f"the {name} of `{target}` cannot be `{text}`"
    try:
        value = SETTINGS[name][1](text)
    except ValueError as error:
        raise TargetError(f"{refused}: {error}", hint=f"write it like {like}") from None
    if value not in ("constant", "exponential") if name == "service" else value <= 0:
        raise TargetError(refused, hint="`service` is `constant` or `exponential`; all others are above 0")
    if name != "service" and value >= 2**63:
        raise TargetError(f"{refused}: it is too large", hint=f"write it like {like}")
    return value


DEVICES = Path("/dev")


def open_target(text: str) -> Target:
    """The target with this name: a directory, a file, block devices, `null:SIZE`, `simulated:...`, or a feature's."""
    # The plan of a result set may contain anything, and a record contains the name of its target.
    if "\0" in text or not is_utf8(text):
        raise TargetError(f"the target `{text}` has a null character or is not UTF-8", hint="rename it")
    if not text.strip():
        raise TargetError(
            "the target is empty",
            hint="name a directory, a new file or a device; for the current directory write `--target .`",
        )
    if text.startswith("-"):
        raise TargetError(
            f"the target cannot start with a hyphen, as `{text}` does",
            hint=f"name a file as `./{text}`; standard output cannot be measured",
        )
    kind, _, rest = text.partition(":")
    if kind == "null":
        return open_null(text, rest)
    if kind == "simulated":
        return open_queue(text, rest)
    if of_feature := kind_of(text):
        return of_feature.open(text)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > 1 and not Path(text).exists():
        return open_devices(names)
    path = expanded(text)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _check_is_file(path, text)
        return open_new(path, text)
    except OSError as error:
        raise TargetError(
            f"cannot access `{text}`: {error.strerror}",
            hint="name a directory or a new file that you may write to",
        ) from error
    if stat.S_ISBLK(mode):
        return open_devices([text])
    return open_existing(path.resolve(), mode)


def _check_is_file(path: Path, text: str) -> None:
    """`TargetError` if a name that leads to nothing was meant as a device or a simulated target, not as a new file."""
    if path.is_relative_to(DEVICES) and not path.is_relative_to(DEVICES / "shm"):
        raise TargetError(f"there is no block device `{path}`", hint="`iosonde devices` lists the devices")
    if "/" not in text and number_of(DEVICES / text):
        raise TargetError(
            f"there is no file `{text}`, and a block device of that name",
            hint=f"name the device as `{DEVICES / text}`, or a new file as `./{text}`",
        )
    if kind := re.match("([a-z]+):", text):
        *kinds, last = (f"`{each}`" for each in ("null", "simulated", *target_kinds()))
        raise TargetError(
            f"there is no kind of target `{kind[1]}`",
            hint=f"the kinds are {', '.join(kinds)} and {last}; name a new file as `./{text}`",
        )
