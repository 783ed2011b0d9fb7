"""`iosonde list`: the studies and the simulated drives that come with iosonde."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    drives: Annotated[
        bool, typer.Option("--drives", help="The simulated drives instead, each for `--target sim:NAME`.")
    ] = False,
) -> None:
    """List the studies that come with iosonde, with the size of each profile; or the simulated drives.

    Times are those of ramps, measurements and starts, without the layout of the target.
    """
    if drives:
        _list_drives()
    else:
        _list_studies()


def _list_studies() -> None:
    from iosonde.data import shipped
    from iosonde.planning import load, study_size
    from iosonde.units import format_duration

    for name in shipped():
        study = load(name)
        print(f"{name}  {study.title}")
        for profile in study.profiles:
            size = study_size(study, profile=profile)
            bound = "at most " if size.bounded else ""
            print(
                f"  {profile:10}{size.cases:5} cases{size.runs:6} runs   {bound}{format_duration(size.seconds * 1e9)}"
            )


def _list_drives() -> None:
    from iosonde.storage.drive_model import load_model, models

    width = max(map(len, models()))
    for name in models():
        model = load_model(name, target=f"sim:{name}")
        print(f"sim:{name:{width}}  {model.title} ({model.class_}, simulated)")
