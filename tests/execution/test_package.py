"""`iosonde.run` is a function for notebooks and a package for everybody else, whatever was imported first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plans import hand_plan

import iosonde
from iosonde.results import ResultSet


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_loads_nothing_heavy_by_itself() -> None:
    heavy = "{'polars', 'duckdb', 'pydantic', 'rich', 'numpy', 'typer'}"
    assert python(f"import sys, iosonde; print({heavy} & set(sys.modules))") == "set()"


@pytest.mark.parametrize("first", ["", "import iosonde.execution.engine", "from iosonde.execution import execute"])
def test_run_can_be_called_and_imported_from(first: str) -> None:
    program = f"{first}\nimport iosonde; print(callable(iosonde.run), iosonde.execution.execute.__name__)"
    assert python(program) == "True execute"


def test_load_opens_a_result_set(tmp_path: Path) -> None:
    ResultSet.create(tmp_path / "set", hand_plan())
    assert repr(iosonde.load(tmp_path / "set")) == f"ResultSet('{tmp_path}/set', 0 of 4 runs)"


def test_the_public_names_exist() -> None:
    assert set(iosonde.__all__) <= set(dir(iosonde))
    for name in iosonde.__all__:
        assert callable(getattr(iosonde, name))
    assert not hasattr(iosonde, "nothing")
