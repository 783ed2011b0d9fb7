"""Records of format 1 have other names for the verdicts."""

from __future__ import annotations

import pytest

from iosonde.results.schema import RecordVerdict


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ("disk", "device-limited"),
        ("tool", "harness-limited"),
        ("cache", "cache-served"),
        ("unclear", "undetermined"),
        ("undetermined", "undetermined"),
    ],
)
def test_verdicts_of_older_records_are_renamed(recorded: str, kind: str) -> None:
    assert RecordVerdict.model_validate({"kind": recorded, "because": [], "evidence": {}}).kind == kind
