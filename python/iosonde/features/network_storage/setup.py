"""Network storage as part of a setup: NVMe over TCP to a target on this machine, and mounts of NFS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.plan import FileSystem, Setup, SetupPart
from iosonde.study.setup_extension import Rule, SetupExtension
from iosonde.units import MIB, compact_duration, format_bytes, parse_duration, parse_size


class FabricSetup(SetupPart):
    """A device that is exported by the kernel's NVMe target and connected again, fully resolved."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(
            serialization_alias=lambda name: "fabric" if name == "kind" else f"fabric_{name}"
        )
    )
    part = "fabric"
    has_server = True
    kind: Literal["nvme-tcp"]
    queues: int | None = None
    """I/O queues with interrupts; None for one for each CPU."""
    poll_queues: int = 0
    header_digest: bool = False
    data_digest: bool = False

    def text(self, devices: int) -> str:
        """`over NVMe/TCP, 4 queues, data digest`."""
        words = [
            "over NVMe/TCP",
            f"{self.queues} queue{'s' if self.queues != 1 else ''}" if self.queues else "",
            f"{self.poll_queues} polled" if self.poll_queues else "",
            "header digest" if self.header_digest else "",
            "data digest" if self.data_digest else "",
        ]
        return ", ".join(filter(None, words))


class NfsSetup(SetupPart):
    """A mount of NFS, fully resolved; None leaves an option to the kernel."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=lambda name: f"nfs_{name}"))
    part = "nfs"
    has_server = True
    version: str = "4.2"
    connections: int | None = None
    rsize: int | None = None
    wsize: int | None = None
    attribute_cache: int | None = None
    """Seconds; 0 turns it off."""
    writes: Literal["async", "sync"] = "async"

    @property
    def file_system(self) -> FileSystem:
        """Mounted from the server."""
        return "nfs"

    @property
    def options(self) -> str:
        """For mount(8)."""
        named = {
            "vers": self.version,
            "proto": "tcp",
            "nconnect": self.connections,
            "rsize": self.rsize,
            "wsize": self.wsize,
            "actimeo": self.attribute_cache,
        }
        given = [f"{name}={value}" for name, value in named.items() if value is not None]
        # Else a mount of the user with the same options shares caches, counters and aborted calls with it.
        return ",".join([*given, "hard", "nosharecache", *(["sync"] if self.writes == "sync" else [])])

    def text(self, devices: int) -> str:
        """`NFS 4.2, rsize 64 KiB`."""
        words = [
            f"NFS {self.version}",
            f"{self.connections} connections" if self.connections else "",
            f"rsize {format_bytes(self.rsize)}" if self.rsize else "",
            f"wsize {format_bytes(self.wsize)}" if self.wsize else "",
            f"attribute cache {self.attribute_cache} s" if self.attribute_cache is not None else "",
            "sync" if self.writes == "sync" else "",
        ]
        return ", ".join(filter(None, words))


PARTS = (FabricSetup, NfsSetup)


class FabricParameters(BaseModel):
    """Parameters of a case about NVMe over Fabrics."""

    fabric: Literal["none", "nvme-tcp"] | None = None
    """Access to the device: `none` (local), or `nvme-tcp` (exported by the kernel's NVMe target on 127.0.0.1, and
    connected by its NVMe/TCP host). Needs root."""
    fabric_queues: Annotated[int | None, Field(ge=1, le=1024)] = None
    """NVMe/TCP: I/O queues, each with a TCP connection. Empty: one for each CPU."""
    fabric_poll_queues: Annotated[int | None, Field(ge=0, le=1024)] = None
    """NVMe/TCP: further queues for polled I/O (`completion_polling`)."""
    fabric_header_digest: bool | None = None
    """NVMe/TCP: CRC-32C of the header of each PDU."""
    fabric_data_digest: bool | None = None
    """NVMe/TCP: CRC-32C of the data of each PDU."""


def _fabric(given: Mapping[str, Any]) -> FabricSetup | None:
    """Return the fabric of a case; None for local access."""
    if given.get("fabric") in (None, "none"):
        return None
    options = {name: given[name] for name in FabricParameters.model_fields if given.get(name) is not None}
    return FabricSetup(kind=options.pop("fabric"), **{n.removeprefix("fabric_"): value for n, value in options.items()})


def _fabric_rules(setup: Setup) -> list[Rule]:
    """Return the rules of a setup with a fabric."""
    if setup.layer(FabricSetup) is None:
        return []
    exclude = "leave the combination out with `[[parts.exclude]]`"
    return [
        (any(layer.file_system for layer in setup.layers) or setup.is_bluestore,
         f"`fabric` requires one block device below it, but {setup.text} has a file system there",
         f"choose another setup, or {exclude}"),
    ]  # fmt: skip


def _read_transfer(value: Any) -> int:
    size = parse_size(value)
    if size % 1024 or not 1024 <= size <= MIB:
        raise ValueError("it must be a multiple of 1 KiB; write a size from 1 KiB to 1 MiB, such as 64KiB")
    return size


def _read_seconds(value: Any) -> int:
    length = 0 if value in (0, "0") else parse_duration(value)
    if length % 1_000_000_000:
        raise ValueError("it must be whole seconds; write a time such as 3s, or 0")
    return length // 1_000_000_000


class NfsParameters(BaseModel):
    """Parameters of a case about its mount of NFS (`file_system = "nfs"`)."""

    nfs_version: Literal["3", "4.0", "4.1", "4.2"] | None = None
    """NFS: version of the protocol (4.2)."""
    nfs_connections: Annotated[int | None, Field(ge=1, le=16)] = None
    """NFS: TCP connections to the server (`nconnect`). Empty: 1."""
    nfs_rsize: Annotated[int | None, BeforeValidator(_read_transfer)] = None
    """NFS: most bytes of a READ call (`rsize`). Empty: the most that the server supports."""
    nfs_wsize: Annotated[int | None, BeforeValidator(_read_transfer)] = None
    """NFS: most bytes of a WRITE call (`wsize`). Empty: the most that the server supports."""
    nfs_attribute_cache: Annotated[int | None, BeforeValidator(_read_seconds)] = None
    """NFS: time that attributes are cached (`actimeo`); 0 asks the server each time. Empty: 3 to 60 s."""
    nfs_writes: Literal["async", "sync"] | None = None
    """NFS: `sync` sends each write of an application at once (mount option `sync`)."""


def _nfs(given: Mapping[str, Any]) -> NfsSetup | None:
    """Return the mount of a case; None without one."""
    options = {name: given[name] for name in NfsParameters.model_fields if given.get(name) is not None}
    if given.get("file_system") != "nfs" and not options:
        return None
    return NfsSetup(**{name.removeprefix("nfs_"): value for name, value in options.items()})


def _nfs_rules(setup: Setup) -> list[Rule]:
    """Return the rules of a setup with a mount of NFS."""
    return [
        (setup.layer(NfsSetup) is not None and setup.file_system != "nfs",
         f"options of NFS require `file_system = \"nfs\"`; `file_system` is `{setup.file_system}`",
         "set it, or leave the combination out with `[[parts.exclude]]`"),
    ]  # fmt: skip


def _read_time(value: Any) -> str:
    return compact_duration(parse_duration(value))


OUTAGE_LENGTH = "5s"


class OutageParameters(BaseModel):
    """Parameters of an outage during each run."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    needs_root: ClassVar[bool] = True

    outage: Literal["off", "server", "link", "watch"] | None = None
    """Outage during the measurement: `server` (the NVMe/TCP target or NFS server that the setup uses on this machine is
    stopped and started), `link` (a blackhole route to the address of the server), `watch` (unavailable time is
    recorded, and you restart the server), or `off`. Needs root."""
    outage_after: Annotated[str | None, BeforeValidator(_read_time)] = None
    """Time from the start of the measurement to the outage (5s)."""
    outage_length: Annotated[str | None, BeforeValidator(_read_time)] = None
    """Length of the outage (5s)."""


SETTINGS = (OutageParameters,)
SIZES = ("nfs_rsize", "nfs_wsize")
EXTENSIONS = (
    SetupExtension(parameters=FabricParameters, resolve=_fabric, rules=_fabric_rules),
    SetupExtension(parameters=NfsParameters, resolve=_nfs, rules=_nfs_rules),
)
