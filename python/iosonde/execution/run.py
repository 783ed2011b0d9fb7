"""From a study and a target to its result set, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from iosonde.execution.observer import Observer
from iosonde.execution.session import execute
from iosonde.planning import expand, load
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.consent import Consent
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
    observer: Observer | None = None,
    time_limit_s: float | None = None,
) -> ResultSet:
    """Carry out a study (by name, path, or made in Python) on a target, and keep its results in `output`.

    `settings` are those of `--set`: a factor or parameter and its values as text. `destroy` names the block devices of
    the target that may be overwritten, and `confirm` repeats the serial numbers of those that hold something. Without
    `output` the result set is a new directory under `iosonde-results`. When `time_limit_s` is over the study ends with
    what it has.
    """
    chosen = study if isinstance(study, Study) else load(study)
    plan = expand(chosen, open_target(str(target)), profile=profile, repeats=repeats, settings=settings)
    directory = output or default_directory(plan.study_name)
    consent = Consent(destroy=tuple(destroy), confirm=tuple(confirm))
    return execute(plan, directory, observer=observer, time_limit_s=time_limit_s, consent=consent)


def default_directory(study_name: str) -> Path:
    """Where a result set goes that was not given a place: a directory that names study and time."""
    return Path("iosonde-results") / f"{study_name}-{datetime.now():%Y%m%d-%H%M%S}"
