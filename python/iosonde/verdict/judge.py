"""Rules by which a run is judged where the engine does not see the I/O of a load, or cannot tell what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iosonde.core.features import contributed
from iosonde.results.schema import Record
from iosonde.verdict.evidence import Total
from iosonde.verdict.server import judge_server
from iosonde.verdict.verdict import Verdict


@dataclass(frozen=True)
class Judge:
    """Rules of a workload: of a feature in `JUDGES` of its `verdict.py`."""

    rules: str
    """Their name in `Workload.rules`."""
    judge: Callable[[Record, Sequence[Total], int], Verdict | None]
    """From a record with a result, the sums of its operations and the number of CPUs; None without evidence."""


def judge_of(rules: str) -> Judge:
    """The rules of that name, other than `evidence`."""
    of_server = Judge("server", lambda record, totals, cpus: judge_server(record, cpus=cpus))
    return next(each for each in (of_server, *contributed("verdict", "JUDGES", Judge)) if each.rules == rules)
