"""`iosonde list`: the studies that come with iosonde."""

from __future__ import annotations


def command() -> None:
    """List the studies that come with iosonde, with the size of each profile.

    Times are those of ramps, measurements and starts, without the layout of the target.
    """
    from iosonde.study import load, outline, shipped
    from iosonde.units import format_duration

    for name in shipped():
        study = load(name)
        print(f"{name}  {study.title}")
        for profile in study.profiles:
            size = outline(study, profile=profile)
            bound = "at most " if size.bounded else ""
            print(
                f"  {profile:10}{size.cases:5} cases{size.runs:6} runs   {bound}{format_duration(size.seconds * 1e9)}"
            )
