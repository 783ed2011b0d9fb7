"""Programs of servers: where distributions put them, and how to run them once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from iosonde import tools
from iosonde.errors import ServerError, StudyError
from iosonde.servers.account import Account
from iosonde.servers.process import announce, await_end, ended, environment, isolated, unprivileged

ANSWER_S = 60.0
"""Timeout for a program that answers or creates an empty data directory."""


def find(name: str, places: Sequence[str] = ()) -> str | None:
    """Real path of a program on PATH, in a system directory, or in one of `places`; None if it is missing."""
    directories = [os.environ.get("PATH", ""), tools.SYSTEM_PATH, *places]
    found = shutil.which(name, path=":".join(directories))
    return str(Path(found).resolve()) if found else None


def call(command: Sequence[str], *, account: Account | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as that user; `ServerError` if it cannot be started or hangs."""
    prefix = unprivileged(account, bound=True) if account else []
    try:
        done = tools.run([*prefix, *command], timeout_s=ANSWER_S, cwd="/", env=environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"cannot run `{command[0]}`: {error}", hint="run it by hand to see the cause") from error
    return subprocess.CompletedProcess(command, done.returncode, done.stdout, done.stderr)


def reported_version(command: Sequence[str], pattern: str, *, package: str) -> re.Match[str]:
    """The version that a program prints; `ServerError` if it fails or prints none."""
    done = call(command)
    matched = re.search(pattern, done.stdout)
    if done.returncode or not matched:
        raise ServerError(f"`{command[0]}` does not report its version", hint=f"reinstall the package `{package}`")
    return matched


def require_version(title: str, version: str, oldest: Sequence[int], *, program: str, package: str) -> None:
    """`ServerError` (`wrong_version`) for a version that is older than `oldest`."""
    if [int(part) for part in re.findall(r"[0-9]+", version)] < list(oldest):
        raise ServerError(
            f"{title} {version} is too old: version {'.'.join(map(str, oldest))} or newer is required",
            where=f"as `{program}`",
            hint=f"install a newer package `{package}`",
            code="wrong_version",
        )


def provision(command: Sequence[str], *, account: Account, data: Path, server: str) -> subprocess.CompletedProcess[str]:
    """Run the program that creates a data directory through the program `server`; no process remains."""
    try:
        process = tools.Process(
            [*isolated(account), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd="/", env=environment(),
        )  # fmt: skip
    except OSError as error:
        raise ServerError(f"cannot run `{command[0]}`: {error}", hint="run it by hand to see the cause") from error
    try:
        announce(data, process.pid, server)
        printed = process.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"cannot run `{command[0]}`: {error}", hint="run it by hand to see the cause") from error
    finally:
        process.kill()
        process.wait()
        await_end(data, server)
        ended(data, server)
    output, errors = (each.decode("utf-8", errors="replace") for each in printed)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def require_success(done: subprocess.CompletedProcess[str], what: str) -> None:
    """`ServerError` with the program's last message unless it succeeded; `what` is a clause."""
    if done.returncode == 0:
        return
    lines = [line for line in (done.stderr + done.stdout).strip().splitlines() if line.strip()]
    error = next((line for line in lines if re.search(r"error|fatal", line, re.IGNORECASE)), lines[-1] if lines else "")
    raise ServerError(
        f"cannot {what}: {error or f'exit status {done.returncode}'}",
        where=f"by `{Path(done.args[0]).name}`",
        hint="check the free space and the permissions of the target",
        code="no_space" if report_full_disk(done.stderr + done.stdout) else "server",
    )


def report_full_disk(messages: str) -> bool:
    """Return True if messages of a server report ENOSPC (28)."""
    return re.search(r"No space left|disk full|(error|Errcode):? 28\b", messages, re.IGNORECASE) is not None


_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PREFIX = re.compile(r"^(loose|maximum|enable|disable|skip)_", re.IGNORECASE)
"""Prefixes that MariaDB accepts before the name of any setting."""


def _without_prefixes(name: str) -> Iterator[str]:
    """A name, and what it is without the first of its prefixes, the first two, and so on."""
    yield name
    if (rest := _PREFIX.sub("", name)) != name:
        yield from _without_prefixes(rest)


def refuse_reserved(
    settings: Mapping[str, object], reserved: Sequence[str], title: str, *, complete: Collection[str] | None = None
) -> None:
    """`StudyError` for settings that decide the server's directories, addresses or programs.

    Servers take dashes for underscores and ignore case, and split what they get at `=`. Give `complete` for one that
    takes the beginning of a name for all of it: complete names that are the beginning of a reserved one.
    """
    patterns = "|".join(reserved).replace("-", "_")
    names = [each.removesuffix(".*").replace("-", "_") for each in reserved] if complete is not None else []
    for name, value in settings.items():
        if not _SETTING.fullmatch(name):
            raise StudyError(
                f"`{name[:40]}` is not a name of a setting of {title}",
                hint="names have letters, digits, dots, dashes and underscores",
            )
        meanings = list(_without_prefixes(name.replace("-", "_").lower()))
        is_begin = meanings[-1] not in (complete or ()) and any(each.startswith(tuple(meanings)) for each in names)
        if is_begin or any(re.fullmatch(patterns, each, re.IGNORECASE) for each in meanings):
            raise StudyError(
                f"the setting `{name}` of {title} is chosen by iosonde",
                hint="leave it out: data directory, socket, log files, libraries and commands are not part of a study",
            )
        if isinstance(value, str) and ("/" in value or "\n" in value or "\0" in value):
            raise StudyError(
                f"the setting `{name}` of {title} cannot be `{value.strip()}`: it names a path",
                hint="a study contains no paths; name a second target for the log with `--set log_target=DIRECTORY`",
            )
