"""Limits of control groups, as both versions write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.storage.block_layer import cgroup_limits
from iosonde.storage.block_layer.cgroup_limits import controls, limits


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Path]]:
    """The groups that this process is in, by hierarchy: its own and its ancestors."""
    own = {"blkio": [tmp_path / "v1/own", tmp_path / "v1"], "": [tmp_path / "v2/own", tmp_path / "v2"]}
    for directories in own.values():
        directories[0].mkdir(parents=True)
    monkeypatch.setattr(cgroup_limits, "_groups", lambda controller: own[controller])
    return own


def test_limits_of_version_1_count_also_of_an_ancestor(groups: dict[str, list[Path]]) -> None:
    own, root = groups["blkio"]
    (own / "blkio.throttle.read_iops_device").write_text("8:0 100\n259:0 2000\n")
    (root / "blkio.throttle.write_bps_device").write_text("259:0 1048576\n")
    assert limits("259:0") == ["read_iops_device 2000", "write_bps_device 1048576"]
    assert limits("8:16") == []


def test_limits_of_version_2_count_where_they_are_not_max(groups: dict[str, list[Path]]) -> None:
    own, _ = groups[""]
    (own / "io.max").write_text("259:0 rbps=max wbps=1048576 riops=2000 wiops=max\n")
    assert limits("259:0") == ["wbps=1048576", "riops=2000"]


def test_latency_targets_and_cost_models_are_settings_and_no_limits(groups: dict[str, list[Path]]) -> None:
    own, root = groups[""]
    (own / "io.latency").write_text("259:0 target=5000\n8:0 target=100\n")
    (root / "io.cost.qos").write_text("259:0 enable=1 ctrl=user rpct=95.00 rlat=2500\n")
    assert controls("259:0") == ["io.latency target=5000", "io.cost.qos enable=1 ctrl=user rpct=95.00 rlat=2500"]
    assert limits("259:0") == []


def test_this_process_is_in_some_group_or_none_and_nothing_fails() -> None:
    assert isinstance(limits("254:0"), list)
