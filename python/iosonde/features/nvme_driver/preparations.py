"""Runs with the backend `nvme_user`: laid out through the kernel's driver, then carried out by the user-level driver.

The controller is handed over only while the engine's process runs, so everything else around a run finds the device as
usual. It is returned to the kernel however the run ends. Where the handover is refused, the run is unsupported, and the
record states the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.execution.preparation import Workbench
from iosonde.execution.setups import ReadyTarget
from iosonde.features.nvme_driver import handover
from iosonde.features.nvme_driver.consent import is_driven, number_of, require
from iosonde.features.nvme_driver.handover import Controller
from iosonde.plan import Case, JsonObject, Run
from iosonde.storage.safety.consent import Consent
from iosonde.storage.targets.device_target import DeviceTarget

_LAYOUT_NS = 100_000_000
_LAYOUT_BACKEND = {
    "kind": "uring",
    "registered_files": True,
    "registered_buffers": True,
    "submission_polling": False,
    "completion_polling": False,
}


def check(ready: ReadyTarget, consent: Consent) -> Controller:
    """Return the controller of a target; `UnsupportedError` if it must not be handed over, or without consent."""
    number = number_of(ready.target)
    controller = handover.controller_of(number)
    handover.check(controller, claimed=number)
    require(controller, consent)
    return controller


def _lay_out(run: Run, case: Case, ready: ReadyTarget, bench: Workbench) -> tuple[Run, ReadyTarget]:
    """Lay out now, through the kernel, what the run would lay out."""
    workload = run.spec["workload"]
    if not is_driven(run.spec):
        return run, ready
    check(ready, bench.consent)
    if workload.get("layout") not in ("missing", "always"):
        return run, ready
    changes = {
        "backend": _LAYOUT_BACKEND,
        "streams": [_short(stream) for stream in workload["streams"]],
        "duration_ns": _LAYOUT_NS,
        "ramp": {**workload["ramp"], "duration_ns": 0},
    }
    done = bench.drive(ready, {**run.spec, "workload": {**workload, **changes}})
    if done.failure:
        raise TargetError(
            f"the device could not be laid out: {done.failure.message}",
            where=done.failure.context,
            hint=done.failure.hint,
        )
    bench.setups.ended(run, complete=True)
    return run.model_copy(update={"spec": {**run.spec, "workload": {**workload, "layout": "never"}}}), ready


@contextmanager
def handed_over(spec: JsonObject, ready: ReadyTarget, consent: Consent) -> Iterator[tuple[JsonObject, ReadyTarget]]:
    """Yield the spec and target of an engine that drives the device; `UnsupportedError` if that is refused."""
    if not is_driven(spec):
        yield spec, ready
        return
    controller, target, number = check(ready, consent), ready.target, number_of(ready.target)
    assert isinstance(target, DeviceTarget)
    place = {
        "address": controller.address,
        "serial": controller.serial,
        "namespace": int(Path("/sys/dev/block", number, "nsid").read_text(encoding="utf-8")),
    }
    handover.hand_over(controller, target.claims, own=target.own)
    try:
        yield _with_place(spec, place), replace(ready, claims=(), identities={})
    finally:
        handover.give_back(controller)
        target.returned(number)


def _with_place(spec: JsonObject, place: JsonObject) -> JsonObject:
    """Return the spec with the controller; the namespace has no counters of the kernel during the run."""
    workload = spec["workload"]
    backend = {**workload["backend"], "device": place}
    return {**spec, "workload": {**workload, "backend": backend}, "observe": {**spec["observe"], "block_devices": []}}


def _short(stream: JsonObject) -> JsonObject:
    """Return a stream that reads a little after the layout."""
    only_reads = {"read_fraction": 1.0, "trim_fraction": 0.0}
    return {**stream, "mix": only_reads, "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "active": None}


PREPARATIONS = (_lay_out,)
ENCLOSURES = (handed_over,)
