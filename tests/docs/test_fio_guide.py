"""docs/fio.md is true: its tables are those of the code.

`python tests/docs/test_fio_guide.py` updates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest

from iosonde.interop.fio.engines import ENGINES, Engine
from iosonde.interop.fio.options import OPTIONS, Fate, Option

PAGE = Path(__file__).parents[2] / "docs/fio.md"


def options_with(fate: Fate) -> list[Option]:
    return [option for option in OPTIONS if option.fate is fate]


def names(options: Iterable[Option]) -> str:
    return ", ".join(f"`{name}`" for option in options for name in (option.name, *option.aliases))


def carried() -> list[str]:
    rows = [f"| {names([option])} | {option.becomes} |" for option in options_with(Fate.CARRIED)]
    return ["| option | becomes |", "|---|---|", *rows]


def dropped() -> list[str]:
    groups = groupby(options_with(Fate.DROPPED), key=lambda option: (option.why, option.instead))
    rows = [f"| {names(options)} | {why} | {instead} |" for (why, instead), options in groups]
    return ["| options | why | instead |", "|---|---|---|", *rows]


def needless() -> list[str]:
    rows = [
        f"| {names(options)} | {why} |"
        for why, options in groupby(options_with(Fate.NEEDLESS), key=lambda each: each.why)
    ]
    return ["| options | why |", "|---|---|", *rows]


def backends(engine: Engine) -> str:
    buffered = f"; `{engine.buffered}` with `direct=0`, one at a time" if engine.buffered else ""
    return f"`{engine.backend}`{buffered}" if engine.backend else "left out"


def engines() -> list[str]:
    kinds = groupby(ENGINES.items(), key=lambda each: each[1])
    rows = [
        f"| {', '.join(f'`{name}`' for name, _ in found)} | {backends(engine)} | {engine.differs} |"
        for engine, found in kinds
    ]
    return ["| fio's engine | backend | |", "|---|---|---|", *rows]


TABLES = {"carried": carried, "dropped": dropped, "needless": needless, "engines": engines}


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_that_of_the_code(name: str) -> None:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1].strip().splitlines() == TABLES[name]()


def write() -> None:
    text = PAGE.read_text()
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(["", *table(), "", ""]) + end + rest.partition(end)[2]
    PAGE.write_text(text)


if __name__ == "__main__":
    write()
