"""Specs and events between Python and the engine: their types, refusals in words, and nonsense anywhere in a spec."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import clients_engine, real_engine
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import null_spec

from iosonde.engine import protocol


@pytest.mark.system
def test_the_schema_checked_in_is_the_one_that_the_engine_prints(tmp_path: Path) -> None:
    printed = tmp_path / "schema.json"
    subprocess.run(
        [sys.executable, CHECKOUT / "scripts/generate-protocol", "--output", printed],
        env={
            **os.environ,
            "IOSONDE_ENGINE": str(real_engine()),
            "IOSONDE_ENGINE_CLIENTS": str(clients_engine()),
        },
        check=True,
    )
    checked_in = Path(protocol.__file__).with_name("schema.json").read_text()
    assert printed.read_text() == checked_in, "run `make protocol` after a change of crates/protocol"
    assert protocol.schema()["protocol"] == protocol.VERSION


NONSENSE = [None, True, -1, 0, 0.5, 1e308, 2**64, "", "x", [], [[]], {}, {"kind": "x"}]
MISSING = object()


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a spec, the whole of it first."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from paths(part, (*path, name))


def replaced(spec: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The spec with another value in one place, or without that place."""
    if not path:
        return None if value is MISSING else value
    changed = copy.deepcopy(spec)
    place = changed
    for name in path[:-1]:
        place = place[name]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


SPEC = null_spec("mangled", duration_ns=1_000_000)
PATHS = list(paths(SPEC))


@settings(max_examples=40)
@given(path=st.sampled_from(PATHS), value=st.sampled_from([MISSING, *NONSENSE]))
def test_nonsense_anywhere_is_refused_in_words_or_carried_out(path: tuple[Any, ...], value: Any) -> None:
    text = json.dumps(replaced(SPEC, path, value))
    done = subprocess.run([real_engine()], input=text, capture_output=True, text=True, timeout=300)
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr == ""
    if done.returncode == 0:
        assert last["event"] == "result"
    else:
        assert (done.returncode, last["event"], last["code"]) == (1, "error", "invalid_spec"), text
        assert last["message"]
        assert last["context"]
        assert last["hint"]
