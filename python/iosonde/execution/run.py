"""Run a study on a target in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from iosonde.execution.carrier import HostOptions
from iosonde.execution.observer import Observer
from iosonde.execution.session import execute
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent
from iosonde.study.model import Study


def run(
    study: Study | Path | str,
    *,
    target: Path | str,
    output: Path | str | None = None,
    profile: str = "standard",
    repeats: int | None = None,
    settings: Mapping[str, str] | None = None,
    destroy: Sequence[str] = (),
    confirm: Sequence[str] = (),
    allow_commands: str = "",
    observer: Observer | None = None,
    time_limit_s: float | None = None,
    progress: bool = True,
    hosts: HostOptions | str | None = None,
) -> ResultSet:
    """Run a study on a target and return its result set.

    `study` is a name, a path or a `Study`. `settings` are those of `--set`: a factor or parameter and its values as
    text. `destroy` names the block devices of the target that may be overwritten; `confirm` repeats the serial numbers
    of those that are not empty. `allow_commands` is the hash of a study with external commands
    (`iosonde.plan.commands.commands_hash`). `output` is a new directory, by default one under `iosonde-results`. After
    `time_limit_s` seconds the study stops and keeps completed runs.

    `hosts` are those of `--hosts`, such as `local:4`: each run is carried out on all of them at the same time.

    Progress is shown in a notebook and on a terminal, unless `progress` is false or an `observer` is given.
    """
    chosen = study if isinstance(study, Study) else load(study)
    plan = expand(chosen, open_target(str(target)), profile=profile, repeats=repeats, settings=settings)
    directory = output or default_directory(plan.study_name)
    consent = Consent(destroy=tuple(destroy), confirm=tuple(confirm), commands=allow_commands)
    chosen_hosts = HostOptions(hosts=hosts) if isinstance(hosts, str) else hosts
    with _observed(plan, observer, progress=progress) as watching:
        return execute(
            plan, directory, observer=watching, time_limit_s=time_limit_s, consent=consent, hosts=chosen_hosts
        )


@contextmanager
def _observed(plan: Plan, observer: Observer | None, *, progress: bool) -> Iterator[Observer | None]:
    """The observer that was given, or a progress display on a terminal or in a notebook."""
    from rich.console import Console

    from iosonde.execution.progress import watch
    from iosonde.procedure.schedule import Remaining

    console = Console(stderr=True, highlight=False)
    if observer or not progress or not (console.is_terminal or console.is_jupyter):
        yield observer
        return
    with watch(Remaining.from_plan(plan), console, info=console.print, warning=console.print) as display:
        yield display


def default_directory(study_name: str) -> Path:
    """The default directory of a result set, named after study and time."""
    return Path("iosonde-results") / f"{study_name}-{datetime.now():%Y%m%d-%H%M%S}"
