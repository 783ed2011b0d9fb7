"""A spec with nonsense anywhere in it is refused in words, or carried out; the engine never falls over it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

from engines import real_engine
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import null_spec

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


@settings(max_examples=60)
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


def test_a_spec_that_breaks_off_is_refused_in_words() -> None:
    text = json.dumps(SPEC)
    for end in range(0, len(text), len(text) // 20):
        done = subprocess.run([real_engine()], input=text[:end], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert json.loads(done.stdout)["code"] == "invalid_spec"
