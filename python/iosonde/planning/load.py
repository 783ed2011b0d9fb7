"""Read a study file and check everything about it that can be known without a target."""

from __future__ import annotations

from pathlib import Path

from iosonde.errors import StudyError
from iosonde.metrics.registry import METRICS, declare
from iosonde.planning.procedure import condition, kind_of, kinds
from iosonde.results.frames import RESERVED
from iosonde.study import workload as workloads
from iosonde.study.load import Keys, StudyFile, located, read, read_text, validate
from iosonde.study.model import Parameters, Study


def load(name_or_path: str | Path) -> Study:
    """The study of that name that comes with iosonde, or in that file."""
    return _checked(read(name_or_path))


def parse(text: str, *, name: str = "") -> Study:
    """A study from its text; errors refer to it as `name`."""
    return _checked(read_text(text, name=name))


def _checked(source: StudyFile) -> Study:
    study = validate(source)
    _check_procedures(study, source)
    if workloads.named(study.workload).io == "command":
        _declare_metrics(study, source)
    streams = {part.name: part.stream_names for part in study.parts}
    for index, requirement in enumerate(study.requirement):
        with located(source.where("requirement", index, "holds")):
            condition.parse(requirement.holds, streams=streams[requirement.part])
    return study


def _declare_metrics(study: Study, source: StudyFile) -> None:
    """Declare the metrics that a study of commands names; none may have the name of another metric or column."""
    layers: list[tuple[Keys, Parameters]] = [(("measurement",), study.measurement)]
    layers += [(("parts", index, "measurement"), part.measurement) for index, part in enumerate(study.parts)]
    for place, layer in layers:
        named = workloads.named(study.workload).read_value("metrics", layer.get("metrics", {}))
        for name in named:
            if name in METRICS or name in RESERVED:
                raise StudyError(
                    f"`{name}` is reserved and cannot be the name of a command metric",
                    where=source.where(*place, "metrics"),
                    hint=f"name it after its program, such as `fio_{name}`",
                )
        declare(named)
    if not any(layer.get("metrics") for _, layer in layers):
        raise StudyError(
            "the study must define at least one metric",
            where=source.where("measurement"),
            hint="write `[measurement.metrics.NAME]`",
        )


def _check_procedures(study: Study, source: StudyFile) -> None:
    """Raise `StudyError` for a procedure that cannot be carried out on any target."""
    for index, part in enumerate(study.parts):
        kind = kind_of(part)
        if not kind:
            continue
        with located(source.where("parts", index, kind)):
            workload = study.workload_of(part)
            if workload.io != "blocks" and not (kind == "search" and workload.scalable):
                raise StudyError(
                    f"`{kind}` requires block I/O; the study measures {workload.title}",
                    hint="name the levels to measure as a factor",
                )
            kinds()[kind].forecast(part, study)
