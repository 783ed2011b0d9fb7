"""docs/commands.md lists parameters, placeholders, studies and failures as the code has them, and its example runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.data import adapters
from iosonde.execution import execute
from iosonde.features.external_commands.template import AT_START
from iosonde.plan import commands
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent
from iosonde.units import compact_duration, compact_size
from iosonde.workload import named

COMMAND = named("command")
GUIDE = (CHECKOUT / "docs/commands.md").read_text()


def default_text(name: str) -> str:
    value = COMMAND.parameters.model_fields[name].get_default(call_default_factory=True)
    if value is None:
        return "none"
    if name in COMMAND.durations:
        return compact_duration(value)
    return compact_size(value) if name in COMMAND.sizes else value if isinstance(value, str) else json.dumps(value)


def test_the_tables_are_those_of_the_code() -> None:
    for name, field in COMMAND.parameters.model_fields.items():
        assert f"| `{name}` | `{default_text(name)}` | {field.description} |" in GUIDE, name
    for name, text in AT_START.items():
        assert f"| `{{{name}}}` | {text} |" in GUIDE, name
    for name in adapters():
        assert f"| `{name}` | {load(name).title} |" in GUIDE


def test_the_failures_are_those_of_the_supervisor() -> None:
    sources = [file.read_text() for file in (CHECKOUT / "python/iosonde/supervisor").glob("*.py")]
    codes = set(re.findall(r'FailedError\(\s*"([a-z_]+)"', "".join(sources))) | {"killed", "crashed"}
    listed = set(re.findall(r"`([a-z_]+)`", " ".join(re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE))))
    assert codes - {"not_started", "not_killed", "io", "wrong_target"} <= listed


@pytest.mark.engine
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    [text] = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    (tmp_path / "target").mkdir()
    plan = expand(parse(text), open_target(str(tmp_path / "target")), repeats=1)
    result_set = execute(plan, tmp_path / "set", consent=Consent(commands=commands.commands_hash(plan)))
    assert [record.failure for record in result_set.records() if record.failure] == []
    values = result_set.sql("SELECT dd_seconds FROM runs")["dd_seconds"]
    assert len(values) == 2 and values.min() > 0  # type: ignore[operator]
