"""`iosonde list`: the studies, suites and simulated drives that come with iosonde."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosonde.cli.tables import AsJson, print_json, print_table

if TYPE_CHECKING:
    from iosonde.planning import StudySize


def command(
    drives: Annotated[bool, typer.Option("--drives", help="List the simulated drives instead of the studies.")] = False,
    suites: Annotated[bool, typer.Option("--suites", help="List the suites instead of the studies.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the studies, the suites or the simulated drives.

    Studies are grouped by topic, with the time of the profile `standard` (without writing the test files) and what they
    need. Simulated drives are targets such as `--target sim:p900`.
    """
    if drives:
        _list_drives(as_json)
    elif suites:
        _list_suites(as_json)
    elif as_json:
        print_json(list(_studies(every_profile=True)))
    else:
        _print_studies()


def _studies(*, every_profile: bool) -> Iterator[dict[str, Any]]:
    from iosonde.data import adapters, shipped
    from iosonde.planning import load, study_size

    for name in [*shipped(), *adapters()]:
        study = load(name)
        profiles = study.profiles if every_profile else ["standard"]
        sizes = {profile: study_size(study, profile=profile) for profile in profiles}
        yield {
            "name": name,
            "topic": study.topic,
            "title": study.title,
            "question": study.question,
            "needs": needs(sizes["standard"]),
            "profiles": {
                profile: {
                    "cases": size.cases,
                    "runs": size.runs,
                    "seconds": size.seconds,
                    "at_most": size.bounded or size.ramps_vary,
                }
                for profile, size in sizes.items()
            },
        }


def needs(size: StudySize) -> list[str]:
    """Return the requirements of a study besides a writable directory."""
    from iosonde.workload.terms import store_name

    found = []
    if size.needs_root:
        found.append("root")
    elif size.limits_memory:
        found.append("memory limit")
    if size.devices > 1:
        found.append(f"{size.devices} devices")
    return [*found, *(store_name(each).split()[0] for each in size.installed)]


def _print_studies() -> None:
    from iosonde.study.model import TOPICS

    studies = list(_studies(every_profile=False))
    width = max(len(study["name"]) for study in studies)
    for topic, heading in TOPICS.items():
        print(heading)
        rows = [study for study in studies if study["topic"] == topic]
        print_table(
            [f"  {study['name']:{width}}", _time(study), _with_needs(study["title"], study["needs"])] for study in rows
        )
        print()
    print("Times are those of the profile `standard`. Details: iosonde show STUDY")


def _time(study: dict[str, Any]) -> str:
    profile = study["profiles"]["standard"]
    text = f"{'≤' if profile['at_most'] else ''}{_rounded(profile['seconds'])}"
    return f"{text:>7}"


def _rounded(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(round(seconds / 60), 1)} min"
    return f"{seconds / 3600:.0f} h" if seconds >= 36000 else f"{seconds / 3600:.1f} h"


def _with_needs(title: str, needs: list[str]) -> str:
    return f"{title} [{', '.join(needs)}]" if needs else title


def _list_suites(as_json: bool) -> None:
    from iosonde.data import shipped_suites
    from iosonde.suite import load

    suites = [load(name) for name in shipped_suites()]
    if as_json:
        print_json([each.model_dump(mode="json") for each in suites])
    else:
        print_table(
            (each.name, f"{each.title} ({', '.join(entry.study for entry in each.entries)})") for each in suites
        )


def _list_drives(as_json: bool) -> None:
    from iosonde.storage.targets.kind import target_kinds

    drives = [drive for kind in target_kinds().values() for drive in kind.shipped()]
    if as_json:
        print_json([{"target": drive.name, "title": drive.title, "class": drive.class_} for drive in drives])
    else:
        print_table((drive.name, f"{drive.title} ({drive.class_})") for drive in drives)
