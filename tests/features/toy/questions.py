"""The largest mark of a study."""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.findings.finding import Finding
from iosonde.findings.question import Question, QuestionKind


class LargestMark(Finding, kind="toy_mark", topic="scaling"):
    largest: float

    def _sentence(self) -> str:
        return f"The largest mark squared is {self.largest:.0f}"

    def _evidence(self) -> str:
        return "read during each run"


def find(question: Question) -> Iterator[Finding]:
    values = [value for repeats in question.cells()["values"] for value in repeats]
    yield LargestMark(largest=max(values), strength="strong", part=question.part.name)


KINDS = (QuestionKind("toy_mark", find),)
