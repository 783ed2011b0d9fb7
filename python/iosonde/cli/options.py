"""Options that several subcommands share, and the plan and the consent they lead to."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from iosonde.base.text_files import expanded
from iosonde.errors import StudyError
from iosonde.units import parse_duration

if TYPE_CHECKING:
    from iosonde.execution.session import HostOptions
    from iosonde.plan import Plan
    from iosonde.storage.safety.guard import Consent


def completing(names: str) -> Callable[[str], list[str]]:
    """Names for shell completion, of a function of `iosonde.data`."""

    def complete(incomplete: str) -> list[str]:
        from iosonde import data

        return [name for name in getattr(data, names)() if name.startswith(incomplete)]

    return complete


def _profiles(incomplete: str) -> list[str]:
    return [name for name in ("quick", "standard", "paper") if name.startswith(incomplete)]


def _read_seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 64:
        raise typer.BadParameter(f"`--seed` must be a whole number from 0 to 2^64 - 1; got `{text}`")
    return int(text)


def option(metavar: str, help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """An option with a value; its name is that of the parameter unless `names` are given."""
    return typer.Option(default, *names, metavar=metavar, help=help, **more)


def output_option(metavar: str, help: str, **more: Any) -> Any:
    """The option `--output` of a subcommand."""
    return option(metavar, help, "--output", "-o", **more)


def switch(name: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(False, name, help=help)


def argument(metavar: str, help: str, *, default: Any = ..., **more: Any) -> Any:
    """An argument, which is required unless it has a default."""
    return typer.Argument(default, metavar=metavar, help=help, **more)


AS_JSON = switch("--json", "Print JSON.")

MIX_SIMULATED = switch("--mix-simulated", "Allow simulated and measured result sets together; each is marked.")

HOSTS = option(
    "HOSTS",
    "Use several hosts at the same time: `local:4` for four processes on this machine, `ssh:hosts.toml` for "
    "hosts that ssh reaches, `slurm:4` for nodes of a Slurm job, or the address of a Dask scheduler such as "
    "`tls://10.0.0.1:8786`.",
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the subcommands that plan, run and report. A subcommand has those that it names (`takes`)."""

    study: str = argument(
        "STUDY", "Name of a study (`iosonde list`) or a TOML file.", autocompletion=completing("shipped")
    )
    target: str = option(
        "TARGET",
        "What to measure: a directory, a new file, block devices separated by commas, or a simulated target such "
        "as `sim:p900*4`, `simulated:servers=4,read=100us,size=1TiB` or `null:1GiB`.",
        default=...,
    )
    against: str | None = option(
        "TARGET", "Compare with this target in the same session: runs on both alternate, pair by pair."
    )
    against_settings: list[str] | None = option(
        "NAME=VALUE",
        "Compare with this setting in the same session, such as `io_mode=buffered` (repeatable).",
        "--against-set",
    )
    output: str | None = output_option(
        "DIR", "New directory for the result set (default `iosonde-results/STUDY-TIME`)."
    )
    profile: str = option(
        "NAME",
        "Study size: `quick` (the shortest), `standard`, and of some studies `paper` (as published).",
        default="standard",
        show_default=True,
        autocompletion=_profiles,
    )
    repeats: str | None = option(
        "N|until", "Runs per case, or `until`: repeat until confidence intervals are narrow enough."
    )
    precision: str | None = option(
        "PERCENT",
        "Repeat each case until half the confidence interval of every metric shown is within this share of its "
        "value, such as `5%`; the same as `--repeats until --set until.half_width=5%`.",
    )
    settings: list[str] | None = option(
        "NAME=VALUE[,VALUE...]", "Override a parameter, or the levels of a factor (repeatable).", "--set"
    )
    server: str | None = option(
        "URL", "Measure a running database server, such as `postgresql://me@host:5432`, in a database created for it."
    )
    seed: int | None = option("N", "Seed of the run order and all random choices.", parser=_read_seed)
    keep: bool = switch("--keep", "Keep the test files.")
    hosts: str | None = HOSTS
    continue_without_lost_hosts: bool = switch(
        "--continue-without-lost-hosts",
        "Continue with the remaining hosts when one is lost. Cases that name a number of hosts fail if one of "
        "theirs is lost.",
    )
    plan_only: bool = switch("--plan", "Print the plan and stop.")
    retry_failed: bool = switch("--retry-failed", "Also repeat failed runs, but not unsupported combinations.")
    time_limit: str | None = option(
        "TIME", "Stop after this long, such as `8h`, and keep completed runs. `iosonde resume` continues."
    )
    destroy: list[str] | None = option("DEVICE", "Allow overwriting this block device (repeat the option per device).")
    confirm: list[str] | None = option(
        "SERIAL|SIZE",
        "Confirm data loss on a non-empty device by repeating its serial number, or its size if it has none "
        "(repeat the option per device).",
    )
    allow_commands: str = option(
        "HASH", "Allow the external commands of the study by repeating the hash that `iosonde plan` prints.", default=""
    )
    allow_library: list[str] | None = option(
        "PATH", "Load this store library of the plan, although it is outside of `/usr`, `/lib` and `/opt` (repeatable)."
    )
    live: bool = switch("--live", "Serve a page with the progress on the loopback address of this machine.")
    live_port: int = option(
        "PORT", "Port of the live page (default: any free port).", default=0, min=0, max=65535, show_default=False
    )
    mix_simulated: bool = MIX_SIMULATED
    report: bool = typer.Option(True, "--report/--no-report", help="Print the findings and write `report.html`.")
    as_json: bool = AS_JSON

    def time_limit_s(self) -> float | None:
        return None if self.time_limit is None else read_time(self.time_limit, option="--time-limit")

    def repeats_number(self) -> int | Literal["until"] | None:
        """`--repeats` as a number, or `until`."""
        text = self.repeats
        if text is None:
            return None
        if text == "until":
            return "until"
        if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= 1000:
            raise typer.BadParameter(f"`--repeats` must be `until` or a number from 1 to 1000; got `{text}`")
        return int(text)

    def host_options(self) -> HostOptions | None:
        """The hosts of `--hosts`; None without it."""
        from iosonde.execution.session import HostOptions

        if not self.hosts:
            return None
        return HostOptions(hosts=self.hosts, continue_without_lost=self.continue_without_lost_hosts)

    def plan(self) -> Plan:
        """The plan for a command line."""
        from iosonde.planning import Against, expand, load
        from iosonde.storage import open_target

        different = read_settings(self.against_settings, option="--against-set")
        chosen = read_settings(self.settings)
        if self.server:
            chosen["server_url"] = read_server(self.server, option="--server")
        elif "server_url" in chosen:
            read_server(chosen["server_url"], option="--set server_url=URL")
        compared = self.against is not None or bool(different)
        repeats = self.repeats_number() if self.precision is None else "until"
        if self.precision is not None:
            if self.repeats not in (None, "until"):
                raise typer.BadParameter("`--precision` decides the number of repeats; omit `--repeats`")
            chosen = {"until.half_width": self.precision, **chosen}
        return expand(
            load(self.study),
            open_target(self.target),
            profile=self.profile,
            repeats=repeats,
            settings=chosen,
            seed=self.seed,
            keep=self.keep,
            against=Against(target=open_target(self.against) if self.against else None, settings=different)
            if compared
            else None,
        )

    def consent(self, targets: Sequence[str]) -> Consent:
        """Return what the command line allows to be destroyed and started; `TargetError` for a device of no target."""
        from iosonde.storage.safety.guard import Consent, refuse_surplus

        given = Consent(
            destroy=tuple(self.destroy or ()),
            confirm=tuple(self.confirm or ()),
            commands=self.allow_commands,
            libraries=tuple(str(expanded(each)) for each in self.allow_library or ()),
            servers=(read_server(self.server, option="--server"),) if self.server else (),
        )
        refuse_surplus(given, targets)
        return given


_SHARED = inspect.signature(RunOptions, eval_str=True).parameters


def run_options(**values: Any) -> RunOptions:
    """Options with these values, and the defaults of those that are missing."""
    defaults: dict[str, Any] = {name: each.default.default for name, each in _SHARED.items()}
    return RunOptions(**defaults | values)


def takes(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a subcommand these options in this order: its own ones, and those of `RunOptions`, which it receives in one.

    Of two with the same name its own counts.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            mine = {name: values.pop(name) for name in own if name in values}
            return command(run_options(**values), **mine)

        chosen = [own.get(name) or _SHARED[name] for name in names.split()]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in chosen]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def targets_of(plan: Plan) -> list[str]:
    """Return the names of a plan's targets."""
    return [part.target for part in plan.by_target()]


def page_option(path: Path | None) -> Path | None:
    """Reject `-`: pages are files, not standard output."""
    if path == Path("-"):
        raise typer.BadParameter("cannot write a page to standard output; use a file name")
    return path


def read_time(text: str, *, option: str) -> float:
    """`--time-limit` or another length of time, in seconds."""
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise typer.BadParameter(f"`{option} {text}`: {error}") from None
    if seconds <= 0:
        raise typer.BadParameter(f"`{option}` must be greater than 0, such as `8h`; got `{text}`")
    return seconds


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


def read_server(text: str, *, option: str) -> str:
    """Check the address of a server. An error does not repeat it, because it may contain a password."""
    from iosonde.study.servers.foreign import parse

    if text in ("", "none"):
        return text
    try:
        parse(text)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise StudyError(f"invalid server address: {what}", where=f"in `{option}`", hint=hint) from None
    return text
