"""Benchmarks run by hand: a name that moved must not wait for the next time that somebody runs one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))


@pytest.mark.parametrize("file", sorted(BENCH.glob("*.py")), ids=lambda file: file.stem)
def test_a_benchmark_finds_what_it_imports(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"bench_{file.stem}", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
