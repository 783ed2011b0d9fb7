"""Check result sets against baselines of the same study."""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.comparison.sessions import PRIOR_STANDARD_DEVIATION, prior_degrees
from iosonde.errors import ResultsError
from iosonde.metrics.wording import counted
from iosonde.regression.decision import MEDIAN, Check, Settings, decide
from iosonde.regression.sessions import TAIL, session_of
from iosonde.results import ResultSet
from iosonde.results.interpreting import interpreting


def check(candidates: Sequence[ResultSet], baselines: Sequence[ResultSet], settings: Settings | None = None) -> Check:
    """Decide for every case and metric whether the candidates are slower than the baselines.

    Each result set is one session. `ResultsError` where the result sets are not of one study, where a result set is
    among both, or where measured and simulated result sets are mixed.
    """
    _check_comparable(candidates, baselines)
    chosen = settings or Settings()
    with interpreting(each.directory for each in (*candidates, *baselines)):
        percentiles = (MEDIAN, *TAIL, *chosen.percentiles)
        before, after = (
            [session_of(each, str(each.directory), percentiles=percentiles) for each in group]
            for group in (baselines, candidates)
        )
        cells = decide(before, after, chosen)
    return Check(
        cells=cells,
        settings=chosen,
        baselines=[each.name for each in before],
        candidates=[each.name for each in after],
        notes=_notes(len(baselines)),
    )


def _notes(baselines: int) -> list[str]:
    degrees = prior_degrees(baselines)
    if not degrees:
        return []
    known = "is unknown with one baseline" if baselines == 1 else f"is poorly known with {baselines} baselines"
    return [
        f"the variance between sessions {known}: a standard deviation of {100 * PRIOR_STANDARD_DEVIATION:g} % is "
        f"assumed ({counted(round(degrees), 'degree')} of freedom); five or more baselines measure it"
    ]


def _check_comparable(candidates: Sequence[ResultSet], baselines: Sequence[ResultSet]) -> None:
    everyone = [*candidates, *baselines]
    studies = list(dict.fromkeys(each.plan.study_name for each in everyone))
    if len(studies) > 1:
        raise ResultsError(
            "cannot check result sets of different studies",
            where=f"studies {', '.join(f'`{study}`' for study in studies)}",
            hint="give result sets of one study",
        )
    profiles = list(dict.fromkeys(each.plan.profile for each in everyone))
    if len(profiles) > 1:
        raise ResultsError(
            "cannot check result sets of different profiles",
            where=f"profiles {', '.join(f'`{profile}`' for profile in profiles)} of the study `{studies[0]}`",
            hint="run baselines and candidate with the same `--profile`",
        )
    if len({each.simulated for each in everyone}) > 1:
        raise ResultsError(
            "cannot check a measured result set against a simulated one",
            hint="give baselines of the same kind as the candidate",
        )
    twice = {each.directory.resolve() for each in candidates} & {each.directory.resolve() for each in baselines}
    if twice:
        raise ResultsError(
            f"`{sorted(map(str, twice))[0]}` is both baseline and candidate",
            hint="a result set compared with itself never differs; name another baseline",
        )
