"""docs/fio.md is true: it explains the options and engines that the code has.

`python tests/docs/test_fio_guide.py` updates the tables that follow from the code alone.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from iosonde.interop.fio import options
from iosonde.study.workload.block import BlockParameters

PAGE = Path(__file__).parents[2] / "docs/fio.md"


def code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in re.split("[ /]", names))


def noted() -> list[str]:
    rows = [f"| {code(names)} | {text} |" for names, text in options.NOTED.items()]
    return ["| options | note |", "|---|---|", *rows]


def rare() -> list[str]:
    return [f"{code(options.RARE)}.", "", f"Of fio's engines: {code(options.OF_ENGINES)}."]


def engines() -> list[str]:
    rows = [f"| {code(names)} | {backend_of(names)} | {found[1]} |" for names, found in options.ENGINES.items()]
    return ["| fio's engine | backend | |", "|---|---|---|", *rows]


def backend_of(names: str) -> str:
    backend, _ = options.ENGINES[names]
    buffered = "; `sync` with `direct=0`, one at a time" if names == "libaio" else ""
    return f"`{backend}`{buffered}" if backend else "left out"


GENERATED = {"noted": noted, "rare": rare, "engines": engines}


def table(name: str) -> list[str]:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].strip().splitlines()


@pytest.mark.parametrize("name", GENERATED)
def test_the_table_is_that_of_the_code(name: str) -> None:
    assert table(name) == GENERATED[name]()


@pytest.mark.parametrize(("name", "of_code"), [("carried", options.CARRIED), ("needless", options.NEEDLESS)])
def test_every_option_that_is_carried_over_or_needless_is_explained(name: str, of_code: str) -> None:
    rows = [row.strip("| ").split(" | ") for row in table(name)[2:]]
    assert ", ".join(names for names, _ in rows) == code(of_code)
    assert all(explanation for _, explanation in rows)


def test_parameters_that_options_become_exist() -> None:
    explanations = " ".join(row.split(" | ")[1] for row in table("carried")[2:])
    named = set(re.findall(r"`([a-z_]+)(?: =[^`]*)?`", explanations))
    values = {"strided", "split", "constant", "poisson", "i", *options.NAMES}
    assert named - values <= set(BlockParameters.model_fields)


def test_no_option_stands_in_two_lists() -> None:
    lists = [options.CARRIED, options.NEEDLESS, *options.NOTED, options.RARE, options.OF_ENGINES]
    names = [name for written in lists for name in re.split("[ /]", written)]
    assert [name for name, found in groupby(sorted(names)) if len(list(found)) > 1] == []


def write() -> None:
    text = PAGE.read_text()
    for name, lines in GENERATED.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(["", *lines(), "", ""]) + end + rest.partition(end)[2]
    PAGE.write_text(text)


if __name__ == "__main__":
    write()
