"""`iosonde list`, `show` and `import`: all studies, one of them, and a study made of a job of fio."""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import iosonde
from iosonde.base import cache
from iosonde.cli.options import AS_JSON, RunOptions, argument, output_option, switch, takes
from iosonde.cli.terminal import joined_levels, messages, print_json, print_table, text_width, wrap
from iosonde.data import adapters, applications, shipped, shipped_suites
from iosonde.errors import StudyError
from iosonde.units import format_estimate

if TYPE_CHECKING:
    from iosonde.interop.fio import Imported
    from iosonde.planning import StudySize
    from iosonde.study.model import Part, Study


def list_command(
    drives: bool = switch("--drives", "List the simulated drives instead of the studies."),
    suites: bool = switch("--suites", "List the suites instead of the studies."),
    as_json: bool = AS_JSON,
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
    package = Path(iosonde.__file__).parent
    files = sorted(path for kind in ("*.py", "*.toml") for path in package.rglob(kind))
    facts = [(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in files]
    return hashlib.sha256(repr((facts, os.environ.get("IOSONDE_FEATURES"))).encode()).hexdigest()


def _studies(*, every_profile: bool) -> Iterator[dict[str, Any]]:
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
    from iosonde.study.workload import store_name

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

    topics = list(TOPICS)
    studies = _cached(
        "standard", lambda: sorted(_studies(every_profile=False), key=lambda study: topics.index(study["topic"]))
    )
    width = max(len(study["name"]) for study in studies)
    for heading, rows in groupby(studies, key=lambda study: str(study["heading"])):
        print(heading)
        print_table(
            [
                f"  {study['name']:{width}}",
                _time(study),
                study["title"] + (f" [{', '.join(study['needs'])}]" if study["needs"] else ""),
            ]
            for study in rows
        )
        print()
    print("Times are those of the profile `standard`. Details: iosonde show STUDY")


def _time(study: dict[str, Any]) -> str:
    profile = study["profiles"]["standard"]
    minutes = profile["seconds"] / 60
    digits = 1 if minutes < 600 else 0
    text = f"{minutes / 60:.{digits}f} h" if minutes >= 90 else f"{max(round(minutes), 1)} min"
    return f"{'≤' if profile['at_most'] else ''}{text}".rjust(7)


def _list_suites(as_json: bool) -> None:
    from iosonde.collections.suite.planning import load

    suites = [load(name) for name in shipped_suites()]
    if as_json:
        print_json([each.model_dump(mode="json") for each in suites])
    else:
        print_table(
            (each.name, f"{each.title} ({', '.join(entry.study for entry in each.entries)})") for each in suites
        )


def _list_drives(as_json: bool) -> None:
    from iosonde.storage.targets.target import target_kinds

    drives = [drive for kind in target_kinds().values() for drive in kind.shipped()]
    if as_json:
        print_json([{"target": drive.name, "title": drive.title, "class": drive.class_} for drive in drives])
    else:
        print_table((drive.name, f"{drive.title} ({drive.class_})") for drive in drives)


@takes("study as_json")
def show_command(given: RunOptions) -> None:
    """Show a study or an application: question, factors, limits, source."""
    from iosonde.planning import load

    known = applications() | shipped() | adapters()
    loaded = load(known.get(given.study, given.study))
    if given.as_json:
        print_json(loaded.model_dump(mode="json"))
        return
    print("\n".join(_lines(loaded)))
    if given.study in known:
        print(f"\nfile: {known[given.study]}")


def _lines(study: Study) -> Iterator[str]:
    from iosonde.planning import study_size

    yield f"{study.title} ({study.name})"
    source = f"Source: {study.source}" if study.source else ""
    for text in filter(None, (study.question, study.description, source)):
        yield from ["", *wrap(" ".join(text.split()))]
    for part in study.parts:
        yield ""
        yield f"part {part.name}" + (f": {part.title}" if part.title else "")
        yield from _factor_lines(part)
    if study.requirement:
        yield ""
        yield "limits"
        for each in study.requirement:
            yield from wrap(f"{each.holds} ({each.level}): {each.means}", start="  ", indent="    ")
    yield ""
    yield "profiles"
    yield from _profile_lines(study)
    needed = needs(study_size(study, profile=next(iter(study.profiles))))
    if needed:
        yield ""
        yield f"needs: {', '.join(needed)}"
    if study.references:
        yield ""
        yield "published values"
        yield from (f"  {reference.source} ({reference.csv})" for reference in study.references)


def _factor_lines(part: Part) -> Iterator[str]:
    width = max(map(len, part.factors), default=0)
    for name, levels in part.factors.items():
        text = joined_levels([str(getattr(level, "label", level)) for level in levels])
        yield from wrap(text, start=f"  {name:{width}}  ", indent=" " * (width + 4))
    if not part.factors:
        yield "  one case"


def _profile_lines(study: Study) -> Iterator[str]:
    from iosonde.metrics.wording import counted
    from iosonde.planning import study_size

    for name, profile in study.profiles.items():
        size = study_size(study, profile=name)
        bound = "at most " if size.bounded else ""
        time = f"{'at most ' if size.ramps_vary else ''}about {format_estimate(size.seconds)}"
        yield f"  {name:10}{counted(size.cases, 'case')}, {bound}{counted(size.runs, 'run')}, {time}"
        if profile.title:
            yield from textwrap.wrap(profile.title, text_width(), initial_indent=" " * 12, subsequent_indent=" " * 12)


def import_command(
    tool: Literal["fio"] = argument("fio", "Source tool."),
    job: list[str] = argument("JOBFILE", "Job file, or a command line of fio in quotation marks or not."),
    output: Path | None = output_option("STUDY.toml", "New file (default: standard output)."),
) -> None:
    """Convert a fio job file or command line to a study.

    Reports what is not carried over, with its place, the reason and what happens instead; the study has the same list
    in comments. Nothing is run. See what the study would do with `iosonde plan STUDY.toml --target PATH`.
    """
    from iosonde.interop.fio import command_line, import_command_line, import_job_file

    is_command_line = command_line.is_command_line(job)
    imported = import_command_line(job) if is_command_line else import_job_file(job[0])
    output = None if output == Path("-") else output
    if output is None:
        print(imported.text, end="")
    else:
        _write_new(output, imported.text)
    _report(imported, "the command line" if is_command_line else f"`{job[0]}`", output)


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise StudyError(f"`{path}` already exists", hint="name a new file with `--output`") from None
    except OSError as error:
        raise StudyError(
            f"cannot write `{path}`: {error.strerror}", hint="name another file with `--output`"
        ) from error


def _report(imported: Imported, origin: str, output: Path | None) -> None:
    """Report what was converted; a message, because the study may be on standard output."""
    from iosonde.interop.fio.study import wrapped

    lines = [f"converted {origin} to the study `{imported.name}`" + (f" in `{output}`" if output else "")]
    if imported.notes:
        lines += ["", "not carried over (place, option: reason; what happens instead):"]
        lines += wrapped(imported.notes, width=80, indent="- ", further="  ")
    else:
        lines[0] += "; all options are carried over"
    if output:
        lines += ["", f"next: iosonde plan {output} --target PATH"]
    messages.info("\n".join(lines))
