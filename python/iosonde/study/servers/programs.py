"""Programs of servers: the account they run under, how to run one once, and the process of a server.

A server's process is started unprivileged, bound to iosonde's life, and recorded before it runs. `setpriv` drops
privileges and asks the kernel to kill the process when iosonde dies (`PR_SET_PDEATHSIG`, prctl(2)). The process then
waits on its standard input until its process number and start time are in the journal and it is in its control groups.
Only then does it become the server. If iosonde is killed at any moment, the kernel kills the server, and `iosonde
cleanup` kills the processes in its data directory that survived. Their System V shared memory ends with them: a server
has an IPC namespace of its own (ipc_namespaces(7)).
"""

from __future__ import annotations

import functools
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iosonde.base import tools
from iosonde.errors import ServerError, StudyError
from iosonde.storage.control_groups import ProcessGroup
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import SERVER, Entry, owner_of

FALLBACK = "nobody"


@dataclass(frozen=True, kw_only=True)
class Account:
    """A system user."""

    name: str
    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        """True if it is the user of this process, so that no privileges are dropped."""
        return self.uid == os.geteuid()

    def dropping(self) -> list[str]:
        """Options of setpriv(1) that start a program under this user without further groups or privileges."""
        if self.is_ours:
            return []
        return [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]

    def own(self, path: Path) -> None:
        """Give a directory of iosonde's own to the user."""
        if not self.is_ours:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def account_for(names: Sequence[str]) -> Account:
    """The first of these system users that exists, else `nobody`; without root, the current user."""
    if os.geteuid() != 0:
        return _account(pwd.getpwuid(os.geteuid()))
    for name in (*names, FALLBACK):
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            continue
    raise ServerError(
        "no unprivileged user exists that the server could run under",
        where=f"looked for {', '.join(f'`{name}`' for name in (*names, FALLBACK))}",
        hint="install the server's package, which creates its user, or run iosonde as an ordinary user",
    )


def check_traversable(path: Path, account: Account) -> None:
    """Raise `ServerError` unless the user can enter every directory above `path`."""
    if account.uid == 0 or account.is_ours:
        return
    for directory in filter(Path.is_dir, reversed(path.parents)):
        if not _may_enter(directory, account):
            raise ServerError(
                f"the server's user `{account.name}` cannot enter `{directory}`",
                where=f"on the way to `{path}`",
                hint=f"name a target that all users can reach, allow it with `chmod o+x {directory}`, or run iosonde "
                "as the owner of that directory",
            )


def _may_enter(directory: Path, account: Account) -> bool:
    found = directory.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


ANSWER_S = 60.0
"""Timeout for a program that answers or creates an empty data directory."""


def find(name: str, places: Sequence[str] = ()) -> str | None:
    """Real path of a program on PATH, in a system directory, or in one of `places`; None if it is missing."""
    directories = [os.environ.get("PATH", ""), tools.SYSTEM_PATH, *places]
    found = shutil.which(name, path=":".join(directories))
    return str(Path(found).resolve()) if found else None


def call(command: Sequence[str], *, account: Account | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as that user; `ServerError` if it cannot be started or hangs."""
    prefix = bound(account) if account else []
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


_WAIT_THEN_START = 'read -r _ || exit 1; exec "$@" </dev/null'

POLL_S = 0.02
KILL_S = 10.0
CHECK_S = 0.5
GRACE_S = 5.0
"""For a bootstrapping server whose first process is gone: it ends at once, and removes its files in `/dev/shm`."""


class ServerProcess:
    """A running server, from `start` until `stop` or `kill`."""

    def __init__(self, process: tools.Process, entry: Path, program: str, group: ProcessGroup | None) -> None:
        self._process = process
        self._entry = entry
        self._program = program
        self._group = group

    @classmethod
    def start(
        cls, command: Sequence[str], *, account: Account, entry: Path, messages: Path, group: ProcessGroup | None
    ) -> ServerProcess:
        """Start a command in the foreground; `entry` is the data directory, by which the journal lists it."""
        program = str(Path(command[0]).resolve())
        with messages.open("ab") as output:
            process = tools.Process(
                [*isolated(account), "sh", "-c", _WAIT_THEN_START, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd="/",
                env=environment(),
                start_new_session=True,  # Ctrl-C in a terminal is for iosonde, which stops the server in order.
            )
        assert process.stdin is not None
        try:
            announce(entry, process.pid, program)
            if group:
                group.add(process.pid)
            process.stdin.write(b"start\n")
            process.stdin.close()
        except BaseException as error:
            process.kill()
            process.wait()
            journal.removed(entry)
            if isinstance(error, (BrokenPipeError, ProcessLookupError)):
                # Ctrl-C in a terminal ends a process that was created and has no session of its own yet (CPython's
                # `_posixsubprocess.c` resets signals before it calls setsid(2)).
                raise ServerError(
                    f"`{Path(program).name}` was ended by another process before it started", code="server"
                ) from error
            raise
        return cls(process, entry, program, group)

    @property
    def pid(self) -> int:
        """Process number of the server's first process."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(
        self,
        number: signal.Signals,
        timeout_s: float,
        statuses: Sequence[int] = (0,),
        check: Callable[[], None] | None = None,
    ) -> bool:
        """Request an orderly shutdown; kill it after the timeout. Returns whether the shutdown was orderly.

        `check` is called while it waits, and raises an error to stop waiting.
        """
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        if not self._has_ended(timeout_s, check):
            self.kill()
            return False
        ended(self._entry, self._program)
        return self._process.returncode in statuses

    def _has_ended(self, timeout_s: float, check: Callable[[], None] | None) -> bool:
        """Return True if the process ends within this time."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if self._process.exits_within(min(left, CHECK_S) if check else left):
                return True
            if check:
                check()
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill all its processes at once (SIGKILL), as a crash does."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        ended(self._entry, self._program)


def announce(entry: Path, pid: int, program: str) -> None:
    """Write the entry of a process whose server has this program and works in this data directory."""
    journal.created(entry, SERVER, facts={"process": owner_of(pid), "program": program})


def ended(entry: Path, program: str) -> None:
    """Kill processes that outlived the first one, and remove the entry."""
    deadline = time.monotonic() + KILL_S
    while kill_remaining(entry, program) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    journal.removed(entry)


def isolated(account: Account) -> list[str]:
    """Prefix of a server's command: unprivileged, bound to this thread, in an IPC namespace of its own."""
    return [*_ipc_namespace(os.geteuid()), *bound(account)]


@functools.cache
def _ipc_namespace(user: int) -> tuple[str, ...]:
    """Prefix that creates the namespace; without root it needs a user namespace. Empty where neither is permitted."""
    unshare = tools.find("unshare")
    if unshare is None:
        return ()
    prefix = (unshare, *(() if user == 0 else ("--user", "--map-current-user")), "--ipc", "--")
    tried = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return prefix if tried.returncode == 0 else ()


def bound(account: Account | None = None) -> list[str]:
    """Prefix of a command that the kernel kills when this thread ends, under a user.

    A killed iosonde writes nothing any more.
    """
    return [_setpriv(), *(account.dropping() if account else []), "--pdeathsig", "KILL"]


def _setpriv() -> str:
    setpriv = tools.find("setpriv")
    if setpriv is None:
        raise ServerError("`setpriv` was not found", hint="install the package `util-linux`")
    return setpriv


def environment() -> dict[str, str]:
    """Environment of a server: nothing of the user's that could change its settings or its connections."""
    return {"PATH": tools.path_with_system_directories(), "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}


def undo(entry: Entry) -> None:
    """Kill the processes of a server whose iosonde was killed, if they are still the same."""
    recorded = str(entry.facts["process"])
    number = int(recorded.split()[1])
    deadline = time.monotonic() + KILL_S
    directory, program = Path(entry.path), str(entry.facts["program"])
    _kill(number, lambda process: owner_of(process) == recorded)
    await_end(directory, program)
    while _kill(number, lambda process: owner_of(process) == recorded) + kill_remaining(directory, program):
        if time.monotonic() > deadline:
            raise OSError(f"process {number} does not end")
        time.sleep(POLL_S)


def await_end(directory: Path, program: str) -> None:
    """Wait until no process of a program works in a directory, or `GRACE_S` are over."""
    deadline = time.monotonic() + GRACE_S
    while any(_works_in(number, directory, program) for number in _processes()) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def kill_remaining(directory: Path, program: str) -> int:
    """Kill the processes of a program that work in a directory of iosonde's own; returns how many there were."""
    return sum(_kill(number, lambda process: _works_in(process, directory, program)) for number in _processes())


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _kill(number: int, is_ours: Callable[[int], bool]) -> int:
    """Kill a process if it is ours; returns 1 if it was alive.

    Its descriptor is opened first: the signal reaches no other process that has the number by then.
    """
    try:
        descriptor = os.pidfd_open(number)
    except OSError:
        return 0
    try:
        if not is_ours(number) or not _is_alive(number):
            return 0
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return 1
    except ProcessLookupError:
        return 0
    finally:
        os.close(descriptor)


def _works_in(number: int, directory: Path, program: str) -> bool:
    """Server processes change to their data directory, which no other process has."""
    process = Path("/proc", str(number))
    try:
        return (process / "cwd").readlink().is_relative_to(directory) and str((process / "exe").readlink()) == program
    except OSError:
        return False


def _is_alive(number: int) -> bool:
    """Return True if a process runs, and is no zombie that its parent has not collected."""
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
