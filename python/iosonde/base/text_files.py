"""Names and files that a user gives: studies, drive models, job files, files of options.

All of them are opened by `open_regular`: a FIFO would wait for its other end, a device such as `/dev/zero` never ends,
and merely opening others has effects (a watchdog, a tape).
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from iosonde.errors import IosondeError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")

LIMIT_BYTES = 64 << 20
"""Longer files are refused."""


def expanded(text: str | Path) -> Path:
    """Return a path with `~` and `~USER` replaced by a home directory; that of an unknown user stays as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  # `Path.expanduser` raises `RuntimeError`.


def open_regular(path: Path | str, *, directory: int | None = None, follow_links: bool = True) -> int:
    """Open a regular file for reading and return its descriptor; `OSError` for anything else, which is not opened.

    A descriptor of the kind `O_PATH` identifies the file without opening it (open(2)), and the same file is opened
    through that descriptor.
    """
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        found = os.open(path, flags, dir_fd=directory)
    except ValueError:
        raise OSError(errno.EINVAL, "a path cannot contain a null character") from None
    try:
        _require_regular(os.fstat(found).st_mode)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _require_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link")
    raise OSError(errno.EINVAL, f"it is a {_KINDS.get(stat.S_IFMT(mode), 'special file')}, not a regular file")


_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device", stat.S_IFSOCK: "socket"}


def read(path: Path, *, within: Path | None = None) -> str:
    """The text of a regular file; `OSError` if it is unreadable or long, `UnicodeDecodeError` if it is not UTF-8.

    With `within`, also `OSError` (`EXDEV`, as in openat2(2)) if the file that was opened is not below that directory.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        if within is not None:
            opened = Path(f"/proc/self/fd/{file.fileno()}").readlink()
            if not opened.is_relative_to(within.resolve()):
                raise OSError(errno.EXDEV, f"it is outside the directory `{within}`")
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {LIMIT_BYTES >> 20} MiB")
    return content.decode("utf-8")


def is_utf8(text: str) -> bool:
    """Return True if a name can be stored: file names may be any bytes, which Python passes on as surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_toml(text: str) -> dict[str, Any]:
    """The data of a TOML text; `TOMLDecodeError` also if it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None


def read_toml(model: type[T], path: Path, what: str, error: type[IosondeError], *, hint: str) -> T:
    """Return the content of a TOML file, checked; `what` names it in errors, such as `list of hosts`."""
    try:
        values = parse_toml(read(path))
    except (OSError, UnicodeDecodeError) as failed:
        reason = getattr(failed, "strerror", None) or "it is not UTF-8 text"
        raise error(f"cannot read the {what} `{path}`: {reason}", hint=hint) from None
    except tomllib.TOMLDecodeError as failed:
        raise error(f"the {what} is not TOML: {failed}", where=f"in `{path}`", hint=hint) from None
    return validated(model, values, str(path), what, error, hint=hint)


def validated(
    model: type[T], values: Mapping[str, Any], where: str, what: str, error: type[IosondeError], *, hint: str
) -> T:
    """Return the content of a file that has been parsed."""
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as failed:
        first = failed.errors(include_url=False)[0]
        place = "`" + ".".join(map(str, first["loc"])) + "`" if first["loc"] else f"the {what}"
        sentences = {"missing": f"{place} is missing", "extra_forbidden": f"there is no key {place}"}
        wrong = f"{place} is wrong: {first['msg'].removeprefix('Value error, ')}"
        raise error(sentences.get(first["type"], wrong), where=f"in `{where}`", hint=hint) from None
