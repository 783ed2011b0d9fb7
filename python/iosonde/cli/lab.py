"""`iosonde lab`: devices whose performance is known, to try things on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from iosonde.lab import Limits

group = typer.Typer(
    name="lab",
    help="Devices of known performance, to try studies on without hardware (docs/lab.md).",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

DEVICES_VARIABLE = "IOSONDE_LAB_DEVICES"

Iops = Annotated[int | None, typer.Option(metavar="N", min=1, help="I/Os per second that each device does at most.")]
Bandwidth = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Bytes per second that each does at most, such as `50MB`.")
]
Size = Annotated[str, typer.Option(metavar="SIZE", help="Size of each; what is written to it is held in memory.")]


@group.callback()
def _lab() -> None:
    """Devices of known performance, to try studies on without hardware (docs/lab.md)."""


@group.command()
def device(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help=f"After `--`: run this, with the devices in ${DEVICES_VARIABLE}. Without it, they stay until Ctrl-C.",
        ),
    ] = None,
    iops: Iops = None,
    bandwidth: Bandwidth = None,
    size: Size = "1GiB",
    count: Annotated[int, typer.Option(metavar="N", help="How many devices.")] = 1,
) -> None:
    """Make block devices that are held to a rate, and print their paths.

    They are gone when this ends, in whatever way. Needs root, qemu-storage-daemon, FUSE and loop devices.
    """
    from iosonde.lab import throttled_devices

    limits = read_limits(iops, bandwidth)
    with throttled_devices(limits, count=count, size_bytes=read_size("--size", size)) as devices:
        paths = [made.path for made in devices]
        if command:
            exit_code = _run_with(paths, command)
        else:
            print("\n".join(map(str, paths)), flush=True)
            print(f"each does at most {limits}; gone with Ctrl-C", file=sys.stderr)
            _wait_for_the_end()
            exit_code = 0
    raise typer.Exit(exit_code)


@group.command()
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="After `--`: what to run in it, such as `iosonde run ...`.")
    ],
    drives: Annotated[int, typer.Option(metavar="N", help="How many NVMe drives.")] = 8,
    iops: Iops = None,
    bandwidth: Bandwidth = None,
    size: Size = "256MiB",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of the machine.")] = "2GiB",
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the command runs, and the one place where it may leave files.")
    ] = Path(),
    boot_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long the start may take; it is tried three times.")
    ] = "2min",
) -> None:
    """Run a command of this machine in a virtual machine with NVMe drives that are held to a rate.

    It finds the drives as /dev/lab/0 and on, their list in $IOSONDE_LAB_DEVICES, and a kernel with md, dm and bcache.
    Its exit code is handed on. Nothing that it does changes this machine, except in the directory of `--results`.
    """
    from iosonde.errors import LabError
    from iosonde.lab.image import image
    from iosonde.lab.machine import Drives, Machine, Settings

    if not results.is_dir():
        raise LabError(f"`{results}` is not a directory", hint="make it first, or name another with `--results`")
    wanted = Settings(
        drives=Drives(count=drives, size_bytes=read_size("--size", size), limits=read_limits(iops, bandwidth)),
        memory_bytes=read_size("--memory", memory),
        terminal=sys.stdout.isatty() and sys.stderr.isatty(),
        boot_s=_read_seconds("--boot-timeout", boot_timeout),
    )
    inside = [sys.executable, "-m", "iosonde", *command[1:]] if command[0] == "iosonde" else command
    ports = {"out": sys.stdout.buffer, "err": sys.stderr.buffer}
    with Machine(inside, image=image(), results=results, settings=wanted, environment=_environment()) as machine:
        print(
            f"a machine with {drives} drives of {wanted.drives.limits} starts ({machine.accelerator})", file=sys.stderr
        )
        for stream, data in machine.output():
            if stream in ports:
                ports[stream].write(data)
                ports[stream].flush()
    raise typer.Exit(machine.exit_code or 0)


def _environment() -> dict[str, str]:
    """What of this process' environment a command needs to be the same in the guest."""
    names = {"PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "VIRTUAL_ENV", "PYTHONPATH", "IOSONDE_ENGINE"}
    return {name: os.environ[name] for name in sorted(names & os.environ.keys())}


def _read_seconds(option: str, text: str) -> float:
    from iosonde.units import parse_duration

    try:
        return parse_duration(text) / 1e9
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _wait_for_the_end() -> None:
    """Until Ctrl-C or SIGTERM, which are then no errors."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


def read_limits(iops: int | None, bandwidth: str | None) -> Limits:
    """The limits that options name."""
    from iosonde.lab import Limits

    text = bandwidth.removesuffix("/s") if bandwidth else None
    return Limits(iops=iops, bandwidth=read_size("--bandwidth", text) if text else None)


def read_size(option: str, text: str) -> int:
    """Bytes, or a mistake on the command line."""
    from iosonde.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _run_with(paths: Sequence[Path], command: Sequence[str]) -> int:
    """Run a command that knows the devices; its exit code, as a shell has it."""
    from iosonde.errors import LabError

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
