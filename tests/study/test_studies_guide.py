"""docs/studies.md is correct: its study runs unchanged, and its tables match the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from command_line import CHECKOUT, Iosonde
from parameter_texts import descriptions

from iosonde.findings import questions
from iosonde.plan import Setup
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.study.model import Derived, Profile, Reference, Search, View, ViewKind
from iosonde.study.setup import MODELS, SETUP_NAMES
from iosonde.study.workload.block import BLOCK
from iosonde.units import compact_duration, compact_size

GUIDE = (CHECKOUT / "docs/studies.md").read_text()
TOML = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
CONSOLE = re.findall(r"^```console\n\$ iosonde (.*?)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_pieces_together_are_a_study_that_can_be_planned() -> None:
    study = parse("".join(TOML))
    for profile in study.profiles:
        cases = [case.case_id for case in expand(study, open_target("null:1TiB"), profile=profile).cases]
        assert "depth/queue_depth=1/mix=70-30" in cases
        assert "depth/queue_depth=16/mix=reads only" not in cases


def test_the_pieces_on_arrays_and_procedures_can_be_planned() -> None:
    (arrays,) = re.findall(r"^```toml of a study for several devices\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    plan = expand(parse(TOML[0] + arrays + "[profiles.quick]\n"), open_target("sim:p900*8"), profile="quick")
    assert "arrays/array=raid5/devices=4" in [case.case_id for case in plan.cases]
    (part,) = re.findall(r"^```toml of a part with a procedure\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    [case] = expand(parse(TOML[0] + part + "[profiles.quick]\n"), open_target("null:1TiB"), profile="quick").cases
    assert case.procedure
    assert case.procedure.settings["drain_s"] == 600


def test_commands_print_the_output_in_the_guide(iosonde: Iosonde, tmp_path: Path) -> None:
    """A line with nothing but three dots stands for any number of lines."""
    assert CONSOLE
    for command, output in CONSOLE:
        (tmp_path / "mixed-tail.toml").write_text("".join(TOML))
        arguments = [str(tmp_path / word) if word.endswith(".toml") else word for word in command.split()]
        pattern = r"(?:.*\n)*?".join(re.escape(piece) for piece in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE))
        assert re.fullmatch(pattern, iosonde(*arguments, COLUMNS="80").stdout), command


def test_the_tables_of_parameters_and_setups_are_those_of_the_code() -> None:
    described = descriptions(BLOCK.parameters)
    rows = [
        f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {described[name]} |"
        for name, field in BLOCK.parameters.model_fields.items()
    ]
    assert "\n".join(["| parameter | default | meaning |", "|---|---|---|", *rows]) in GUIDE
    decided = dict.fromkeys(SETUP_NAMES) | Setup().model_dump() | {"devices": None, "mount_options": None}
    decided |= {"array": "single", "array_kind": "md", "array_state": "synced", "cache": "none", "cache_state": "cold"}
    rows = [
        f"| `{name}` | {_default(name, decided[name])} | {descriptions(MODELS[name])[name]} |" for name in SETUP_NAMES
    ]
    assert "\n".join(["| setup | default | meaning |", "|---|---|---|", *rows]) in GUIDE


def test_every_view_analysis_and_key_that_a_reader_may_use_is_mentioned() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE))
    assert {*get_args(ViewKind), *questions.names()} <= rows
    for model in (View, Reference, Profile, Search, Derived):
        # `repeats_until` is set by reading `repeats = "until"`, and no key of a study file.
        keys = [name for name in model.model_fields if name != "repeats_until"]
        assert [name for name in keys if not re.search(rf"\b{name}\b", GUIDE)] == []


def _default(name: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if name in BLOCK.sizes and isinstance(value, int):
        return f"`{compact_size(value)}`"
    if name in BLOCK.durations:
        return f"`{compact_duration(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
