"""`iosonde lab`: block devices and a virtual machine with known performance."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from iosonde.base.python_process import module_command
from iosonde.cli.options import argument, option
from iosonde.errors import LabError
from iosonde.units import parse_duration, parse_size

if TYPE_CHECKING:
    from iosonde.lab import Limits

group = typer.Typer(
    name="lab",
    help="Block devices of known performance.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

DEVICES_VARIABLE = "IOSONDE_LAB_DEVICES"

IOPS = option("N", "Limit of each device in I/Os per second.", min=1)
BANDWIDTH = option("SIZE", "Limit of each device in bytes per second, such as `50MB`.")
SIZE_HELP = "Size of each device; its contents are kept in memory."


@group.callback()
def _lab() -> None:
    """Create block devices with a known performance limit, to try studies without hardware."""


@group.command()
def device(
    command: list[str] | None = argument(
        "COMMAND",
        f"Command to run, after `--`, with ${DEVICES_VARIABLE} set. Without it, wait for Ctrl-C.",
        default=None,
    ),
    iops: int | None = IOPS,
    bandwidth: str | None = BANDWIDTH,
    size: str = option("SIZE", SIZE_HELP, default="1GiB"),
    count: int = option("N", "Number of devices.", default=1),
) -> None:
    """Create rate-limited block devices and print their paths.

    They disappear when this command exits, however it exits. Needs root, qemu-storage-daemon, FUSE and loop devices.
    """
    from iosonde.lab import throttled_devices

    limits = _limits(iops, bandwidth)
    with throttled_devices(limits, count=count, size_bytes=_read("--size", size, parse_size)) as devices:
        paths = [device.path for device in devices]
        if command:
            exit_code = _run_with(paths, command)
        else:
            signals = _block_end_signals()  # First, because a reader of the paths may send one at once.
            print("\n".join(map(str, paths)), flush=True)
            print(f"limit of each: {limits}; remove them with Ctrl-C", file=sys.stderr)
            signal.sigwait(signals)
            exit_code = 0
    raise typer.Exit(exit_code)


@group.command()
def run(
    command: list[str] = argument("COMMAND", "Command to run, after `--`, such as `iosonde run ...`."),
    drives: int = option("N", "Number of NVMe drives.", default=8),
    unlimited: int = option("N", "Number of further drives without limits, numbered after the others.", default=0),
    iops: int | None = IOPS,
    bandwidth: str | None = BANDWIDTH,
    size: str = option("SIZE", SIZE_HELP, default="256MiB"),
    memory: str = option("SIZE", "Memory of the virtual machine.", default="2GiB"),
    results: Path = option(
        "DIR", "Working directory of the command, and the only one it can write to.", default=Path()
    ),
    boot_timeout: str = option("TIME", "Time limit of each of three attempts to boot.", default="2min"),
) -> None:
    """Run a command in a virtual machine with rate-limited NVMe drives.

    The command uses this machine's files read-only. Its drives are /dev/lab/0 and up, listed in $IOSONDE_LAB_DEVICES;
    its kernel has md, dm and bcache. Returns the exit code of the command.
    """
    from iosonde.lab.machine import Machine, Settings
    from iosonde.lab.qemu import Drives, image

    if not results.is_dir():
        raise LabError(f"`{results}` is not a directory", hint="create it, or name another directory with `--results`")
    wanted = Settings(
        drives=Drives(
            count=drives,
            unlimited=unlimited,
            size_bytes=_read("--size", size, parse_size),
            limits=_limits(iops, bandwidth),
        ),
        memory_bytes=_read("--memory", memory, parse_size),
        terminal=sys.stdout.isatty() and sys.stderr.isatty(),
        boot_s=_read("--boot-timeout", boot_timeout, parse_duration) / 1e9,
    )
    inside = module_command("iosonde", *command[1:]) if command[0] == "iosonde" else command
    ports = {"out": sys.stdout.buffer, "err": sys.stderr.buffer}
    with Machine(inside, image=image(), results=results, settings=wanted, environment=_environment()) as machine:
        further = f", and {unlimited} without limits" if unlimited else ""
        print(
            f"starting a virtual machine with {drives} drives, {wanted.drives.limits} each{further} "
            f"({machine.accelerator})",
            file=sys.stderr,
        )
        for stream, data in machine.output():
            if stream in ports:
                ports[stream].write(data)
                ports[stream].flush()
    raise typer.Exit(machine.exit_code or 0)


def _environment() -> dict[str, str]:
    """The environment variables that a command keeps in the guest."""
    engines = ("IOSONDE_ENGINE", "IOSONDE_ENGINE_CLIENTS")
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "VIRTUAL_ENV", *engines)
    of_python = ("PYTHONPATH", "PYTHONPYCACHEPREFIX")  # Emulated, compiling modules again takes a minute.
    return {name: os.environ[name] for name in (*names, *of_python) if name in os.environ}


def _block_end_signals() -> set[signal.Signals]:
    """Block Ctrl-C and SIGTERM until they are waited for: they are not errors here."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    return signals


def _limits(iops: int | None, bandwidth: str | None) -> Limits:
    from iosonde.lab import Limits

    text = bandwidth.removesuffix("/s") if bandwidth else None
    return Limits(iops=iops, bandwidth=_read("--bandwidth", text, parse_size) if text else None)


def _read(option: str, text: str, parse: Callable[[str], int]) -> int:
    """Bytes or nanoseconds, or a mistake on the command line."""
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _run_with(paths: Sequence[Path], command: Sequence[str]) -> int:
    """Run a command with the devices in its environment, and return its exit code as a shell reports it."""
    # Ctrl-C reaches the command too, which decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, DEVICES_VARIABLE: ",".join(map(str, paths))},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    except OSError as error:
        raise LabError(f"cannot run `{command[0]}`: {error.strerror}") from error
    return done.returncode if done.returncode >= 0 else 128 - done.returncode
