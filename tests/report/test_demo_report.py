"""The demo's report: strong claims from a quiet machine, modest ones from a busy one.

The study of `make demo` is planned as for a disk; what the runs found is fabricated, as no test can make a machine quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fabricate import result_set

from iosonde.plan import Run
from iosonde.planning import expand, load
from iosonde.report import as_text, write
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict
from iosonde.storage import open_target

pytestmark = pytest.mark.engine


def quiet(run: Run) -> RecordVerdict:
    return RecordVerdict(kind="device-limited", because=["I/Os were in flight 99 % of the time"], evidence={})


def busy(run: Run) -> RecordVerdict:
    """Two repeats of three wait for a CPU."""
    kind: Any = "device-limited" if run.repeat == 2 and not run.case_id.startswith("control") else "undetermined"
    return RecordVerdict(kind=kind, because=["a job was ready to run and had no CPU 52 % of the time"], evidence={})


def demo(directory: Path, verdict: Callable[[Run], RecordVerdict], *, calm: float = 1.0) -> ResultSet:
    (directory / "disk").mkdir()
    planned = expand(load("quick"), open_target(str(directory / "disk")), profile="quick")
    return result_set(directory / "set", planned, seconds=1, verdict=verdict, calm=calm)


def test_a_quiet_machine_gives_strong_claims(tmp_path: Path) -> None:
    results = demo(tmp_path, quiet, calm=0.2)
    [chapter] = collect([results]).chapters
    [(_, answer)] = chapter.answers
    assert "device-limited" in answer.trust.line and "lower bounds" not in answer.trust.line
    assert answer.summary[0].strength == "strong", answer.summary


def test_a_busy_machine_gives_no_strong_claim(tmp_path: Path) -> None:
    results = demo(tmp_path, busy)
    [chapter] = collect([results]).chapters
    [(_, answer)] = chapter.answers
    disturbed = sum(record.verdict.kind == "undetermined" for record in results.records() if record.verdict)
    total = len(results.records())
    assert 2 * disturbed > total
    assert answer.trust.line.startswith(
        f"{disturbed} of {total} runs were undetermined: results not attributable to the device"
    )
    claims = [each for each in answer.findings if each.topic != "quality"]
    assert claims and {each.strength for each in claims} <= {"weak", "moderate"}, claims
    assert {each.strength for each in answer.summary} == {"weak"}
    page, markdown = (
        write([results], tmp_path / f"report.{kind}", format=kind)[0].read_text() for kind in ("html", "md")
    )
    for text in (page, markdown, as_text(results)):
        answered = text[text.index(">Answer<" if text is page else "Answer") :].replace("\N{NO-BREAK SPACE}", " ")
        condition = answered.index("not attributable to the device")
        assert condition < answered.index(answer.summary[0].sentence[:20]), "the condition comes before the claims"
