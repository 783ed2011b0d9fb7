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
