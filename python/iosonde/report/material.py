"""Input of a report: result sets that share a study, what the analysis derives from them, the subjects of a view."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import polars as pl

from iosonde.errors import ResultsError
from iosonde.findings.device_state import DeviceStates, device_states, window_means
from iosonde.metrics import wording
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import case_metrics, interval_metrics, percentile_curves, run_metrics, stalled_intervals
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import CONFIDENCE, CUT_OFF, MINIMUM_REPEATS, WIDE_TEXT, distant_modes_coverage, is_wide
from iosonde.metrics.sustained import LongRun, long_runs
from iosonde.metrics.verdict.verdict import Kind, of_repeats
from iosonde.plan import Case, DeviceState, Plan, Run
from iosonde.planning.procedure import conclusions, open_runs
from iosonde.planning.procedure.observations import Conclusion
from iosonde.report.quantities import WIDE_CELL, level_text, metric_title, metric_unit
from iosonde.report.table import DEVICE_STATE, Cell, Column, metric_cell
from iosonde.results.result_set import ResultSet, labels
from iosonde.results.schema import Record
from iosonde.study import workload as workloads
from iosonde.study.model import ROUND, STAGE, Study, View
from iosonde.study.workload import store_name, streams_of

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
        return long_runs(self.facts)

    @property
    def facts(self) -> Facts:
        """Facts of the completed runs. Several parts of a report read them, so those that fit in memory are kept."""
        return self._facts if self._facts.are_small else Facts(self.results)

    @cached_property
    def _facts(self) -> Facts:

        return Facts(self.results)

    @cached_property
    def specs_by_case(self) -> dict[str, Mapping[str, Any]]:
        """One spec of each case; of a case whose procedure has not started, its first one."""
        planned: dict[str, Mapping[str, Any]] = {
            case.case_id: case.procedure.spec for case in self.plan.adaptive if case.procedure
        }
        return planned | {run.case_id: run.spec for run in self.runs}

    def key(self, case: Case) -> str:
        """Key of a case in tables, by which the page finds its runs."""
        return f"{self.label}\n{case.case_id}"

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

    @property
    def stopped(self) -> list[Record]:
        """Runs that were ended early."""
        return [record for record in self.records if record.outcome == "stopped"]

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
        return of_repeats(self.verdicts.get(case_id, []))

    def no_value(self, case_id: str) -> str:
        """Return why a case has no result; empty if it has one."""
        if any(record.case_id == case_id and record.outcome == "complete" for record in self.records):
            return ""
        ended = [*self.failed, *self.impossible]
        reasons = [record.failure.message for record in ended if record.case_id == case_id and record.failure]
        return reasons[0] if reasons else "not run"


@dataclass(frozen=True, kw_only=True)
class System:
    """One of the two systems that are compared, with its sessions."""

    label: str
    sources: Sequence[Source]

    @property
    def cases(self) -> list[Case]:
        """The cases of its first session."""
        return self.sources[0].cases


@dataclass(frozen=True, kw_only=True)
class Material:
    """Result sets of one study."""

    study: Study
    sources: Sequence[Source]
    groups: Sequence[Sequence[str]] = ()
    """Labels of the result sets of each system, where the caller names the systems to compare."""

    @cached_property
    def systems(self) -> Sequence[System]:
        """Two systems to be compared, each with its sessions; empty where there are not two.

        Two result sets are two systems. More than two are grouped by target and settings.
        """
        by_label = {source.label: source for source in self.sources}
        if self.groups:
            found = [[by_label[label] for label in group] for group in self.groups]
        elif len(self.sources) == 2:
            found = [[source] for source in self.sources]
        else:
            found = [] if self.paired_sets or len(self.sessions) != 2 else self.sessions
        return [System(label=self._label(sources), sources=sources) for sources in found]

    def _label(self, sources: Sequence[Source]) -> str:
        """Name a system by its only session, its first one, or its target."""
        if len(sources) == 1:
            return sources[0].label
        return f"{sources[0].label} and {len(sources) - 1} more" if self.groups else sources[0].plan.target

    @cached_property
    def sessions(self) -> list[list[Source]]:
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
        return self._labelled(lambda source: run_metrics(source.facts))

    @cached_property
    def summary(self) -> pl.DataFrame:
        """`analysis.metrics.case_metrics`: medians over repeats, with their intervals."""
        return case_metrics(self.run_metrics)

    @cached_property
    def device_states(self) -> Mapping[str, DeviceStates]:
        """Device state of every run, by label: the source of answer, captions and tables."""
        return {
            source.label: device_states(
                self.study,
                source.results.cases,
                self.runs_of(source),
                source.results.runs,
                source.long_runs,
            )
            for source in self.sources
        }

    @cached_property
    def curves(self) -> pl.DataFrame:
        """`analysis.metrics.percentile_curves` of all result sets."""
        return self._labelled(lambda source: percentile_curves(source.facts))

    def intervals(self, metric: str, runs: Mapping[str, Sequence[str]]) -> pl.DataFrame:
        """Return one metric of `analysis.metrics.interval_metrics`, of runs given by the label of their result set."""
        metrics = (metric,)
        return self._labelled(lambda s: interval_metrics(s.results, run_ids=runs[s.label], metrics=metrics), runs)

    def stalled_intervals(self, runs: Mapping[str, Sequence[str]]) -> pl.DataFrame:
        """Return the intervals of these runs in which the engine itself was stalled."""
        return self._labelled(lambda source: stalled_intervals(source.results, run_ids=runs[source.label]), runs)

    def cases(self) -> Iterable[tuple[Source, Case]]:
        """Return every case of every result set, in the order of the plan."""
        return ((source, case) for source in self.sources for case in source.cases if not case.control)

    def label_column(self, sources: Iterable[Source]) -> Column | None:
        """Return the column that names the result set of each row; None where there is only one."""
        return ("Result set", [source.label for source in sources]) if len(self.sources) > 1 else None

    def runs_of(self, source: Source) -> pl.DataFrame:
        """Return the run metrics of one result set."""
        return self.run_metrics.filter(pl.col("result_set") == source.label)

    def _labelled(self, table: Callable[[Source], pl.DataFrame], labels: Container[str] | None = None) -> pl.DataFrame:
        """Return a table of all result sets, or of those with these labels, under their labels."""
        frames = [
            table(source).with_columns(result_set=pl.lit(source.label, dtype=pl.String))
            for source in self.sources
            if labels is None or source.label in labels
        ]
        return pl.concat(frames, how="diagonal_relaxed")


def gather(result_sets: Sequence[ResultSet], *, mix_simulated: bool = False) -> list[Material]:
    """Group result sets by their study, and name them so that a reader can tell them apart.

    Raises `ResultsError` where some are simulated and others measured, unless that is requested.
    """
    simulated = [each.directory for each in result_sets if each.simulated]
    measured = [each.directory for each in result_sets if not each.simulated]
    if simulated and measured and not mix_simulated:
        raise ResultsError(
            f"cannot combine the simulated result set `{simulated[0]}` and the measured `{measured[0]}`",
            where="a reader of one report could confuse them",
            hint="add `--mix-simulated` (from Python `mix_simulated=True`) to combine them; each is then marked",
        )
    studies: dict[str, list[Source]] = {}
    arms = [arm for each in result_sets for arm in each.arms()]
    for name, results in zip(labels(arms), arms, strict=True):
        label = f"{name} ({SIMULATED})" if results.simulated else name
        records = results.records()
        found = {record.run_id for record in records}
        missing = [run for run in results.plan.runs if run.run_id not in found] + open_runs(results)
        source = Source(label=label, results=results, plan=results.plan, records=records, missing=missing)
        studies.setdefault(results.plan.study_name, []).append(source)
    return [Material(study=group[0].results.study, sources=group) for group in studies.values()]


def loop_text(specs: Iterable[Mapping[str, Any]]) -> str:
    """Describe whether load waited for completions: `closed loop`, `open loop`, or both."""
    loads = [spec["workload"] for spec in specs]
    if loads and all(workloads.described(each).io == "command" for each in loads):
        return "loop not reported"  # Only the command could report it.
    arrivals = {
        "closed" if stream.get("arrival", {}).get("kind", "closed") == "closed" else "open"
        for load in loads
        for stream in streams_of(load)
    }
    return f"{' and '.join(sorted(arrivals)) or 'closed'} loop"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One line of evidence for a view: a case of a result set, and the operation looked at."""

    source: Source
    case: Case
    stream: str | None = None
    operation: str | None = None
    in_window: bool = False
    """True if its value is the mean over the measurement window; its case is then the one of the last round."""

    def level(self, factor: str | None) -> Any:
        """Return the level of a factor; `operation` and `stream` count as factors where the study has none so named."""
        facts = {"operation": self.operation, "stream": self.stream, **self.case.parameters, **self.case.levels}
        return facts.get(factor or "")

    @property
    def key(self) -> tuple[str, str, str | None, str | None]:
        """Key of its rows in the tables of the analysis."""
        return (self.source.label, self.case.case_id, self.stream, self.operation)


def subjects(view: View, material: Material) -> list[Subject]:
    """Return what a view looks at; of a search of steady state each load once, with its measurement window."""
    part = next(part for part in material.study.parts if part.name == view.part)
    named = {view.x, view.series, view.facet, *view.where}
    chosen = [(source, case) for source, case in material.cases() if case.part == view.part]
    one_value = view.kind in ("lines", "bars", "heatmap", "table")
    if part.rounds and part.rounds.sought and one_value and not named & {ROUND, STAGE, "operation", "stream"}:
        found = _loads(chosen)
    else:
        # Rounds and the stages after them are cases of one part: what separates the ones leaves the others out.
        chosen = [(source, case) for source, case in chosen if {ROUND, STAGE} & named <= case.levels.keys()]
        apart = {"operation", "stream"} & named - {name for _, case in chosen for name in case.levels}
        found = [
            Subject(source=source, case=case, stream=stream, operation=operation)
            for source, case in chosen
            for stream, operation in (_streams(material, source, case) if apart else [(None, None)])
        ]
    return [s for s in found if all(same_level(name, s.level(name), wanted) for name, wanted in view.where.items())]


def _loads(cases: Iterable[tuple[Source, Case]]) -> list[Subject]:
    """Each load of the rounds once."""
    found: dict[tuple[str, str], Subject] = {}
    for source, case in cases:
        if ROUND in case.levels:
            levels = {name: level for name, level in case.levels.items() if name != ROUND}
            load = case.model_copy(update={"levels": levels})
            found[source.label, str(levels)] = Subject(source=source, case=load, in_window=True)
    return list(found.values())


def same_level(factor: str, level: Any, wanted: Any) -> bool:
    """Compare a level with its value in a study file, which may write `4KiB` for 4096."""
    return level == wanted or level_text(factor, level).replace(" ", "") == str(wanted).replace(" ", "")


KEY = ("result_set", "case_id", "stream", "operation")
Estimate = tuple[float | None, float | None, float | None, int]
"""Median, low, high and repeats."""


def of_whole_load(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of whole loads, which have no stream and no operation here."""
    return overall(table).with_columns(stream=pl.lit(None), operation=pl.lit(None))


class Values:
    """Medians with their intervals, by subject."""

    def __init__(self, material: Material, metric: str) -> None:

        self._material, self.metric = material, metric
        table = material.summary.filter(pl.col("metric") == metric)
        rows = [*of_whole_load(table).to_dicts(), *table.to_dicts()]
        self._of_case: dict[tuple[Any, ...], Estimate] = {
            tuple(row[name] for name in KEY): (row["median"], row["low"], row["high"], row["repeats"]) for row in rows
        }
        # The achieved share of a rate, for example, is of a stream and not of its operations.
        self._only_of_streams = table["operation"].eq("all").all()

    def estimate(self, subject: Subject) -> Estimate:
        """Return median, low, high and repeats; None where there is no value."""
        if subject.in_window:
            known = self._of_window.get(_window_key(subject.source.label, subject.case.levels))
        else:
            *case, operation = subject.key
            known = self._of_case.get((*case, "all" if operation and self._only_of_streams else operation))
        return known or (None, None, None, 0)

    def cell(self, subject: Subject) -> Cell:
        """Return the median with its interval."""
        return metric_cell(self.metric, *self.estimate(subject)[:3])

    @cached_property
    def _of_window(self) -> dict[WindowKey, Estimate]:
        """Means over the measurement window, the median of them over repeats."""
        passes: dict[WindowKey, list[float]] = {}
        for source in self._material.sources:
            of_source = self._material.runs_of(source)
            for part in self._material.study.parts:
                if part.rounds and part.rounds.sought:
                    names = [*part.factors, *part.rounds.factors]
                    for row in window_means(part, source.results.cases, of_source, [self.metric]).to_dicts():
                        levels = {name: row[name] for name in names}
                        passes.setdefault(_window_key(source.label, levels), []).append(row["value"])
        return {key: (median(values), None, None, len(values)) for key, values in passes.items()}


WindowKey = tuple[str, frozenset[tuple[str, Any]]]


def _window_key(label: str, levels: Mapping[str, Any]) -> WindowKey:
    return (label, frozenset(levels.items()))


def largest(values: Values, found: Sequence[Subject]) -> float:
    """Return the largest of their values; 1 where there is none."""
    return max((v for s in found for v in [values.estimate(s)[0]] if v is not None), default=1.0)


def metric_title_of(metric: str, found: Sequence[Subject]) -> str:
    """Name a metric; every latency with the loop it was measured in."""
    title = metric_title(metric)
    return f"{title} ({loop_text(specs(found))})" if metric_unit(metric) == "ns" else title


def specs(found: Sequence[Subject]) -> list[Mapping[str, Any]]:
    """Return an engine spec of each of their cases."""
    wanted = {(s.source.label, s.case.case_id) for s in found}
    return [
        spec
        for s in {id(x.source): x.source for x in found}.values()
        for case_id, spec in s.specs_by_case.items()
        if (s.label, case_id) in wanted
    ]


def _streams(material: Material, source: Source, case: Case) -> list[tuple[str, str]]:
    rows = material.summary.filter((pl.col("result_set") == source.label) & (pl.col("case_id") == case.case_id))
    found = [row for row in rows.select("stream", "operation").unique(maintain_order=True).rows() if row[1] != "all"]
    single = [row for row in found if row[0] != "all"]  # without the sum over streams
    return single or found


def states_of(material: Material, cases: Iterable[tuple[Source, Case]]) -> list[DeviceState]:
    """Return the states of devices that cases measured, each once; none of cases that only read or have no result."""
    known = material.device_states
    found = dict.fromkeys(state for source, case in cases for state in known[source.label].of_case(case.case_id))
    return [state for state in found if state != "not_applicable"]


def device_state_column(material: Material, rows: Iterable[Iterable[tuple[Source, Case]]]) -> Column | None:
    """Return the column with the device state of the cases of each row; None where none writes to a device."""
    texts = [", ".join(states_of(material, row)) for row in rows]
    return (DEVICE_STATE, [text or "-" for text in texts]) if any(texts) else None


def device_state_note(view: View, material: Material) -> str:
    """Name the device state of the cases of a view that write; empty if none does."""
    found = [(each.source, each.case) for each in subjects(view, material)] if view.part else list(material.cases())
    named = states_of(material, found)
    parts = [f"Device state: {', '.join(named)}." if named else "", not_steady(view, material, found)]
    return " ".join(filter(None, parts))


def not_steady(view: View, material: Material, cases: Iterable[tuple[Source, Case]]) -> str:
    """State that values are not for steady state, where a view is named after it and no case reached it."""
    is_named = view.y in ASSUME_STEADY or "steady" in view.title.lower()
    states = states_of(material, cases)
    return "Values are not for steady state." if is_named and states and "steady" not in states else ""


ASSUME_STEADY = ("steady_iops", "steady_bandwidth", "steady_fraction", "seconds_to_steady_state")
"""Metrics that are named after steady state, and have a value wherever the rate was stable."""


SURVIVES = {"nothing": "nothing", "process_crash": "process crash", "power_loss": "power loss"}


def durability_column(cases: Iterable[tuple[Source, Case] | None]) -> Column | None:
    """Return the column with what acknowledged writes of each case survive; None where that is not known of any."""
    texts = [durability(each[0], each[1].case_id) if each else "" for each in cases]
    return ("Writes survive", [text or "-" for text in texts]) if any(texts) else None


def durability(source: Source, case_id: str) -> str:
    """Return what acknowledged writes of a case survive; empty if it does not write, or that was not recorded."""
    results = (record.result or {} for record in source.records if record.case_id == case_id)
    stores = (result.get("store") for result in results)
    found = (store.get("durability") for store in stores if isinstance(store, Mapping))
    return next((SURVIVES.get(str(each), str(each)) for each in found if each), "")


def differing_durability(material: Material, part: str) -> Mapping[str, str]:
    """Return what writes survive in each store of a part, where stores differ; else nothing."""
    found: dict[str, set[str]] = {}
    for source, case in material.cases():
        survives = durability(source, case.case_id)
        if case.part == part and survives:
            found.setdefault(str(case.parameters.get("store", "")), set()).add(survives)
    if len(found) < 2 or len(set(map(frozenset, found.values()))) < 2:
        return {}
    return {store: " or ".join(sorted(survives)) for store, survives in found.items()}


def durability_note(material: Material, part: str) -> str:
    """Return the note under a figure of such a part; empty if its stores do not differ."""
    found = differing_durability(material, part)
    if not found:
        return ""
    listed = wording.listing([f"{store_name(store)} {survives}" for store, survives in found.items()])
    return f"Writes survive different failures, so stores are not ranked: {listed}."


def intervals_of(material: Material, metrics: Sequence[str] = (), sources: Sequence[Source] = ()) -> str:
    """Name method and number of repeats of the intervals of some metrics, or of all; empty where there are none.

    For example `95 % confidence intervals of the median of 3 repeats (Student's t on logarithms)`.
    """
    rows = material.summary.filter(pl.col("method") != "", ~pl.col("control"))
    if metrics:
        rows = rows.filter(pl.col("metric").is_in(list(metrics)))
    if sources:
        rows = rows.filter(pl.col("result_set").is_in([each.label for each in sources]))
    if rows.is_empty():
        return ""
    counts = rows["repeats"]
    fewest, most = int(counts.min()), int(counts.max())  # type: ignore[arg-type]
    repeats = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    names = rows["method"].unique().to_list()
    used = {name for name in names if f"{name}{CUT_OFF}" not in names}
    return f"95 % confidence intervals of the median of {repeats} repeats ({'; '.join(sorted(used))})"


def coverage_of(material: Material, source: Source) -> str:
    """State the coverage that the intervals of few repeats lack if there are two distant modes; empty for others."""
    rows = material.summary.filter(pl.col("result_set") == source.label, pl.col("method") != "", ~pl.col("control"))
    counts = sorted({int(count) for count in rows["repeats"]} if not source.simulated else ())
    few = [count for count in counts if count >= MINIMUM_REPEATS and distant_modes_coverage(count) < CONFIDENCE]
    if not few:
        return ""
    shares = ", ".join(f"{100 * distant_modes_coverage(count):.0f} % with {count} repeats" for count in few)
    return (
        f"95 % for independent repeats with one mode or two near modes; for two distant modes only {shares}: "
        "too few to show both modes, use 6 or more"
    )


def medians_of(material: Material, metrics: Sequence[str] = ()) -> str:
    """Describe the values of a table: medians with their intervals, or values of too few repeats."""
    found = intervals_of(material, metrics)
    if not found:
        return "Medians over repeats; too few for confidence intervals."
    rows = material.summary.filter(pl.col("metric").is_in(list(metrics))) if metrics else material.summary
    wide = any(is_wide(low, high) for low, high in rows.select("low", "high").iter_rows())
    note = f" “{WIDE_CELL}”: the interval is {WIDE_TEXT}." if wide else ""
    return f"Medians over repeats, with {found}.{note}"
