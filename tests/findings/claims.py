"""Claims of sentences, read off the text by code that the findings do not share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from iosonde.findings.finding import Finding

SCALES = {
    **{"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "%": 0.01, "": 1.0, "k": 1e3, "M": 1e6},
    **{"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    **{"k/s": 1e3, "M/s": 1e6},
}
NUMBER = re.compile(
    r"(?<![\w.`])(\d[\d,]*(?:\.\d+)?)(?: (ns|µs|ms|s|min|h|%|[kMG]?B/s|[KMG]iB|B|[kM]/s|k|M)(?![\w/]))?"
)
RANGE = re.compile(r"(\d[\d,.]*)–(\d[\d,.]*)( %)")
QUOTED = re.compile(r"`[^`]*`")
INTERVAL = re.compile(r" \(95 % CI [^)]*\)")
MARGIN = 1.05


@dataclass
class Claim:
    """A finding, all numbers that its sentence may contain, and what must be true of the text."""

    finding: Finding
    numbers: Sequence[float]
    holds: bool = True
    """True if relations that do not depend on the wording of numbers hold."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """Of a pooled ratio: words for each cell, and its ratio."""

    def is_true(self, sentence: str | None = None) -> bool:
        """Return True if the sentence, or one put in its place, is true."""
        text = INTERVAL.sub("", self.finding.sentence if sentence is None else sentence)
        if not self.holds or not all(known(value, self.numbers) for value in quantities(text)):
            return False
        return not self.ratios or pooled_holds(text, self.ratios)


def quantities(text: str) -> list[tuple[float, float]]:
    """Return every number of a text in base units, with the value of a step of its last digit."""
    found = []
    for number, unit in NUMBER.findall(RANGE.sub(r"\1\3 to \2\3", QUOTED.sub("", text))):
        decimals = len(number.partition(".")[2])
        found.append((float(number.replace(",", "")) * SCALES[unit], 10.0**-decimals * SCALES[unit]))
    return found


def known(quantity: tuple[float, float], numbers: Iterable[float]) -> bool:
    """Return True if a number is one of these, rounded to the digits that are written."""
    value, step = quantity
    return any(abs(value - each) <= 0.51 * step or math.isclose(value, each, rel_tol=0.0051) for each in numbers)


OPPOSED = re.compile(
    r"higher in (\d+) and lower in (\d+) of (\d+) cells, from ([\d.]+) times with (.+?) to ([\d.]+) times with (.+?)"
    r"(?=$|[;(]| \(|, (?:compared|half|swap))"
)


def pooled_holds(text: str, ratios: Mapping[str, float]) -> bool:
    """Return True if a sentence about a ratio over cells is true of the cells."""
    values = list(ratios.values())
    above, below = sum(each > MARGIN for each in values), sum(each < 1 / MARGIN for each in values)
    if found := OPPOSED.search(text):
        counts = (int(found[1]), int(found[2]), int(found[3]))
        return (
            counts == (above, below, len(values))
            and (ratios.get(found[5]), ratios.get(found[7])) == (min(values), max(values))
            and all(known(quantities(number)[0], [end(values)]) for number, end in ((found[4], min), (found[6], max)))
        )
    if above and below:
        return False  # Opposite effects are named as such.
    mean = math.exp(sum(map(math.log, values)) / len(values))
    if re.search("as fast as|does not change|equal", text):
        return 1 / MARGIN <= mean <= MARGIN
    rises, falls = (re.search(words, text) is not None for words in (r"\braises\b", r"\blowers\b"))
    return not (rises and mean < 1) and not (falls and mean > 1)
