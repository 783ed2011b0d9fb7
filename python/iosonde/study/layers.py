"""Parameters of a case as a study writes them, layer over layer: measurement, part, stream, levels."""

from __future__ import annotations

from collections.abc import Mapping

from iosonde import workload as workloads
from iosonde.study.model import Level, Parameters, Part, Scalar, Study
from iosonde.study.setup import without as without_setup
from iosonde.workload.workload import Workload


def streams_of(
    study: Study, part: Part, levels: Mapping[str, Scalar | Level], decided: Parameters
) -> dict[str, Parameters]:
    """Parameters of each stream, as written, in the order in which later ones win; last what a procedure decides."""
    chosen = {**_chosen(workloads.named(study.workload_of(part)), levels), **decided}
    streams = {stream.name: stream.set for stream in part.streams} or {"main": {}}
    layers = {
        stream: {
            **_of_study(study, part),
            **_plain(part.measurement),
            **own,
            **_of_stream(part.measurement, stream),
            **_plain(chosen),
            **_of_stream(chosen, stream),
        }
        for stream, own in streams.items()
    }
    return {stream: without_setup(parameters) for stream, parameters in layers.items()}


def whole_case(study: Study, part: Part, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Parameters that belong to no stream, as written, in the order in which later ones win."""
    chosen = _chosen(workloads.named(study.workload_of(part)), levels)
    return {**_of_study(study, part), **_plain(part.measurement), **_plain(chosen)}


def _of_study(study: Study, part: Part) -> Parameters:
    """The study's parameters as far as the part has them: none of another workload."""
    return study.measurement if part.workload in (None, study.workload) else {}


def _chosen(workload: Workload, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Return the parameters of a combination of levels."""
    chosen: Parameters = {}
    for name, level in levels.items():
        chosen |= level.set if isinstance(level, Level) else {name: _as_written(workload, name, level)}
    return chosen


def _as_written(workload: Workload, factor: str, level: Scalar) -> Scalar:
    """A level that was read is plain nanoseconds, which a study may not write."""
    return f"{level}ns" if factor.rpartition(".")[2] in workload.durations and isinstance(level, int) else level


def _plain(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if "." not in name}


def _of_stream(parameters: Parameters, stream: str) -> Parameters:
    prefix = f"{stream}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
