"""Consent to take an NVMe controller from the kernel: by PCI address and serial number, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import TargetError, UnsupportedError
from iosonde.execution import execute
from iosonde.execution.setups import ReadyTarget
from iosonde.features.nvme_driver import handover, preparations, probes
from iosonde.features.nvme_driver.handover import Controller
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.safety.consent import NO_CONSENT, Consent
from iosonde.storage.targets.device_target import DeviceTarget

CONTROLLER = Controller(address="0000:03:00.0", serial="S1", namespaces={"nvme1n1": "259:0", "nvme1n2": "259:1"})
STUDY = """
name = "driven"
title = "Driven"
question = "?"
repeats = 1

[measurement]
access = "random"
read_fraction = 1.0
block_size = "4KiB"
span = "64KiB"
ramp = 0
duration = "10min"
limit_operations = 4

[[parts]]
[parts.factors]
backend = BACKENDS

[profiles.standard]
"""


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> ReadyTarget:
    """A namespace of the controller, which could be handed over."""
    monkeypatch.setattr(handover, "controller_of", lambda number: CONTROLLER)
    monkeypatch.setattr(handover, "check", lambda controller, claimed: None)
    target = DeviceTarget(devices=(Path("/dev/nvme1n1"),), numbers=("259:0",), incarnations=("1",), hardware=("",))
    return ReadyTarget(target=target)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (Consent(destroy=("/dev/nvme1n1",)), "--destroy 0000:03:00.0 --confirm S1"),
        (Consent(destroy=("0000:03:00.0",)), "--confirm S1"),
        (Consent(confirm=("S1",)), "--destroy 0000:03:00.0"),
        (Consent(destroy=("0000:03:00.1",), confirm=("S1",)), "--destroy 0000:03:00.0"),
        (Consent(destroy=("0000:03:00.0",), confirm=("S2",)), "--confirm S1"),
    ],
)
def test_a_controller_needs_consent_by_address_and_serial_number(
    given: Consent, missing: str, ready: ReadyTarget
) -> None:
    with pytest.raises(
        UnsupportedError, match=r"takes the NVMe controller at 0000:03:00.0 .* `nvme1n1`, `nvme1n2`"
    ) as found:
        preparations.check(ready, given)
    assert found.value.hint == f"to allow it, add {missing}"
    assert found.value.where == "serial S1"


def test_with_both_it_is_allowed(ready: ReadyTarget) -> None:
    preparations.check(ready, Consent(destroy=("0000:03:00.0",), confirm=("S1",)))


def test_a_controller_in_use_is_refused_with_any_consent(ready: ReadyTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(controller: Controller, claimed: str) -> None:
        raise UnsupportedError("`nvme1n2` is mounted")

    monkeypatch.setattr(handover, "check", refuse)
    with pytest.raises(UnsupportedError, match="mounted"):
        preparations.check(ready, Consent(destroy=("0000:03:00.0",), confirm=("S1",)))


def plan_on(directory: Path, backends: str) -> Any:
    return expand(parse(STUDY.replace("BACKENDS", backends)), open_target(str(directory)))


@pytest.mark.engine
def test_a_study_that_needs_the_driver_in_all_runs_is_refused_on_a_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="needs one NVMe namespace as the target"):
        execute(plan_on(tmp_path, '["nvme_user"]'), tmp_path / "set", consent=NO_CONSENT)
    assert not (tmp_path / "set").exists()


@pytest.mark.engine
def test_in_a_comparison_such_runs_are_unsupported_and_the_others_complete(tmp_path: Path) -> None:
    records = execute(plan_on(tmp_path, '["sync", "nvme_user"]'), tmp_path / "set").records()
    ended = {record.parameters["backend"]: record for record in records}
    assert ended["sync"].outcome == "complete"
    assert ended["nvme_user"].is_unsupported
    assert ended["nvme_user"].failure is not None
    assert "needs one NVMe namespace as the target" in ended["nvme_user"].failure.message


def test_the_probe_states_why_a_directory_has_no_user_level_driver(tmp_path: Path) -> None:
    found = probes._probe(tmp_path)
    assert not found.is_available
    assert "not a namespace of an NVMe drive" in found.reason
