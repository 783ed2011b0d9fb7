"""`iosonde list`: the studies, suites and simulated drives that come with iosonde."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosonde import cache
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
        studies = _cached("every-profile", lambda: list(_studies(every_profile=True)))
        print_json([{name: value for name, value in each.items() if name != "heading"} for each in studies])
    else:
        _print_studies()


def _cached(name: str, compute: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what was computed before by the same files of iosonde: to validate every study takes seconds."""
    path, digest = cache.cache_directory() / f"studies-{name}.json", _digest()
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(path.read_bytes())
        if known["files"] == digest:
            found: list[dict[str, Any]] = known["studies"]
            return found
    studies = compute()
    cache.remember(path, json.dumps({"files": digest, "studies": studies}).encode())
    return studies


def _digest() -> str:
    """Identify the files of iosonde, and the features beside them, by their names, sizes and times."""
    package = Path(cache.__file__).parent
    files = sorted(path for kind in ("*.py", "*.toml") for path in package.rglob(kind))
    facts = [(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in files]
    return hashlib.sha256(repr((facts, os.environ.get("IOSONDE_FEATURES"))).encode()).hexdigest()


def _studies(*, every_profile: bool) -> Iterator[dict[str, Any]]:
    from iosonde.data import adapters, shipped
    from iosonde.planning import load, study_size
    from iosonde.study.model import TOPICS

    for name in [*shipped(), *adapters()]:
        study = load(name)
        profiles = study.profiles if every_profile else ["standard"]
        sizes = {profile: study_size(study, profile=profile) for profile in profiles}
        yield {
            "name": name,
            "topic": study.topic,
            "heading": TOPICS[study.topic],
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
    from iosonde.workload import store_name

    found = []
    if size.needs_root:
        found.append("root")
    elif size.limits_memory:
        found.append("memory limit")
    if size.devices > 1:
        found.append(f"{size.devices} devices")
    return [*found, *(store_name(each).split()[0] for each in size.installed)]


def _print_studies() -> None:
    studies = _cached("standard", lambda: sorted(_studies(every_profile=False), key=_place))
    width = max(len(study["name"]) for study in studies)
    for heading, rows in groupby(studies, key=lambda study: str(study["heading"])):
        print(heading)
        print_table(
            [f"  {study['name']:{width}}", _time(study), _with_needs(study["title"], study["needs"])] for study in rows
        )
        print()
    print("Times are those of the profile `standard`. Details: iosonde show STUDY")


def _place(study: Mapping[str, Any]) -> int:
    from iosonde.study.model import TOPICS

    return list(TOPICS).index(study["topic"])


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
    from iosonde.suite.planning import load

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
