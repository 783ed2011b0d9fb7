"""docs/python.md is generated from the public names of the package; running this file writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import iosonde

PAGE = Path(__file__).parents[2] / "docs/python.md"
START = """# Python

Generated from the docstrings of the package. `help(iosonde)` shows the same. Tables are [Polars](https://pola.rs) frames.

```pycon
>>> import iosonde
>>> results = iosonde.run("quick", target="sim:p900", profile="quick", output="p900", progress=False)
>>> results.findings[1].sentence
'4 KiB random reads: 556 k IOPS at queue depth 16 (95 % CI ±0.1 %)'
>>> results.sql("SELECT queue_depth, iops, completion_latency_ns_p99 FROM cases WHERE part = 'random' AND read_fraction = 1")
shape: (4, 3)
┌─────────────┬──────────┬───────────────────────────┐
│ queue_depth ┆ iops     ┆ completion_latency_ns_p99 │
│ ---         ┆ ---      ┆ ---                       │
│ i64         ┆ f64      ┆ f64                       │
╞═════════════╪══════════╪═══════════════════════════╡
│ 1           ┆ 100195.0 ┆ 10328.0                   │
│ 4           ┆ 397320.0 ┆ 11480.0                   │
│ 16          ┆ 555557.5 ┆ 31408.0                   │
│ 64          ┆ 555555.0 ┆ 117952.0                  │
└─────────────┴──────────┴───────────────────────────┘
```

`print(results)` shows what `iosonde run` prints.
"""


def lines() -> Iterator[str]:
    yield START
    for name in ("run", "load"):
        yield from entry(f"iosonde.{name}", getattr(iosonde, name), level=2)
    yield f"## iosonde.ResultSet\n\n{text(iosonde.ResultSet)}\n"
    for name, member in vars(iosonde.ResultSet).items():
        if not name.startswith("_") and name in PUBLIC:
            yield from entry(name, member, level=3)
    yield f"## iosonde.IosondeError\n\n{text(iosonde.IosondeError)}\n"


PUBLIC = (
    *("findings", "figures", "metrics", "case_metrics", "cases", "runs", "jobs", "intervals", "histograms", "usage"),
    *("warnings", "evidence", "faults", "sql", "export", "records", "record", "only", "missing_runs", "problems"),
    *("simulated", "environments", "connect"),
)


def entry(name: str, member: Any, *, level: int) -> Iterator[str]:
    function = getattr(member, "fget", None) or member
    yield f"{'#' * level} {name}\n"
    if not isinstance(member, property):
        yield f"```text\n{name.rpartition('.')[2]}{signature(function)}\n```\n"
    yield f"{text(function)}\n"


def signature(function: Any) -> str:
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    written, keyword_only = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            written.append("*")
            keyword_only = True
        # Annotations are texts, and so appear in quotes; a default that is a text keeps its own.
        declared = str(each.replace(default=each.empty)).replace("'", "")
        written.append(declared if each.default is each.empty else f"{declared} = {each.default!r}")
    result = str(inspect.signature(function).return_annotation).replace("'", "")
    one_line = f"({', '.join(written)}) -> {result}"
    return one_line if len(one_line) < 90 else "(\n    " + ",\n    ".join(written) + f",\n) -> {result}"


def text(documented: Any) -> str:
    paragraphs = inspect.cleandoc(documented.__doc__ or "").split("\n\n")
    return "\n\n".join(re.sub(r"\s*\n\s*", " ", paragraph) for paragraph in paragraphs)


def page() -> str:
    return "\n".join(lines()).rstrip() + "\n"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run `python tests/docs/test_python_reference.py`"


if __name__ == "__main__":
    PAGE.write_text(page())
