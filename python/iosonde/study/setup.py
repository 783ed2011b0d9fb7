"""File system between the user's target and the workload, and how often it is created.

A setup is written in a study like any parameter, so it can be a factor; but it belongs to the case and not to a stream.
`SetupParameters` has the parameters that need no feature, with their meaning; features add theirs
(`setup_extension.py`). `Setup` (plan) is the result on a target, with everything decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from iosonde.base.features import contributed
from iosonde.errors import StudyError
from iosonde.plan import FileSystem, Fresh, Frozen, Journal, Setup, SetupPart, check_mount_options
from iosonde.study.setup_extension import Rule, SetupExtension
from iosonde.study.workload import reading
from iosonde.study.workload.workload import Workload
from iosonde.units import format_bytes, parse_size


def _read_kib(value: Any) -> int:
    size = parse_size(value)
    if size < 0 or size % 1024:
        raise ValueError("must be a multiple of 1 KiB")
    return size


class QueueParameters(Frozen):
    """Parameters in `/sys/block/DEVICE/queue`; omitted ones leave the system as it is."""

    io_scheduler: Annotated[str | None, Field(pattern=r"^[a-z][a-z0-9-]*$")] = None
    """I/O scheduler of the target's block devices, such as `none` or `mq-deadline`. Needs root."""
    read_ahead: Annotated[int | None, BeforeValidator(_read_kib)] = None
    """Read-ahead of the page cache, in multiples of 1 KiB. Needs root."""
    nr_requests: Annotated[int | None, Field(ge=1, le=65536)] = None
    """Requests that the block queue holds. Needs root."""
    max_request: Annotated[int | None, BeforeValidator(_read_kib)] = None
    """Largest request that the block layer passes on, in multiples of 1 KiB. Needs root."""
    nomerges: Annotated[int | None, Field(ge=0, le=2)] = None
    """Merging of requests: 0 all, 1 simple ones, 2 none. Needs root."""
    rq_affinity: Annotated[int | None, Field(ge=0, le=2)] = None
    """CPU that completes a request: 0 any, 1 the group's, 2 the submitter's. Needs root."""


SMALLEST_BYTES: dict[str, int] = {"none": 1 << 20, "ext4": 16 << 20, "xfs": 300 << 20, "btrfs": 128 << 20,
                                  "bluestore": 1 << 30, "nfs": 16 << 20}  # fmt: skip
"""Devices that are smaller take no such file system (xfsprogs and btrfs-progs refuse; ext4 would have no journal)."""

COMMAS = ("mount_options",)
"""Parameters whose value may hold commas."""

_EXTENSIONS = contributed("setup", "EXTENSIONS", SetupExtension)
SIZES = ("setup_size", "read_ahead", "max_request", *contributed("setup", "SIZES", str))
"""Parameters in bytes."""


def _read_setup_size(value: Any) -> int:
    size = parse_size(value)
    if size < 1 << 20:
        raise ValueError("size must be at least 1 MiB")
    return size


def _read_mount_options(value: Any) -> Any:
    if isinstance(value, str) and any(each.isspace() for each in value.strip()):
        raise ValueError("mount options must be separated by commas, without spaces")
    if not isinstance(value, str):
        return value
    return "" if value in ("none", "defaults") else check_mount_options(value.strip())


class SetupParameters(Frozen):
    """Parameters of a setup; those that a study omits are decided when the target is known."""

    devices: Annotated[int | None, Field(ge=1, le=256)] = None
    """Number of devices, the first ones of the target. Empty: one, or all that an array can have."""
    file_system: FileSystem | None = None
    """Created on top; `none` leaves the device raw. `bluestore`: each object daemon of Ceph takes a device raw
    (workload `objects`). `nfs`: NFS over ext4 of this machine, or of the target `nfs:SERVER:/EXPORT`."""
    journal: Annotated[
        Journal | None, BeforeValidator(lambda value: reading.renamed(value, {True: "on", False: "off"}))
    ] = None
    """ext4: with a journal, without one, or with one on a separate device."""
    mount_options: Annotated[str | None, BeforeValidator(_read_mount_options)] = None
    """Options of mount(8), separated by commas."""
    fresh: Fresh | None = None
    """How often all of it is recreated: once a `study`, `case` or `run`."""
    setup_size: Annotated[int | None, BeforeValidator(_read_setup_size)] = None
    """On a directory as target: size of the file under a loop device that represents a device. Empty: most of the free
    space, at most 16 GiB."""


_SETUP_MODELS: tuple[type[BaseModel], ...] = (SetupParameters, *(each.parameters for each in _EXTENSIONS))
_HOST_MODELS: tuple[Any, ...] = (QueueParameters, *contributed("setup", "SETTINGS"))
CASE_MODELS: tuple[type[BaseModel], ...] = (*_HOST_MODELS, *_SETUP_MODELS[1:])
"""Models of the parameters of a case besides `Setup`."""


def _names(models: Iterable[type[BaseModel]]) -> tuple[str, ...]:
    return tuple(name for model in models for name in model.model_fields)


SETUP_NAMES = _names(_SETUP_MODELS)
"""Parameters of setups, with those of features."""
LAYOUT = ("devices", *_names(each.parameters for each in _EXTENSIONS if each.is_layout))
"""Those about how devices are combined."""
HOST_SETTINGS = _names(_HOST_MODELS)
"""Parameters of a case about the machine: settings of the block queues, and those of features."""
PRIVILEGED = _names([QueueParameters, *(model for model in _HOST_MODELS[1:] if model.needs_root)])
"""Those of them that only root can change."""

NAMES = (*SETUP_NAMES, *HOST_SETTINGS)
"""Parameters of a case as a whole."""

MODELS = {name: model for model in (*_SETUP_MODELS, *_HOST_MODELS) for name in model.model_fields}
"""The model of each of them."""


def is_setup(parameter: str) -> bool:
    """Return True if the parameter (`STREAM.NAME` or `NAME`) belongs to the case and not to a stream."""
    return parameter.rpartition(".")[2] in NAMES


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked, sizes in bytes; `StudyError` where it is invalid."""
    return reading.value(MODELS[name], "a setup", name, value)


def without(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some parameters that are the workload's."""
    return {name: value for name, value in parameters.items() if not is_setup(name)}


def kernel_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`HOST_SETTINGS` among the parameters of a case, checked."""
    read = {name: read_value(name, value) for name, value in parameters.items() if name in HOST_SETTINGS}
    return {name: value for name, value in read.items() if value is not None}


def given_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a setup among the parameters of a case, checked."""
    return {name: read_value(name, value) for name, value in parameters.items() if name in SETUP_NAMES}


def resolve(parameters: Mapping[str, Any], *, devices: int) -> Setup | None:
    """The setup by the parameters of a case, on a target of this many devices; None if there are none."""
    written = given_parameters(parameters)
    given = SetupParameters.model_construct(**written)
    if not written:
        return None
    found = [layer for each in _EXTENSIONS if (layer := each.resolve(written)) is not None]
    layers = sorted(found, key=lambda layer: not layer.combines)
    osds = int(parameters.get("osds") or 1) if given.file_system == "bluestore" else 1
    is_combined = any(layer.combines for layer in layers)
    own_file_system = next((layer.file_system for layer in layers if layer.file_system), None)
    setup = Setup(
        devices=given.devices or (max(1, devices - _further_devices(layers)) if is_combined else osds),
        parts={layer.part: layer.model_dump() for layer in layers},
        file_system=given.file_system or own_file_system or "none",
        journal=given.journal or "on",
        mount_options=given.mount_options or "",
        fresh=given.fresh or "study",
        setup_size=given.setup_size,
    )
    _refuse(_rules(setup, devices))
    if setup.is_bluestore and setup.devices < osds:
        raise StudyError(
            f"{osds} object daemons require {osds} devices; `devices` is {setup.devices}",
            hint="leave `devices` out, or lower `osds`",
        )
    return setup


def _refuse(rules: Iterable[Rule]) -> None:
    problem = next(((text, hint) for wrong, text, hint in rules if wrong), None)
    if problem:
        raise StudyError(problem[0], hint=problem[1])


def _rules(setup: Setup, available: int) -> list[tuple[bool, str, str]]:
    """Rules for parameters that depend on each other: a condition, the error if it is true, and a hint."""
    count = setup.devices + _further_devices(setup.layers)
    named = [layer.part for layer in setup.layers if layer.further_bytes(0)]
    apart = f", one of them for the {' and the '.join(named)}" if named else ""
    powers = ",".join(str(1 << power) for power in range(int(math.log2(available)) + 1))
    return [
        *(rule for each in _EXTENSIONS for rule in each.rules(setup)),
        (count > available, f"the case requires {count} devices{apart}; the target has {available}",
         f"name more devices as the target, or leave out what needs them with `--set devices={powers}`"),
        (setup.journal != "on" and setup.file_system != "ext4",
         f"`journal` requires ext4; `file_system` is `{setup.file_system}`", "leave `journal` out"),
        (bool(setup.mount_options) and setup.file_system == "none",
         "`mount_options` require a file system; `file_system` is `none`", "leave them out, or choose one"),
        (setup.setup_size is not None and setup.setup_size < SMALLEST_BYTES[setup.file_system],
         f"`{setup.file_system}` requires at least {format_bytes(SMALLEST_BYTES[setup.file_system])}; `setup_size` is "
         f"{format_bytes(setup.setup_size or 0)}", "raise `setup_size`"),
        (setup.is_bluestore and bool(setup.mount_options),
         "`mount_options` require a file system, but BlueStore has none", "leave them out"),
    ]  # fmt: skip


def _further_devices(layers: Iterable[SetupPart]) -> int:
    return sum(len(layer.further_bytes(0)) for layer in layers)


def check_workload(setup: Setup, workload: Workload) -> None:
    """`StudyError` for a workload that a part of the setup excludes."""
    _refuse(rule for each in _EXTENSIONS for rule in each.rules_with_workload(setup, workload))
