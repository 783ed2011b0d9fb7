"""Options that several subcommands share, and the plan they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from iosonde.plan import Plan
    from iosonde.storage.consent import Consent

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="Name of a study (see `iosonde list`), or a file of your own.")
]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="PATH",
        help="Directory or new file to measure on; block devices, with commas between them; or `null:SIZE`, "
        "`simulated:servers=4,read=100us,size=1TiB`, `sim:p900*4`.",
    ),
]
Profile = Annotated[str, typer.Option(metavar="NAME", help="How large and how long: `quick`, `standard`, `paper`.")]
Repeats = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1000, help="Runs of each case, instead of the profile's.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE[,VALUE...]",
        help="Levels of a factor, or the value of a parameter, instead of the study's. May be given again.",
    ),
]
Seed = Annotated[int | None, typer.Option(metavar="N", min=0, help="Seed of the order and of every random choice.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the test files where they are at the end.")]

Destroy = Annotated[
    list[str] | None,
    typer.Option("--destroy", metavar="DEVICE", help="A block device of the target may be overwritten. Once for each."),
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="SERIAL|SIZE",
        help="Serial number of a device that holds something (its size if it has none): what it holds may be lost.",
    ),
]


def consent(destroy: list[str] | None, confirm: list[str] | None) -> Consent:
    """What the command line says may be destroyed."""
    from iosonde.storage.consent import Consent

    return Consent(destroy=tuple(destroy or ()), confirm=tuple(confirm or ()))


TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="End with what there is after this time, such as `8h`; `iosonde resume` goes on.",
    ),
]


def read_time_limit(given: str | None) -> float | None:
    """`--time-limit` in seconds."""
    from iosonde.units import parse_duration

    if given is None:
        return None
    try:
        seconds = parse_duration(given) / 1e9
    except ValueError as error:
        raise typer.BadParameter(f"`--time-limit {given}`: {error}") from None
    if seconds <= 0:
        raise typer.BadParameter(f"`--time-limit {given}` leaves no time; write it like `8h`")
    return seconds


def read_settings(given: list[str] | None) -> dict[str, str]:
    """`--set` as given -> values by name."""
    settings = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"`{each}` is not NAME=VALUE, such as `queue_depth=1,4,16`")
        settings[name.strip()] = value.strip()
    return settings


def make_plan(
    *,
    study: str,
    target: str,
    profile: str,
    repeats: int | None,
    settings: list[str] | None,
    seed: int | None,
    keep: bool,
) -> Plan:
    """The plan that a command line asks for."""
    from iosonde.planning import expand, load
    from iosonde.storage import open_target

    given = read_settings(settings)
    return expand(
        load(study), open_target(target), profile=profile, repeats=repeats, settings=given, seed=seed, keep=keep
    )
