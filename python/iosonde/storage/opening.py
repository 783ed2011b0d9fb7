"""From what the user named to a target, or why it is none."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.targets.device_target import open_devices
from iosonde.storage.targets.file_target import open_existing, open_new
from iosonde.storage.targets.kind import kind_of, target_kinds
from iosonde.storage.targets.target import Target
from iosonde.storage.targets.virtual_target import open_null, open_queue
from iosonde.text_files import expanded, is_utf8

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
