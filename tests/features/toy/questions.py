"""The largest mark of a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question, QuestionKind


@dataclass(frozen=True, kw_only=True)
class LargestMark(Finding):
    """The largest square of a mark."""

    kind: ClassVar[str] = "toy_mark"
    topic: ClassVar[Topic] = "scaling"
    largest: float

    def _sentence(self) -> str:
        return f"The largest mark squared is {self.largest:.0f}"

    def _evidence(self) -> str:
        return "read during each run"


def find(question: Question) -> Iterator[Finding]:
    """Yield the largest value of the metric."""
    values = [value for repeats in question.cells()["values"] for value in repeats]
    yield LargestMark(largest=max(values), strength="strong", part=question.part.name)


KINDS = (QuestionKind("toy_mark", find),)
