"""Options that several subcommands share, and the plan they lead to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from iosonde.execution.session import HostOptions
    from iosonde.plan import Plan
    from iosonde.storage.safety.consent import Consent


def _studies(incomplete: str) -> list[str]:
    """Names for shell completion."""
    from iosonde.data import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


def _profiles(incomplete: str) -> list[str]:
    return [name for name in ("quick", "standard", "paper") if name.startswith(incomplete)]


StudyName = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="Name of a study (`iosonde list`) or a TOML file.", autocompletion=_studies),
]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What to measure: a directory, a new file, block devices separated by commas, or a simulated target such "
        "as `sim:p900*4`, `simulated:servers=4,read=100us,size=1TiB` or `null:1GiB`.",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Study size: `quick` (the shortest), `standard`, and of some studies `paper` (as published).",
        show_default=True,
        autocompletion=_profiles,
    ),
]
Repeats = Annotated[
    str | None,
    typer.Option(
        metavar="N|until", help="Runs per case, or `until`: repeat until confidence intervals are narrow enough."
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="PERCENT",
        help="Repeat each case until half the confidence interval of every metric shown is within this share of its "
        "value, such as `5%`; the same as `--repeats until --set until.half_width=5%`.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE[,VALUE...]",
        help="Override a parameter, or the levels of a factor (repeatable).",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Measure a running database server, such as `postgresql://me@host:5432`, in a database created for it.",
    ),
]
ServerAgain = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Connect to your own server again, which the result set names."),
]


def _read_seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 64:
        raise typer.BadParameter(f"`--seed` must be a whole number from 0 to 2^64 - 1; got `{text}`")
    return int(text)


Seed = Annotated[
    int | None, typer.Option(metavar="N", parser=_read_seed, help="Seed of the run order and all random choices.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the test files.")]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="TARGET",
        help="Compare with this target in the same session: runs on both alternate, pair by pair.",
    ),
]
AgainstSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--against-set",
        metavar="NAME=VALUE",
        help="Compare with this setting in the same session, such as `io_mode=buffered` (repeatable).",
    ),
]


def page(path: Path | None) -> Path | None:
    """Reject `-`: pages are files, not standard output."""
    if path == Path("-"):
        raise typer.BadParameter("cannot write a page to standard output; use a file name")
    return path


Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="New directory for the result set (default `iosonde-results/STUDY-TIME`)."
    ),
]
AllowLibrary = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-library",
        metavar="PATH",
        help="Load this store library of the plan, although it is outside of `/usr`, `/lib` and `/opt` (repeatable).",
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="HOSTS",
        help="Use several hosts at the same time: `local:4` for four processes on this machine, "
        "`ssh:hosts.toml` for hosts that ssh reaches, `slurm:4` for nodes of a Slurm job, or the address of a "
        "Dask scheduler such as `tls://10.0.0.1:8786`.",
    ),
]
ContinueWithoutLostHosts = Annotated[
    bool,
    typer.Option(
        "--continue-without-lost-hosts",
        help="Continue with the remaining hosts when one is lost. Cases that name a number of hosts fail if one of "
        "theirs is lost.",
    ),
]
Destroy = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy", metavar="DEVICE", help="Allow overwriting this block device (repeat the option per device)."
    ),
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="SERIAL|SIZE",
        help="Confirm data loss on a non-empty device by repeating its serial number, or its size if it has none "
        "(repeat the option per device).",
    ),
]
AllowCommands = Annotated[
    str,
    typer.Option(
        "--allow-commands",
        metavar="HASH",
        help="Allow the external commands of the study by repeating the hash that `iosonde plan` prints.",
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Serve a page with the progress on the loopback address of this machine.")
]
LivePort = Annotated[
    int,
    typer.Option(
        "--live-port",
        metavar="PORT",
        min=0,
        max=65535,
        show_default=False,
        help="Port of the live page (default: any free port).",
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="Stop after this long, such as `8h`, and keep completed runs. `iosonde resume` continues.",
    ),
]
MixSimulated = Annotated[
    bool,
    typer.Option("--mix-simulated", help="Allow simulated and measured result sets together; each is marked."),
]


def host_options(hosts: str | None, *, continues: bool) -> HostOptions | None:
    """The hosts of `--hosts`; None without it."""
    from iosonde.execution.session import HostOptions

    return HostOptions(hosts=hosts, continue_without_lost=continues) if hosts else None


def consent(
    destroy: list[str] | None,
    confirm: list[str] | None,
    commands: str = "",
    libraries: Sequence[str] = (),
    server: str | None = None,
    *,
    targets: Sequence[str],
) -> Consent:
    """Return what the command line allows to be destroyed and started; `TargetError` for a device of no target."""
    from iosonde.storage.safety.consent import Consent, refuse_surplus
    from iosonde.text_files import expanded

    given = Consent(
        destroy=tuple(destroy or ()),
        confirm=tuple(confirm or ()),
        commands=commands,
        libraries=tuple(str(expanded(each)) for each in libraries),
        servers=(read_server(server, option="--server"),) if server else (),
    )
    refuse_surplus(given, targets)
    return given


def targets_of(plan: Plan) -> list[str]:
    """Return the names of a plan's targets."""
    return [part.target for part in plan.by_target()]


def read_time_limit(text: str | None, *, option: str = "--time-limit") -> float | None:
    """`--time-limit` or another length of time, in seconds."""
    from iosonde.units import parse_duration

    if text is None:
        return None
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise typer.BadParameter(f"`{option} {text}`: {error}") from None
    if seconds <= 0:
        raise typer.BadParameter(f"`{option}` must be greater than 0, such as `8h`; got `{text}`")
    return seconds


def read_repeats(text: str | None) -> int | Literal["until"] | None:
    """`--repeats` as a number, or `until`."""
    if text is None:
        return None
    if text == "until":
        return "until"
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= 1000:
        raise typer.BadParameter(f"`--repeats` must be `until` or a number from 1 to 1000; got `{text}`")
    return int(text)


def read_settings(texts: list[str] | None, *, option: str = "--set") -> dict[str, str]:
    """`--set NAME=VALUE` as values by name."""
    settings = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(
                f"`{option}` must be NAME=VALUE, such as `{option} queue_depth=1,4,16`; got `{text}`"
            )
        settings[name.strip()] = value.strip()
    return settings


def make_plan(
    *,
    study: str,
    target: str,
    profile: str,
    repeats: str | None,
    settings: list[str] | None,
    seed: int | None,
    precision: str | None = None,
    keep: bool,
    against: str | None = None,
    against_settings: list[str] | None = None,
    server: str | None = None,
) -> Plan:
    """The plan for a command line."""
    from iosonde.planning import Against, expand, load
    from iosonde.storage import open_target

    different = read_settings(against_settings, option="--against-set")
    chosen = read_settings(settings) | ({"server_url": read_server(server, option="--server")} if server else {})
    if not server and "server_url" in chosen:
        read_server(chosen["server_url"], option="--set server_url=URL")
    compared = against is not None or bool(different)
    if precision is not None:
        if repeats not in (None, "until"):
            raise typer.BadParameter("`--precision` decides the number of repeats; omit `--repeats`")
        repeats, chosen = "until", {"until.half_width": precision, **chosen}
    return expand(
        load(study),
        open_target(target),
        profile=profile,
        repeats=read_repeats(repeats),
        settings=chosen,
        seed=seed,
        keep=keep,
        against=Against(target=open_target(against) if against else None, settings=different) if compared else None,
    )


def read_server(text: str, *, option: str) -> str:
    """Check the address of a server. An error does not repeat it, because it may contain a password."""
    from iosonde.errors import StudyError
    from iosonde.servers.foreign import parse

    if text in ("", "none"):
        return text
    try:
        parse(text)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise StudyError(f"invalid server address: {what}", where=f"in `{option}`", hint=hint) from None
    return text


def as_typed(text: str, options: Mapping[str, str]) -> str:
    """Name the options that the user typed where an error names the parameters that they set.

    `options` has a parameter's name and the value of its own option, such as `block_size`: `3x`.
    """
    for name, value in options.items():
        text = text.replace(f"`--set {name}={value}`", f"`--{name.replace('_', '-')} {value}`")
    return text
