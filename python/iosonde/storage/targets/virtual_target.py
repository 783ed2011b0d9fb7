"""Targets without storage: `null:SIZE`, where every I/O completes at once, and `simulated:...`, a queue on a clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from iosonde.errors import TargetError
from iosonde.plan import Destroys, Setup
from iosonde.storage.targets.target import Files, IoMode, Target
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

    def block_devices(self) -> list[str]:
        """None."""
        return []

    def describe(self) -> dict[str, Any]:
        """Text that the user named."""
        mark = {"simulated": True} if self.is_model else {}
        return {"kind": self.kind, **mark, "name": self.name, "size_bytes": self.size_bytes, "devices": []}


def open_null(text: str, size: str) -> VirtualTarget:
    """The target `null:SIZE`."""
    size_bytes = _setting(text, "size", size, like="`null:1GiB`") if size else VIRTUAL_BYTES
    return VirtualTarget(name=f"null:{compact_size(size_bytes)}", kind="null", size_bytes=size_bytes)


_SIMULATED = ("servers", "read", "write", "size", "service")
_EXAMPLE = "`simulated:servers=4,read=100us,write=20us,size=1TiB`"


def open_queue(text: str, rest: str) -> VirtualTarget:
    """The target `simulated:...`."""
    written = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    unknown = [name for name in written if name not in _SIMULATED]
    if unknown:
        raise TargetError(
            f"`{text}` has no setting `{unknown[0]}`",
            hint=f"write it like {_EXAMPLE}; there is `service` as well",
        )
    values = {name: _setting(text, name, value) for name, value in written.items()}
    size_bytes = values.pop("size", VIRTUAL_BYTES)
    names = {"read": "read_service_ns", "write": "write_service_ns"}
    return VirtualTarget(
        name=_simulated_name(values, size_bytes),
        kind="simulated",
        size_bytes=size_bytes,
        settings={names.get(name, name): value for name, value in values.items()},
    )


def _simulated_name(values: dict[str, Any], size_bytes: int) -> str:
    texts = {name: compact_duration(value) if name in ("read", "write") else value for name, value in values.items()}
    return "simulated:" + ",".join(
        f"{name}={text}" for name, text in {**texts, "size": compact_size(size_bytes)}.items()
    )


def _setting(target: str, name: str, text: str, *, like: str = _EXAMPLE) -> Any:
    try:
        match name:
            case "size":
                value: Any = parse_size(text)
            case "read" | "write":
                value = parse_duration(text)
            case "servers":
                value = int(text) if text.isdecimal() else 0
            case _:
                value = text
    except ValueError as error:
        raise TargetError(
            f"the {name} of `{target}` cannot be `{text}`: {error}", hint=f"write it like {like}"
        ) from None
    if (name == "service" and value not in ("constant", "exponential")) or (name != "service" and value <= 0):
        raise TargetError(
            f"the {name} of `{target}` cannot be `{text}`",
            hint="`service` is `constant` or `exponential`; all others are above 0",
        )
    if name != "service" and value >= 2**63:
        raise TargetError(f"the {name} of `{target}` cannot be `{text}`: it is too large", hint=f"write it like {like}")
    return value
