"""Input of a report: result sets that share a study, with the tables that the analysis derives from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde import workload as workloads
from iosonde.errors import ResultsError
from iosonde.plan import Case, Plan, Run
from iosonde.procedure.conclusion import Conclusion
from iosonde.procedure.observations import conclusions
from iosonde.results.schema import Record
from iosonde.study.model import Study
from iosonde.workload import streams_of

if TYPE_CHECKING:
    from iosonde.findings.device_state import DeviceStates
    from iosonde.metrics.facts import Facts
    from iosonde.metrics.sustained import LongRun
    from iosonde.results import ResultSet
    from iosonde.verdict.verdict import Kind


SIMULATED = "simulated"
WARNING = "results of a device model, not of a device"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One result set, under the name that the report gives it."""

    label: str
    results: ResultSet
    plan: Plan
    records: Sequence[Record]
    missing: Sequence[Run]
    """Runs of the plan without a record, and those that procedures require next."""

    @cached_property
    def cases(self) -> list[Case]:
        """The cases of the plan, and those that procedures have tried."""
        return self.results.known_cases()

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the plan, and those that procedures have decided on."""
        return self.results.known_runs()

    @cached_property
    def planned(self) -> int:
        """Number of runs of the plan and of those that procedures have decided on or require next."""
        return len({run.run_id for run in (*self.runs, *self.missing)})

    @cached_property
    def procedures(self) -> Sequence[tuple[Case, Conclusion | None]]:
        """Cases with a procedure, and what each came to."""
        return conclusions(self.results)

    @cached_property
    def long_runs(self) -> Sequence[LongRun]:
        """Every run that is judged by its own rounds."""
        from iosonde.metrics.sustained import long_runs

        return long_runs(self.facts)

    @property
    def facts(self) -> Facts:
        """Facts of the completed runs. Several parts of a report read them, so those that fit in memory are kept."""
        from iosonde.metrics.facts import Facts

        return self._facts if self._facts.are_small else Facts(self.results)

    @cached_property
    def _facts(self) -> Facts:
        from iosonde.metrics.facts import Facts

        return Facts(self.results)

    @cached_property
    def specs_by_case(self) -> dict[str, Mapping[str, Any]]:
        """One spec of each case; of a case whose procedure has not started, its first one."""
        planned: dict[str, Mapping[str, Any]] = {
            case.case_id: case.procedure.spec for case in self.plan.adaptive if case.procedure
        }
        return planned | {run.case_id: run.spec for run in self.runs}

    @property
    def directory(self) -> Path:
        return self.results.directory

    @property
    def simulated(self) -> bool:
        """True if the values come from a model."""
        return self.results.simulated

    @property
    def failed(self) -> list[Record]:
        """Runs that ended without a result, and might not have."""
        return [record for record in self.records if record.is_failed]

    @property
    def impossible(self) -> list[Record]:
        """Runs of unsupported combinations."""
        return [record for record in self.records if record.is_unsupported]

    def complete_of(self, workload: str) -> list[Record]:
        """Runs of a kind of workload that came to their end, the control left out."""
        return [
            record
            for record in self.records
            if record.outcome == "complete" and not record.control and record.spec["workload"]["kind"] == workload
        ]

    @property
    def stopped(self) -> list[Record]:
        """Runs that were ended early."""
        return [record for record in self.records if record.outcome == "stopped"]

    @property
    def complete(self) -> bool:
        """True if every planned run completed."""
        return not (self.missing or self.failed or self.stopped)

    @cached_property
    def verdicts(self) -> dict[str, list[Kind]]:
        """The verdict on each run, by case."""
        found: dict[str, list[Kind]] = {}
        for record in self.records:
            if record.verdict:
                found.setdefault(record.case_id, []).append(record.verdict.kind)
        return found

    def verdict(self, case_id: str) -> Kind | None:
        """The verdict on the median of a case; None where no run has one."""
        from iosonde.verdict.verdict import of_repeats

        return of_repeats(self.verdicts.get(case_id, []))

    def no_value(self, case_id: str) -> str:
        """Return why a case has no result; empty if it has one."""
        if any(record.case_id == case_id and record.outcome == "complete" for record in self.records):
            return ""
        ended = [*self.failed, *self.impossible]
        reasons = [record.failure.message for record in ended if record.case_id == case_id and record.failure]
        return reasons[0] if reasons else "not run"


@dataclass(frozen=True, kw_only=True)
class Material:
    """Result sets of one study."""

    study: Study
    sources: Sequence[Source]
    groups: Sequence[Sequence[str]] = ()
    """Labels of the result sets of each system, where the caller names the systems to compare."""

    @cached_property
    def systems(self) -> Sequence[Sequence[Source]]:
        """Two systems to be compared, each with its sessions; empty where there are not two.

        Two result sets are two systems. More than two are grouped by target and settings.
        """
        by_label = {source.label: source for source in self.sources}
        if self.groups:
            return [[by_label[label] for label in group] for group in self.groups]
        if len(self.sources) == 2:
            return [[source] for source in self.sources]
        found = [each for each in self.sessions if len(self.sessions) == 2]
        return [] if self.paired_sets else found

    @cached_property
    def sessions(self) -> Sequence[Sequence[Source]]:
        """Result sets grouped by target and settings: each group has the sessions of one system."""
        found: dict[tuple[object, ...], list[Source]] = {}
        for source in self.sources:
            key = (source.plan.target, source.plan.profile, *sorted(source.plan.settings.items()))
            found.setdefault(key, []).append(source)
        return list(found.values())

    @property
    def paired(self) -> bool:
        """True if the two systems are the arms of one session."""
        return len(self.sources) == 2 and self.paired_sets == 1

    @property
    def paired_sets(self) -> int:
        """Number of result sets that have two arms."""
        return sum(bool(source.results.label) for source in self.sources) // 2

    @cached_property
    def run_metrics(self) -> pl.DataFrame:
        """`analysis.metrics.run_metrics` of all result sets, under their labels."""
        from iosonde.metrics.metrics import run_metrics

        return self._labelled(run_metrics)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """`analysis.metrics.case_metrics`: medians over repeats, with their intervals."""
        from iosonde.metrics.metrics import case_metrics

        return case_metrics(self.run_metrics)

    @cached_property
    def device_states(self) -> Mapping[str, DeviceStates]:
        """Device state of every run, by label: the source of answer, captions and tables."""
        from iosonde.findings.device_state import device_states

        return {
            source.label: device_states(
                self.study,
                source.results.cases,
                self.run_metrics.filter(pl.col("result_set") == source.label),
                source.results.runs,
                source.long_runs,
            )
            for source in self.sources
        }

    @cached_property
    def curves(self) -> pl.DataFrame:
        """`analysis.metrics.percentile_curves` of all result sets."""
        from iosonde.metrics.metrics import percentile_curves

        return self._labelled(percentile_curves)

    def intervals(self, metric: str, runs: Mapping[str, Sequence[str]]) -> pl.DataFrame:
        """Return one metric of `analysis.metrics.interval_metrics`, of runs given by the label of their result set."""
        from iosonde.metrics.metrics import interval_metrics

        return self._labelled_runs(lambda results, ids: interval_metrics(results, run_ids=ids, metrics=(metric,)), runs)

    def stalled_intervals(self, runs: Mapping[str, Sequence[str]]) -> pl.DataFrame:
        """Return the intervals of these runs in which the engine itself was stalled."""
        from iosonde.metrics.metrics import stalled_intervals

        return self._labelled_runs(lambda results, ids: stalled_intervals(results, run_ids=ids), runs)

    def cases(self, *, control: bool = False) -> Iterable[tuple[Source, Case]]:
        """Return every case of every result set, in the order of the plan."""
        return ((source, case) for source in self.sources for case in source.cases if case.control == control)

    def _labelled_runs(
        self, tables: Callable[[ResultSet, Sequence[str]], pl.DataFrame], runs: Mapping[str, Sequence[str]]
    ) -> pl.DataFrame:
        frames = [
            tables(source.results, runs[source.label]).with_columns(result_set=pl.lit(source.label, dtype=pl.String))
            for source in self.sources
            if runs.get(source.label)
        ]
        return pl.concat(frames, how="diagonal_relaxed")

    def _labelled(self, tables: Callable[[Facts], pl.DataFrame]) -> pl.DataFrame:
        frames = [
            tables(source.facts).with_columns(result_set=pl.lit(source.label, dtype=pl.String))
            for source in self.sources
        ]
        return pl.concat(frames, how="diagonal_relaxed")


def gather(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[Material]:
    """Group result sets by their study, and name them so that a reader can tell them apart.

    Raises `ResultsError` where some are simulated and others measured, unless that is requested.
    """
    from iosonde.procedure.schedule import open_runs
    from iosonde.results.combine import labels

    if not mix_simulated:
        require_one_kind(result_sets)
    studies: dict[str, list[Source]] = {}
    arms = [arm for each in result_sets for arm in each.arms()]
    for name, results in zip(labels(arms), arms, strict=True):
        label = marked_label(name, results)
        records = results.records()
        found = {record.run_id for record in records}
        missing = [run for run in results.plan.runs if run.run_id not in found] + open_runs(results)
        source = Source(label=label, results=results, plan=results.plan, records=records, missing=missing)
        studies.setdefault(results.plan.study_name, []).append(source)
    return [Material(study=group[0].results.study, sources=group) for group in studies.values()]


def loop_text(specs: Iterable[Mapping[str, Any]]) -> str:
    """Describe whether load waited for completions: `closed loop`, `open loop`, or both."""
    loads = [spec["workload"] for spec in specs]
    if loads and all(workloads.described(each).is_external for each in loads):
        return "loop not reported"  # Only the command could report it.
    arrivals = {
        "closed" if stream.get("arrival", {}).get("kind", "closed") == "closed" else "open"
        for load in loads
        for stream in streams_of(load)
    }
    return f"{' and '.join(sorted(arrivals)) or 'closed'} loop"


def require_distinct(result_sets: Sequence[ResultSet]) -> None:
    """Refuse a result set that is named twice, whatever the path."""
    places = Counter(each.directory.resolve() for each in result_sets)
    twice = next((place for place, times in places.items() if times > 1), None)
    if twice:
        raise ResultsError(f"result set `{twice}` was given twice", hint="give each result set once")


def require_one_kind(result_sets: Sequence[ResultSet]) -> None:
    """Refuse simulated and measured result sets in one report."""
    simulated = [result_set for result_set in result_sets if result_set.simulated]
    measured = [result_set for result_set in result_sets if not result_set.simulated]
    if simulated and measured:
        raise ResultsError(
            f"cannot combine the simulated result set `{simulated[0].directory}` and the measured "
            f"`{measured[0].directory}`",
            where="a reader of one report could confuse them",
            hint="add `--mix-simulated` (from Python `mix_simulated=True`) to combine them; each is then marked",
        )


def marked_label(name: str, result_set: ResultSet) -> str:
    """The name of a result set next to others."""
    return f"{name} ({SIMULATED})" if result_set.simulated else name
