"""One result set in a few facts: what an index lists and what a history follows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict

from iosonde.findings.answer import trust_from
from iosonde.findings.finding import Drift, drift
from iosonde.findings.regression import COMPARABLE, SessionValue, named_loads, session_values
from iosonde.metrics import wording
from iosonde.metrics.metrics import BULK_METRICS
from iosonde.metrics.registry import METRICS as REGISTRY
from iosonde.metrics.scopes import of_same_repeats
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.plan import PREPARATION
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import Study

SHORT = 8
"""Digits of a shortened serial number: records have its hash alone."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Device(_Frozen):
    """A device at the bottom of the target's stack."""

    name: str
    model: str
    firmware: str
    serial: str
    """The first digits of the hash of its serial number."""


MACHINE = {
    ("kernel", "release"): "kernel",
    ("kernel", "cmdline"): "kernel parameters",
    ("kernel", "dirty_ratio"): "vm.dirty_ratio",
    ("kernel", "dirty_background_ratio"): "vm.dirty_background_ratio",
    ("kernel", "swappiness"): "vm.swappiness",
    ("kernel", "clocksource"): "clock source",
    ("cpu", "model"): "CPU",
    ("cpu", "microcode"): "CPU microcode",
    ("cpu", "governor"): "CPU governor",
    ("cpu", "boost"): "CPU boost",
    ("cpu", "no_turbo"): "CPU no_turbo",
    ("cpu", "smt"): "SMT",
    ("cpu", "threads_allowed"): "CPU threads",
    ("memory", "total_bytes"): "memory size",
    ("memory", "transparent_hugepage"): "transparent huge pages",
    ("machine", "host_hash"): "host",
    ("machine", "virtualization"): "virtualization",
    ("machine", "distribution"): "distribution",
    ("software", "iosonde"): "iosonde",
    ("software", "engine"): "engine",
    ("software", "engine_clients"): "engine with clients",
    ("software", "libc"): "C library",
}
"""Facts of an environment that are compared between sessions, with their names in sentences."""

FILE_SYSTEM = {"kind": "file system", "options": "mount options", "block_bytes": "file system block size"}
DEVICE = {
    "firmware": "firmware",
    "scheduler": "I/O scheduler",
    "nr_requests": "nr_requests",
    "read_ahead_kib": "read-ahead",
    "write_cache": "write cache",
    "pcie_link": "PCIe link",
    "level": "RAID level",
    "chunk_size": "RAID chunk size",
}
"""Facts of a device, named with it where there are several."""


def devices_of(records: Sequence[Record]) -> list[Device]:
    """Return the devices without another below them, each once."""
    found = {
        Device(
            name=str(each.get("name", "")),
            model=str(each.get("model", "")),
            firmware=str(each.get("firmware", "")),
            serial=str(each.get("serial_hash", ""))[:SHORT],
        ): None
        for record in records
        for each in _lowest(record.target)
    }
    return list(found)


def wear_of(records: Sequence[Record]) -> tuple[int | None, int | None]:
    """Return power-on hours and percentage used of the drives as last recorded, the highest of several; None if no
    record has them.
    """
    newest = sorted((each for each in records if each.drives), key=lambda each: each.started_at)[-1:]
    ends = [_part(drive, "end") for record in newest for drive in record.drives]
    hours, used = (
        [value for end in ends if isinstance(value := end.get(name), int)]
        for name in ("power_on_hours", "percentage_used")
    )
    return max(hours, default=None), max(used, default=None)


def _lowest(target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    devices = [each for each in target.get("devices", []) if isinstance(each, Mapping)]
    return [each for each in devices if not each.get("under")] or devices


def facts_of(environment: Mapping[str, Any], records: Sequence[Record], settings: Mapping[str, str]) -> dict[str, str]:
    """Return every fact that is compared between sessions, by the name that sentences give it."""
    found = {
        name: _text(_part(environment, group).get(key))
        for (group, key), name in MACHINE.items()
        if _part(environment, group).get(key) is not None
    }
    mitigations = _part(_part(environment, "cpu"), "mitigations")
    if mitigations:
        found["CPU mitigations"] = checksum(mitigations)
    for record in records:
        found |= _target_facts(record.target)
        if record.engine.get("build"):
            found["engine build"] = _text(record.engine["build"])
    return found | {f"setting {name}": value for name, value in settings.items()}


def _target_facts(target: Mapping[str, Any]) -> dict[str, str]:
    file_system = _part(target, "file_system")
    found = {name: _text(file_system[key]) for key, name in FILE_SYSTEM.items() if key in file_system}
    devices = [each for each in target.get("devices", []) if isinstance(each, Mapping)]
    alone = len(_lowest(target)) == 1
    for device in devices:
        of = "" if alone and device in _lowest(target) else f" of {device.get('name', '?')}"
        found |= {f"{name}{of}": _text(device[key]) for key, name in DEVICE.items() if device.get(key) is not None}
    return found


def checksum(value: Any) -> str:
    """Return a short checksum of a value as JSON."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return "" if value is None else str(value)


Medians = Mapping[str, Mapping[str, float]]
"""Metric, case, median."""

HEADLINES = 3
"""At most this many headline metrics of a study."""


class Headline(_Frozen):
    """The best median of a metric over the cases of a study."""

    metric: str
    case_id: str
    value: float
    text: str


class SessionCell(SessionValue):
    """Value of one case in one session: the mean of the logarithms of a metric over its runs."""

    case_id: str
    metric: str


THRESHOLDS_NS = tuple(digit * 10**power for power in range(5, 11) for digit in (1, 2, 5))
"""From 100 us to 50 s."""


class StallCounts(_Frozen):
    """How often I/Os of a case took very long, in all its runs.

    A stall delays many I/Os, and lasts for one or more intervals: consecutive intervals with I/Os that take as long are
    one. Time in which the engine itself did not run is subtracted from the latency.
    """

    intervals: int
    """Measured ones with completed I/Os."""
    counts: list[int]
    """Stalls with an I/O of at least each of `THRESHOLDS_NS`."""
    largest_ns: int
    """Largest completion latency."""


class Summary(_Frozen):
    """One result set."""

    path: str
    """Relative to the indexed directory."""
    study: str
    title: str
    profile: str
    target: str
    simulated: bool
    devices: list[Device]
    power_on_hours: int | None = None
    percentage_used: int | None = None
    """Of the endurance; both of the drives at the end of the session, the highest of several."""
    kernel: str
    software: str
    started_at: str
    ended_at: str
    complete: int
    runs: int
    headlines: list[Headline]
    verdict: str
    """The most frequent verdict of its runs; empty where none was judged."""
    trust: str
    report: str
    """Name of its report in the directory; empty where there is none."""
    problems: list[str]
    """Damaged and foreign files in it."""
    facts: dict[str, str]
    """Machine, software and configuration by name, for comparison with other sessions."""
    loads: dict[str, str]
    """Case to the words for its load."""
    parameters: dict[str, str]
    """Case to a checksum of its parameters: equal where the same was measured."""
    cells: list[SessionCell]
    stalls: dict[str, StallCounts] = {}
    """By case."""

    def exclusion(self, cell: SessionCell, parameters: Mapping[str, str], others: str) -> str:
        """Return why a value is not compared with others; empty if it is.

        `parameters` are checksums of those that the `others` have, by case.
        """
        if cell.verdict not in COMPARABLE:
            return f"runs are {cell.verdict}"
        usual = parameters.get(cell.case_id)
        return f"other parameters than {others}" if usual and self.parameters.get(cell.case_id) != usual else ""


def summarise(result_sets: Mapping[str, ResultSet], all_metrics: pl.DataFrame) -> list[Summary]:
    """Return the summary of each result set, by its relative path, from the `bulk_metrics` of all of them."""
    metrics = all_metrics.filter(pl.col("part") != PREPARATION)
    # A case of the same name in another result set is another case.
    unique = metrics.with_columns(pl.format("{}\n{}", "result_set", name).alias(name) for name in ("run_id", "case_id"))
    medians, cells = _medians(unique), _cells(unique, result_sets)
    controls = metrics.filter(pl.col("control"), pl.col("metric") == "iops")
    drifts = {str(path): drift(rows, metric="iops") for (path,), rows in controls.group_by("result_set")}
    return [
        _summary(path, each, medians.get(path, {}), cells.get(path, []), drifts.get(path))
        for path, each in result_sets.items()
    ]


def _summary(
    path: str, results: ResultSet, medians: Medians, cells: list[SessionCell], drifted: Drift | None
) -> Summary:
    records = [record for record in results.records() if record.part != PREPARATION]
    verdicts = [record.verdict.kind for record in records if record.verdict]
    study = results.study
    environments, used = results.environments(), Counter(record.environment for record in records)
    environment = next((environments[name] for name, _ in used.most_common() if name in environments), {})
    loads, parameters = _cases(records, cells)
    hours, worn = wear_of(records)
    report = results.directory / "report.html"
    return Summary(
        path=path,
        study=results.plan.study_name,
        title=study.title,
        profile=results.plan.profile,
        target=results.plan.target,
        simulated=results.simulated,
        devices=devices_of(records),
        power_on_hours=hours,
        percentage_used=worn,
        kernel=_text(_part(environment, "kernel").get("release")),
        software=_text(_part(environment, "software").get("iosonde")),
        started_at=min((record.started_at for record in records), default=""),
        ended_at=max((record.ended_at for record in records), default=""),
        complete=sum(record.outcome == "complete" for record in records),
        runs=len({*(run.run_id for run in results.plan.runs), *(record.run_id for record in records)}),
        headlines=list(_headlines(study, medians)),
        verdict=Counter(verdicts).most_common(1)[0][0] if verdicts else "",
        trust=_trust(records, drifted, simulated=results.simulated),
        report=report.name if report.is_file() and not report.is_symlink() else "",
        problems=results.problems,
        facts=facts_of(environment, records, results.plan.settings),
        loads=loads,
        parameters=parameters,
        cells=cells,
        stalls=_stalls(results),
    )


def _cells(metrics: pl.DataFrame, result_sets: Mapping[str, ResultSet]) -> dict[str, list[SessionCell]]:
    """Return the session values of every result set, all in one pass."""
    verdicts = {
        f"{path}\n{record.run_id}": record.verdict.kind
        for path, results in result_sets.items()
        for record in results.records()
        if record.verdict
    }
    found: dict[str, list[SessionCell]] = {}
    for (name, metric), each in session_values(metrics, verdicts).items():
        path, _, case_id = name.rpartition("\n")
        cell = SessionCell(case_id=case_id, metric=metric, **each.model_dump())
        found.setdefault(path, []).append(cell)
    return found


def _stalls(results: ResultSet) -> dict[str, StallCounts]:
    cases = {each.run_id: each.case_id for each in results.records() if not each.control and each.part != PREPARATION}
    columns = ("run_id", "phase", "interval", "completion_latency_ns_max", "engine_stalled_ns")
    complete = [each for each in results.records() if each.outcome == "complete"]
    with results.scan("intervals", complete) as rows:
        return count_stalls(rows.select(columns).collect(), cases)


def count_stalls(intervals: pl.DataFrame, cases: Mapping[str, str]) -> dict[str, StallCounts]:
    """Count the stalls of each case in the intervals of its runs; `cases` has the case of each run."""
    slowest = (
        intervals.filter(pl.col("phase") == "measure", pl.col("run_id").is_in(list(cases)))
        .group_by("run_id", "interval")
        .agg(pl.col("completion_latency_ns_max").max(), pl.col("engine_stalled_ns").max().fill_null(0))
        .drop_nulls()
        .with_columns(pl.col(pl.UInt64).cast(pl.Float64))
        .sort("run_id", "interval")
        .with_columns(
            case_id=pl.col("run_id").replace_strict(cases, return_dtype=pl.String),
            ns=pl.max_horizontal(0.0, pl.col("completion_latency_ns_max") - pl.col("engine_stalled_ns")),
        )
        .with_columns(before=pl.col("ns").shift(fill_value=0.0).over("run_id"))
    )
    found = {}
    for (case_id,), group in slowest.group_by("case_id", maintain_order=True):
        latencies, before = group["ns"].to_numpy(), group["before"].to_numpy()
        counts = [int(((latencies >= each) & (before < each)).sum()) for each in THRESHOLDS_NS]
        found[str(case_id)] = StallCounts(intervals=len(group), counts=counts, largest_ns=int(latencies.max()))
    return found


def _cases(records: Sequence[Record], cells: Sequence[SessionCell]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the words for the load of each case, and a checksum of its parameters; a stream has those of its case."""
    loads: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for record in records:
        if not record.control and record.case_id not in loads:
            loads[record.case_id] = wording.case_words(record.parameters, record.levels, record.case_id)
            parameters[record.case_id] = checksum(record.parameters)
    for name in {cell.case_id for cell in cells} - loads.keys():
        case_id, _, stream = name.rpartition(" (")
        if case_id in loads:
            loads[name] = f"{loads[case_id]} ({stream}"
            parameters[name] = parameters[case_id]
    return loads, parameters


def _trust(records: Sequence[Record], drifted: Drift | None, *, simulated: bool) -> str:
    ended = [record.ended for record in records]
    repeats = Counter(each.case_id for each in records if each.outcome == "complete" and not each.control)
    single = bool(repeats) and max(repeats.values()) < MINIMUM_REPEATS
    return trust_from(ended, single=single, drift=drifted, simulated=simulated).line


def _medians(metrics: pl.DataFrame) -> Mapping[str, Medians]:
    """Return the median of each metric and load of every result set."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    table = (
        named_loads(of_same_repeats(metrics.filter(~pl.col("control"))))
        .group_by("load", "metric", maintain_order=True)
        .agg(pl.col("value").median())
    )
    for name, metric, value in table.iter_rows():
        path, _, load = name.rpartition("\n")
        found.setdefault(path, {}).setdefault(metric, {})[load] = value
    return found


def _headlines(study: Study, medians: Medians) -> Iterator[Headline]:
    """Yield the best case of each of the metrics that the study names first."""
    for metric in [each for each in _asked(study) if each in medians][:HEADLINES]:
        best = min if REGISTRY[metric].better == "lower" else max
        case_id, value = best(medians[metric].items(), key=lambda each: each[1])
        text = f"{wording.metric_words(metric)} {wording.value_text(metric, value)}"
        text = text.removeprefix("IOPS ") if metric == "iops" else text  # Its unit repeats the name.
        yield Headline(metric=metric, case_id=case_id, value=value, text=wording.sentence(text))


def _asked(study: Study) -> list[str]:
    """Return the metrics that the study's questions and figures name, the questions first."""
    named = [each.metric for each in study.analysis]
    named += [metric for view in study.views for metric in (view.y, view.x or "", *view.metrics)]
    return [metric for metric in dict.fromkeys(named) if metric in BULK_METRICS]
