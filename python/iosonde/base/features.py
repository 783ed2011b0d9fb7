"""Features: packages that extend the rest of iosonde, which never names one.

A feature is one folder. Its modules have fixed names, one for each place of the core that it extends. Each lists what
it adds in a tuple:

    module         tuple          elements                                             read by
    __init__.py    TOPICS        pairs of a topic and its heading                  `topic` of studies
                   PROCEDURES    names of the kinds in procedures.py               `[parts.procedure]` of studies
    workload.py    WORKLOADS     objects of a subclass of `Workload`               studies, plans, runs and records
                   SERVERS       `study.servers.foreign.ServerKind`                addresses of running servers
    backends.py    BACKENDS      `study.workload.workload.Backend`                 block I/O
    setup.py       PARTS         subclasses of `plan.SetupPart`                    setups of a plan
                   EXTENSIONS    `study.setup_extension.SetupExtension`            parameters of studies for them
                   SETTINGS      models with `needs_root`; fields are parameters   other parameters of cases
                   SIZES         names of parameters in bytes                      both kinds of parameters
                   WORDS         functions from factor and level to words          sentences
    storage.py     TARGETS       `storage.targets.target.TargetKind`               targets by the prefix of their names
                   LAYERS        `storage.targets.target.LayerKind`                creation of setups
                   UNDO          `storage.safety.journal.JournalKind`              the journal
    procedures.py  KINDS         pairs of a name and a `planning.procedure.Kind`   cases whose runs depend on records
                   SETTINGS      pairs of a name and the type of settings          the plan of a result set, before use
    run.py         REQUIREMENTS  `planning.feasible.Requirements`                  each case of a plan
                   CONSENT       `execution.admission.RequiredConsent`             each plan before it starts
                   CARRIERS      objects with functions of `execution.session`     `--hosts`
                   STARTERS      `execution.servers.ServerStarter`                 runs on a server
                   PREPARATIONS  `execution.context.Preparation`                   each run, before its instruments
                   STATES        classes with `execution.context.DataState`        each run, before and after it
                   ENCLOSURES    `execution.context.Enclosure`                     the engine of each run
                   INSTRUMENTS   subclasses of `Instrument`                        each run
                   PROBES        `execution.engine_programs.Probe`                 `plan` and `doctor`
                   CHECKS        functions that return checks                      `iosonde doctor`
    record.py      PARTS         subclasses of `results.schema.RecordPart`         the record
    verdict.py     RULES         `metrics.verdict.rules.Rule`                      the verdict on a run
                   STORAGE       functions from a record to a `StorageBytes`       its evidence
                   EVIDENCE      classes of an `Evidence` with cached numbers      the same
                   JUDGES        pairs of a name and a `metrics.verdict.verdict.Judge`  runs judged by resources
    facts.py       COLUMNS       `results.column.Column`                           the table `runs`
                   COUNTERS      pairs of a statistic of servers and its meaning   facts of runs and intervals
                   METRICS       `metrics.metric.Metric`                           the registry of metrics
                   ADJUSTMENTS   functions of a frame of sums                      the sums before metrics are derived
                   INTERVALS     `metrics.derivation.IntervalFacts`                metrics of intervals
    questions.py   KINDS         `findings.question.QuestionKind`                  `[[analysis]]` of studies, answers
                   OBSERVATIONS  `findings.question.Observation`                   what is stated about every result set
                   OF_RESULTS    `findings.question.OfResults`                     the same, from records and intervals
                   CONCLUSIONS   functions from cases with their conclusions to findings  the same, from procedures
                   NOT_RANKED    functions from a question to a finding            questions that compare named levels
    report.py      TABLES        functions from `Material` to tables               the report
                   FIGURES       functions from `Material` and the number of the first figure to figures  the report
    exports.py     EXPORTS       objects with `NAME`, `WHAT`, `SUFFIX`, `files`    `iosonde export`

The application registers its features, and those that the environment variable `IOSONDE_FEATURES` names, when it is
imported (`iosonde/__init__.py`), so a module of the core can read what they contribute when it is imported itself.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_packages: list[str] = []


def register(*packages: str) -> None:
    """Add features by the names of their packages. What they contribute is listed in this order."""
    _packages.extend(name for name in packages if name not in _packages)


def sources(module: str) -> Iterator[str]:
    """Yield the texts of the modules MODULE of all features, for what is read of them before they are imported."""
    for package in _packages:
        found = importlib.util.find_spec(f"{package}.{module}")
        if found is not None and found.origin:
            yield Path(found.origin).read_text(encoding="utf-8")


def contributed(module: str, name: str, kind: type[T] | None = None) -> tuple[T, ...]:
    """Return the elements of the tuples `MODULE.NAME` of all features that have them; of the package itself for "".

    `kind` is their type, for the reader and the type checker.
    """
    found: list[Any] = []
    for package in _packages:
        place = f"{package}.{module}" if module else package
        if importlib.util.find_spec(place) is not None:
            found += getattr(importlib.import_module(place), name, ())
    return tuple(found)
