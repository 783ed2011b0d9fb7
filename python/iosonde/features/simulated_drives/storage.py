"""Targets `sim:...`: simulated drives and arrays of them, and their state between the runs of a study.

    sim:NAME[*DRIVES][,raid=LEVEL][,chunk=SIZE][,capacity=SIZE][,bandwidth=SPEED][,parity=SPEED]

NAME is a model of `models/` or the path of a TOML file. Whatever is measured on one is marked as simulated.

What one run wrote, the next one reads. Each run is a process of its own, so the engine saves the drive's state to a
file and loads it again. The file is in a directory of the result set that is recorded in the journal, and is removed
after the last run; a study that was stopped continues with it. In plans and records the spec names no such file: by
itself a run starts with a new drive.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from iosonde.base import memory
from iosonde.errors import ResultsError, TargetError
from iosonde.features.simulated_drives.backends import NAME
from iosonde.features.simulated_drives.model import PAGE_BYTES, DriveModel, load_model, models, parse_bandwidth
from iosonde.plan import Destroys, JsonObject, Purge, Setup
from iosonde.storage.safety import journal
from iosonde.storage.targets.target import SIDE_BY_SIDE, Files, IoMode, ShippedTarget, Target, TargetKind, TargetState
from iosonde.units import compact_size, format_bytes, parse_size

EXAMPLE = "`sim:pm963,capacity=8GiB` or `sim:p900*4,raid=5,chunk=64KiB`"
LEVELS = {"0": 1, "1": 2, "10": 4, "5": 3, "6": 4}
"""RAID level -> fewest drives."""
DRIVES_MAX = 64
DEFAULT_CHUNK = 512 << 10
"""That of Linux md."""


def open_simulated(text: str) -> SimulatedDriveTarget:
    """The target that a user named with `sim:...`."""
    whole, *settings = text.removeprefix("sim:").split(",")
    name, star, count = whole.partition("*")
    if not name:
        raise TargetError(f"`{text}` names no model", hint=f"write it like {EXAMPLE}")
    given = _settings(text, settings)
    drives = _drives(text, count) if star else 1
    model = load_model(name, target=text)
    if "capacity" in given:
        model = model.scaled(given["capacity"])
    level = given.get("raid", "0")
    _check_level(text, level, drives)
    target = SimulatedDriveTarget(
        model_name=name,
        model=model,
        drives=drives,
        level=level,
        chunk_bytes=given.get("chunk", DEFAULT_CHUNK),
        bytes_per_second=given.get("bandwidth"),
        parity_bytes_per_second=given.get("parity"),
        own_capacity="capacity" in given,
    )
    if target.free_bytes() < PAGE_BYTES:
        raise TargetError(f"`{text}` has no room: a chunk is larger than a drive", hint=f"write it like {EXAMPLE}")
    return target


@dataclass(frozen=True, kw_only=True)
class SimulatedDriveTarget(Target):
    """One simulated drive, or an array of alike ones."""

    model_name: str
    model: DriveModel
    drives: int = 1
    level: str = "0"
    chunk_bytes: int = DEFAULT_CHUNK
    bytes_per_second: int | None = None
    parity_bytes_per_second: int | None = None
    """Share of data in what the host writes with parity."""
    own_capacity: bool = False
    kind: Literal["simulated"] = "simulated"

    @property
    def is_model(self) -> bool:
        return True

    @property
    def name(self) -> str:  # type: ignore[override]
        """As the user may write it again."""
        parts = [f"sim:{self.model_name}" + (f"*{self.drives}" if self.drives > 1 else "")]
        if self.drives > 1:
            parts += [f"raid={self.level}", f"chunk={compact_size(self.chunk_bytes)}"]
        if self.own_capacity:
            parts.append(f"capacity={compact_size(self.model.capacity)}")
        if self.bytes_per_second:
            parts.append(f"bandwidth={compact_size(self.bytes_per_second)}/s")
        if self.parity_bytes_per_second:
            parts.append(f"parity={compact_size(self.parity_bytes_per_second)}/s")
        return ",".join(parts)

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Its size is limited, and so is the memory for its tables."""
        if bytes_needed > self.free_bytes():
            raise TargetError(
                f"`{self.name}` is too small: {format_bytes(self.free_bytes())}, and {format_bytes(bytes_needed)} are "
                "needed",
                hint="make the span smaller with `--set span=...`, or the drive larger with `capacity=...`",
            )
        share = bytes_needed / self.free_bytes()
        needed, there = round(self.drives * self.model.memory_bytes() * share), memory.total_bytes()
        if needed > there * memory.SHARE:
            raise TargetError(
                f"simulating {format_bytes(bytes_needed)} of `{self.name}` needs {format_bytes(needed)} of memory; "
                f"the limit is {memory.SHARE:.0%} of {format_bytes(there)}",
                hint=f"scale the drive down, with the same ratios: `sim:{self.model_name},capacity=16GiB`",
            )

    def side_by_side(self, size_bytes: int) -> Target:
        """Drives one after the other: chunks of RAID 0 as large as what is addressed of each."""
        if self.drives not in SIDE_BY_SIDE or self.level != "0":
            return super().side_by_side(size_bytes)
        replace(self, drives=1).check(size_bytes, [], "direct")
        return replace(self, chunk_bytes=size_bytes)

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """No path."""
        return {"kind": "virtual", "size_bytes": size_bytes}

    def backend(self) -> dict[str, Any]:
        """The complete description of the drive; the path of its state is added for each run."""
        return {
            "kind": NAME,
            "model": self.model.for_engine(self.model_name),
            "array": {
                "level": f"raid{self.level}",
                "drives": self.drives,
                "chunk_bytes": self.chunk_bytes,
                "bytes_per_second": self.bytes_per_second,
                **({"parity_bytes_per_second": parity} if (parity := self.parity_bytes_per_second) else {}),
            },
            "state_path": None,
        }

    def most_operations(self) -> float:
        """The lowest of its rate limits, of all drives together."""
        return self.drives * min((limit.most_operations for limit in self.model.limit), default=math.inf)

    def over_provisioning(self) -> float | None:
        """That of its model; None for media that are overwritten in place."""
        return self.model.translation.over_provisioning

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing."""
        return []

    def free_bytes(self) -> int:
        """Bytes that the array's level leaves."""
        drive = self.model.capacity // PAGE_BYTES * PAGE_BYTES
        if self.drives > 1 and self.level != "1":
            drive = drive // self.chunk_bytes * self.chunk_bytes
        data = {"0": self.drives, "1": 1, "10": self.drives // 2, "5": self.drives - 1, "6": self.drives - 2}
        return drive * data[self.level]

    def device_count(self) -> int:
        """Drives."""
        return self.drives

    def with_setup(self, setup: Setup) -> SimulatedDriveTarget:
        """An array of the first drives, without a file system."""
        changes: dict[str, Any] = {"level": "0"}
        for part in setup.layers:
            if not part.can_be_simulated:
                raise self._unsupported(f"a `{part.part}` ({part.text(setup.devices)})")
            changes |= part.simulated()
        if setup.file_system != "none":
            raise self._unsupported(f"a file system (`{setup.file_system}`)")
        made = replace(self, drives=setup.devices, **changes)
        if made.free_bytes() < PAGE_BYTES:
            raise TargetError(
                f"`{self.name}` has no room for {setup.text}: a chunk is larger than a drive",
                hint="make the drives larger with `capacity=...`, or the `chunk` smaller",
            )
        return made

    def _unsupported(self, what: str) -> TargetError:
        return TargetError(
            f"simulated drives cannot have {what}",
            where=f"on the target `{self.name}`",
            hint="set the parameter to `none`, or name block devices as the target",
        )

    def purges(self) -> list[Purge]:
        """A drive that was never written, or the same by commands."""
        return ["format", "trim", "overwrite"]

    def describe(self) -> dict[str, Any]:
        """The model, and that it is one."""
        device = {
            "kind": "simulated",
            "name": self.model_name,
            "model": f"{self.model.title} (simulated)",
            "size_bytes": self.model.capacity,
            **({"firmware": firmware} if (firmware := self.model.firmware) else {}),
        }
        return {
            "kind": self.kind,
            "simulated": True,
            "name": self.name,
            "size_bytes": self.free_bytes(),
            "class": self.model.class_,
            "array": {"level": f"raid{self.level}", "drives": self.drives, "chunk_bytes": self.chunk_bytes},
            "devices": [{"device": f"drive{number}", **device} for number in range(self.drives)],
        }


def _settings(text: str, settings: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in ("raid", "chunk", "capacity", "bandwidth", "parity"):
            raise TargetError(
                f"`{text}` has no setting `{name}`",
                hint=f"there are `raid`, `chunk`, `capacity`, `bandwidth` and `parity`; write it like {EXAMPLE}",
            )
        given[name] = _value(text, name, value)
    return given


def _value(text: str, name: str, value: str) -> Any:
    if name == "raid":
        return value.removeprefix("raid")
    try:
        number = parse_bandwidth(value) if name in ("bandwidth", "parity") else parse_size(value)
    except ValueError as error:
        raise TargetError(
            f"the {name} of `{text}` cannot be `{value}`: {error}", hint=f"write it like {EXAMPLE}"
        ) from None
    if number < PAGE_BYTES or (name == "chunk" and number % PAGE_BYTES):
        raise TargetError(
            f"the {name} of `{text}` cannot be `{value}`",
            hint="it is 4 KiB at least, and a chunk is a multiple of that",
        )
    return number


def _drives(text: str, count: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", count) or not 1 <= int(count) <= DRIVES_MAX:
        raise TargetError(f"`{text}` has no number of drives after `*`", hint=f"1 to {DRIVES_MAX}, as in {EXAMPLE}")
    return int(count)


def _check_level(text: str, level: str, drives: int) -> None:
    if level not in LEVELS:
        raise TargetError(f"there is no RAID level `{level}`", where=f"by the target `{text}`", hint="0, 1, 10, 5 or 6")
    if drives < LEVELS[level] or (level == "10" and drives % 2):
        even = " and an even number" if level == "10" else ""
        raise TargetError(
            f"RAID {level} needs at least {LEVELS[level]} drives{even}, not {drives}",
            where=f"by the target `{text}`",
            hint=f"write their number after the model, as in {EXAMPLE}",
        )


DIRECTORY = "temporary-drive-state"
"""Its name in a result set."""

FILES = ("state", "state.limits", "state.writing", "state.limits.writing", "setup")
"""Names of the files in it, which the engine replaces."""


@dataclass(frozen=True)
class DriveState(TargetState):
    """State of the drives of a plan's target."""

    @property
    def path(self) -> Path:
        """Directory of the state."""
        return self._parent / DIRECTORY

    def create(self) -> None:
        """Create the directory, unless it remains from before an interruption."""
        self._create_parent()
        if os.path.lexists(self.path) and journal.take_over(self.path, keep=False):
            return
        try:
            journal.create_directory(self.path)
        except OSError as error:
            raise TargetError(
                f"cannot create `{self.path}` for the state of the simulated drive: {error.strerror}",
                hint="move away what is there, or choose another output directory",
            ) from error
        journal.add_files(self.path, dict.fromkeys(FILES, 0))

    def remove(self) -> None:
        """Remove it after the last run."""
        if self._is_second_arm and (self._parent.is_symlink() or not self._parent.is_dir()):
            return
        if journal.is_ours(self.path):
            with journal.undoing(f"remove `{self.path}`"):
                journal.remove(self.path)
        if self._is_second_arm:
            with contextlib.suppress(OSError):  # Something else is in it.
                self._parent.rmdir()

    def begin(self, setup: str, *, is_fresh: bool) -> dict[str, Any]:
        """Start with new drives, unless those of an earlier session have the same setup."""
        if not is_fresh and self._setup() == setup:
            return {"simulated": True, "kept_from_before": True}
        # A kill in between leaves new drives without a setup.
        (self.path / "setup").unlink(missing_ok=True)
        (self.path / "state.limits").unlink(missing_ok=True)
        self.purge()
        (self.path / "setup").write_text(setup, encoding="utf-8")
        return {"simulated": True}

    def purge(self) -> None:
        """The next run starts with a new drive. Credits of its rate limits remain as they are."""
        (self.path / "state").unlink(missing_ok=True)

    def with_state(self, spec: JsonObject) -> JsonObject:
        """The spec with the path of the drive's state."""
        workload = spec["workload"]
        backend = workload.get("backend", {})
        if backend.get("kind") != NAME:
            return spec
        return {**spec, "workload": {**workload, "backend": {**backend, "state_path": str(self.path / "state")}}}

    @property
    def _is_second_arm(self) -> bool:
        arms = {case.arm for case in self.plan.cases}
        return "b" in arms and "a" not in arms

    @property
    def _parent(self) -> Path:
        """The drives of arm `b` have a directory of their own."""
        return self.directory / "against" if self._is_second_arm else self.directory

    def _create_parent(self) -> None:
        """Create that of arm `b`; `ResultsError` for anything else in its place, as in an edited result set."""
        if not self._is_second_arm:
            return
        with contextlib.suppress(FileExistsError):
            self._parent.mkdir()
        if not stat.S_ISDIR(self._parent.lstat().st_mode):
            raise ResultsError(
                f"`{self._parent}` is not a directory",
                where="it would contain the state of the simulated drive of arm `b`",
                hint="the result set was edited, perhaps with intent; to measure here, run the study again",
            )

    def _setup(self) -> str | None:
        """The setup that the state belongs to; None if there is none."""
        try:
            return (self.path / "setup").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


def _shipped() -> list[ShippedTarget]:
    drives = {f"sim:{name}": load_model(name, target=f"sim:{name}") for name in models()}
    return [ShippedTarget(name=name, title=model.title, class_=model.class_) for name, model in drives.items()]


TARGETS = (TargetKind(prefix="sim", open=open_simulated, shipped=_shipped, state=DriveState),)
