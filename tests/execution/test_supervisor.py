"""The supervisor of external commands, run as iosonde runs it: one spec in, events out, and nothing left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from strangers import STRANGER, listening

from iosonde.base.python_process import module_command
from iosonde.engine.supervisor import parse
from iosonde.engine.supervisor.processes import descendants, identify
from iosonde.engine.supervisor.watch import FailedError
from iosonde.storage.block_layer.block_nodes import identity_of

SECOND = 10**9
METRIC = {"pattern": r"x=(\S+)", "scale": 1.0, "unit": "", "better": "higher", "title": "X", "aggregate": "mean"}

JSON = METRIC | {"pattern": "", "json": "x"}

SUPERVISOR = module_command("iosonde.engine.supervisor")


def spec_of(directory: Path, script: str, **changes: Any) -> dict[str, Any]:
    workload = {
        "kind": "command",
        "target": {"kind": "directory", "path": str(directory)},
        "programs": {name: identify(f"/bin/{name}") for name in ("sh", "sleep")},
        "versions": {},
        "prepare": [],
        "background": [],
        "command": ["sh", "-c", script],
        "environment": {},
        "timeout_ns": 300 * SECOND,
        "interval_ns": SECOND // 10,
        "exit_codes": [0],
        "output": "stdout",
        "output_limit_bytes": 1 << 16,
        "metrics": {"x": METRIC},
    }
    return {"run_id": "r", "seed": 2**40 + 5, "workload": workload | changes, "observe": {"block_devices": []}}


class Supervisor:
    def __init__(self, spec: dict[str, Any], *arguments: str, command: Sequence[str] = SUPERVISOR) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT / "python")},
        )
        assert self.process.stdin
        self.process.stdin.write(json.dumps(spec).encode() + b"\n")
        self.process.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        assert self.process.stdout and self.process.stderr and self.process.stdin
        lines = self.process.stdout.read().splitlines()
        errors = self.process.stderr.read()
        self.process.stdin.close()
        self.process.wait()
        assert b"Traceback" not in errors, errors.decode()
        return [json.loads(line) for line in lines]

    def wait_for(self, file: Path) -> str:
        while not file.exists() or not file.read_text().endswith("\n"):
            assert self.process.poll() is None
            time.sleep(0.01)
        return file.read_text()


def run(directory: Path, script: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """The last event of each kind."""
    return {event["event"]: event for event in Supervisor(spec_of(directory, script, **changes)).events()}


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def assert_ends(process: int) -> None:
    deadline = time.monotonic() + 300
    while is_running(process):
        assert time.monotonic() < deadline, f"process {process} still runs"
        time.sleep(0.01)


def test_values_placeholders_and_a_minimal_environment_in_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / "file").touch()
    done = run(tmp_path, "ls; pwd; env; echo {seed} {directory}/a ${{HOME}}; echo x=1,234.5", environment={"A": "b"})
    assert done["values"]["values"][0]["value"] == 1234.5
    shown = done["result"]["command"]["first_lines"].splitlines()
    assert shown[0] == str(tmp_path), "ls has printed nothing"
    assert "A=b" in shown and not any(line.startswith(("USER=", "PYTHONPATH=")) for line in shown)
    assert f"5 {tmp_path}/a {tmp_path}" in shown
    assert done["result"]["outcome"] == "complete" and not list(tmp_path.iterdir())


def test_preparation_background_commands_and_a_file_as_output(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "cat prepared ready > out",
        prepare=[["sh", "-c", "echo x=3 > prepared"]],
        background=[{"command": ["sh", "-c", "echo up > ready; exec sleep 1000"], "ready": "{directory}/ready"}],
        output="out",
    )
    assert done["values"]["values"][0]["value"] == 3
    assert "warning" not in done, "a background command is no process that the command has left"


def test_a_background_command_may_print_more_than_a_pipe_holds(tmp_path: Path) -> None:
    fill = "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo up > "
    loop = f"{fill} ready; while [ ! -e go ]; do sleep 0.01; done; {fill} done; exec sleep 1000"
    script = "touch go; while [ ! -e done ]; do sleep 0.01; done; echo x=1"
    background = [{"command": ["sh", "-c", loop], "ready": "{directory}/ready"}]
    done = run(tmp_path, script, background=background, interval_ns=600 * SECOND)
    assert done["result"]["outcome"] == "complete"


BROKEN = {"command": ["sh", "-c", "echo bad >&2; sleep 1000 & exit 1"], "ready": "{directory}/never"}
FAILURES = [
    ("sleep 1000", {"timeout_ns": SECOND // 5}, "timeout", "did not end within 0.2 s"),
    ("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyy; done", {}, "output_limit", "wrote more than 65536 bytes"),
    ("echo bad >&2; exit 3", {}, "command_failed", "exit status 3"),
    ("kill -KILL $$", {}, "killed", "killed by SIGKILL"),
    ("kill -SEGV $$", {}, "crashed", "killed by SIGSEGV"),
    ("echo x=1; echo x=2", {}, "unparsable_output", "matches 2 times"),
    ("echo x=nan", {}, "unparsable_output", "`nan` is not a number"),
    ("head -c 300 /dev/urandom | tr -d x", {}, "unparsable_output", "matches 0 times"),
    ("head -c 60000 /dev/zero | tr '\\0' '['", {"metrics": {"x": JSON}}, "unparsable_output", "it is not JSON"),
    ("echo x=1", {"output": "missing"}, "unparsable_output", "cannot read `missing`"),
    ("ln -s /etc/passwd out", {"output": "out"}, "unparsable_output", "cannot read `out`"),
    ("echo x=1", {"background": [BROKEN]}, "background_failed", "ended"),
    ("echo x=1", {"prepare": [["sh", "-c", "exit 9"]]}, "command_failed", "exit status 9"),
]


@pytest.mark.system
@pytest.mark.needs("root")
def test_a_file_system_that_a_command_mounted_and_left_is_not_emptied(tmp_path: Path) -> None:
    other, directory = tmp_path / "other", tmp_path / "directory"
    other.mkdir()
    directory.mkdir()
    (other / "file").write_text("kept")
    try:
        done = run(directory, f"mkdir m && mount --bind {other} m && echo x=1")
        assert "another file system is mounted there" in done["error"]["message"]
        assert (other / "file").read_text() == "kept"
    finally:
        subprocess.run(["umount", "--lazy", directory / "m"], check=True)


@pytest.mark.parametrize(("script", "changes", "code", "message"), FAILURES)
def test_failures_have_a_code_and_a_reason(
    tmp_path: Path, script: str, changes: dict[str, Any], code: str, message: str
) -> None:
    done = run(tmp_path, script, **changes)
    assert done["error"]["code"] == code and message in done["error"]["message"]
    assert "result" not in done
    if "echo bad" in f"{script} {changes}":
        assert done["error"]["context"] == "bad", "the first lines of its output"


def test_a_daemon_in_a_session_of_its_own_is_killed_and_warned_of(tmp_path: Path) -> None:
    script = (
        "(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &) > {directory}/pid; "
        "until [ -s pid ]; do sleep 0.05; done; cat pid; echo x=1"
    )
    done = run(tmp_path, script)
    assert done["warning"]["code"] == "processes_left"
    assert_ends(int(done["result"]["command"]["first_lines"].split()[0]))


@pytest.mark.parametrize("ending", ["stop", "end of input", "SIGTERM", "SIGKILL", "stop before the command"])
def test_the_command_ends_with_the_supervisor(tmp_path: Path, ending: str) -> None:
    running = "echo $$ > {directory}/pid; exec sleep 1000"
    waiting = [{"command": ["sh", "-c", running], "ready": "{directory}/never"}]
    supervisor = Supervisor(spec_of(tmp_path, running, background=waiting if "before" in ending else []))
    process = int(supervisor.wait_for(tmp_path / "pid"))
    assert supervisor.process.stdin
    match ending:
        case "stop" | "stop before the command":
            supervisor.process.stdin.write(b'"stop"\n')
            supervisor.process.stdin.flush()
        case "end of input":
            supervisor.process.stdin.close()
        case _:
            supervisor.process.send_signal(signal.Signals[ending])
    assert_ends(process)
    supervisor.process.wait()
    for pipe in (supervisor.process.stdin, supervisor.process.stdout, supervisor.process.stderr):
        assert pipe
        pipe.close()


def test_a_program_that_was_replaced_is_not_started(tmp_path: Path) -> None:
    program, directory = tmp_path / "tool", tmp_path / "work"
    directory.mkdir()
    program.write_text("#!/bin/sh\necho x=1\n")
    program.chmod(0o755)
    programs = {"tool": identify(str(program))}
    assert "result" in run(directory, "", programs=programs, command=["tool"])
    program.write_text("#!/bin/sh\necho x=2\n")
    assert run(directory, "", programs=programs, command=["tool"])["error"]["code"] == "program_changed"
    program.unlink()
    assert run(directory, "", programs=programs, command=["tool"])["error"]["code"] == "program_missing"


def test_a_working_directory_that_is_another_is_refused(tmp_path: Path) -> None:
    right = identity_of(tmp_path.stat())
    assert Supervisor(spec_of(tmp_path, "echo x=1"), f"--identity={tmp_path}={right}").events()[-1]["event"] == "result"
    [*_, last] = Supervisor(spec_of(tmp_path, "echo x=1"), f"--identity={tmp_path}=1:2:3").events()
    assert last["code"] == "wrong_target"


def test_the_version_of_a_program_that_starts_working_when_it_is_requested_is_recorded(tmp_path: Path) -> None:
    version = ["sh", "-c", "touch left; sleep 1000 & echo $! > /dev/null; echo tool 1.2; echo more"]
    done = run(tmp_path, "echo files: $(ls); echo x=1", versions={"sh": version})
    assert done["result"]["command"]["programs"]["sh"]["version"] == "tool 1.2"
    assert done["result"]["command"]["first_lines"].startswith("files:\n")
    assert "warning" not in done, "its processes are not those of the command"


def test_peak_memory_is_that_of_the_command_without_its_preparation(tmp_path: Path) -> None:
    prepare = [["sh", "-c", "head -c 60000000 /dev/zero | tail -n 1 > /dev/null"]]
    peak = run(tmp_path, "echo x=1", prepare=prepare)["result"]["peak_memory_bytes"]
    assert 0 < peak < 50_000_000
    peak = run(tmp_path, "head -c 60000000 /dev/zero | tail -n 1 > /dev/null; echo x=1")["result"]["peak_memory_bytes"]
    assert peak > 50_000_000


MEMCACHED = {
    "command": ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", "{port}", "-U", "0"],
    "ready": "127.0.0.1:{port}",
}
ANOTHER_USER = f"""\
import ctypes, encodings.ascii, encodings.idna, os, sys
from iosonde.base.python_process import installed_version
from iosonde.engine.supervisor.__main__ import main
installed_version("iosonde")
os.setgroups([]); os.setresgid({STRANGER}, {STRANGER}, {STRANGER}); os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: the user can write the maps of its user namespace.
sys.exit(main(sys.argv[1:]))
"""
"""All modules are imported before the rights are dropped, as in `strangers.as_stranger`."""


@pytest.mark.parametrize("command", [SUPERVISOR, [sys.executable, "-P", "-c", ANOTHER_USER]], ids=["root", "user"])
@pytest.mark.needs("root", "memcached")
def test_a_server_on_the_port_of_a_run_cannot_be_reached_from_outside(command: list[str]) -> None:
    script = "echo > started; until [ -e go ]; do sleep 0.01; done; echo x=1"
    with tempfile.TemporaryDirectory(prefix="iosonde-test-") as name:
        directory = Path(name)
        directory.chmod(0o777)
        programs = {name: identify(f"/usr/bin/{name}") for name in ("sh", "memcached")}
        spec = spec_of(directory, script, background=[MEMCACHED], programs=programs)
        supervisor = Supervisor(spec, command=command)
        supervisor.wait_for(directory / "started")
        [server] = listening(descendants(supervisor.process.pid))
        assert (server.kind, server.address) == ("tcp", "127.0.0.1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.address, server.port))
        (directory / "go").touch()
        assert supervisor.events()[-1]["outcome"] == "complete"


@pytest.mark.needs("root")
def test_a_run_without_a_network_of_its_own_starts_nothing(tmp_path: Path) -> None:
    limit = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    limited = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh", *SUPERVISOR]
    spec = spec_of(tmp_path, "echo {port}", prepare=[["sh", "-c", "touch started"]])
    [_, last] = Supervisor(spec, command=limited).events()
    assert last["code"] == "no_private_network" and "Unix socket" in last["hint"]
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(300)
def test_a_regular_expression_that_takes_exponential_time_is_stopped() -> None:
    """By an alarm, which comes after a minute; here another process sends it."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    alarms = f"while kill -ALRM {os.getpid()}; do sleep 0.05; done"
    metric = {"pattern": r"(?P<value>(?:\d+)+)$ ", "scale": 1.0}
    try:
        with subprocess.Popen(["sh", "-c", alarms]) as sender:
            try:
                with pytest.raises(FailedError, match="found no values within") as error:
                    parse.values({"x": metric}, "1" * 40 + "x", [], 0, 1)
            finally:
                sender.kill()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert error.value.code == "unparsable_output"
