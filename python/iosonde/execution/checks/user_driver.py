"""Runs with the backend `nvme_user`: laid out through the kernel's driver, then carried out by the user-level driver.

The controller is handed over only while the engine's process runs (`storage/nvme/handover.py`), so everything else
around a run finds the device as usual. It is returned to the kernel however the run ends. Where the handover is
refused, the run is unsupported, and the record states the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.engine import EngineRun
from iosonde.execution.setups import ReadyTarget, Setups
from iosonde.plan import JsonObject, Plan, Run
from iosonde.storage import Target
from iosonde.storage.nvme import handover
from iosonde.storage.nvme.handover import Controller, HandoverError
from iosonde.storage.safety.consent import NO_CONSENT, Consent
from iosonde.storage.targets.device_target import DeviceTarget

BACKEND = "nvme_user"
_LAYOUT_NS = 100_000_000
_LAYOUT_BACKEND = {
    "kind": "uring",
    "registered_files": True,
    "registered_buffers": True,
    "submission_polling": False,
    "completion_polling": False,
}


def is_driven(spec: JsonObject) -> bool:
    """Whether the engine of a spec drives the device itself."""
    return bool((spec["workload"].get("backend") or {}).get("kind") == BACKEND)


def require_consent(plan: Plan, target: Target, consent: Consent) -> None:
    """Refuse a plan that needs the user-level driver in all runs, unless the user allowed it to take the controller.

    In other plans these runs are unsupported.
    """
    if all(is_driven(spec) for spec in plan.specs()):
        _check_consent(_controller(target), consent)


def check(ready: ReadyTarget, consent: Consent) -> None:
    """`HandoverError` if the controller of a target must not be handed over, or the user did not allow it."""
    target = ready.target
    controller = _controller(target)
    handover.check(controller, claimed=_number(target))
    _check_consent(controller, consent)


def _check_consent(controller: Controller, consent: Consent) -> None:
    needed = missing_options(controller, consent)
    if not needed:
        return
    names = ", ".join(f"`{name}`" for name in controller.namespaces)
    raise HandoverError(
        f"the backend `{BACKEND}` takes the NVMe controller at {controller.address} from the kernel, with {names}",
        where=f"serial {controller.serial}",
        hint=f"to allow it, add {needed}",
    )


def missing_options(controller: Controller, consent: Consent = NO_CONSENT) -> str:
    """Options that are still missing before a controller may be handed over; empty if none."""
    words = [] if controller.address in consent.destroy else [f"--destroy {controller.address}"]
    if controller.serial not in consent.confirm:
        words.append(f"--confirm {controller.serial}")
    return " ".join(words)


def lay_out(run: Run, ready: ReadyTarget, setups: Setups, step: Callable[[ReadyTarget, JsonObject], EngineRun]) -> Run:
    """Lay out now, through the kernel, what the run would lay out; `TargetError` if that fails."""
    workload = run.spec["workload"]
    if workload.get("layout") not in ("missing", "always"):
        return run
    streams = [_short(stream) for stream in workload["streams"]]
    spec = {
        **run.spec,
        "workload": {**workload, "backend": _LAYOUT_BACKEND, "streams": streams, "duration_ns": _LAYOUT_NS}
        | {"ramp": {**workload["ramp"], "duration_ns": 0}},
    }
    done = step(ready, spec)
    if done.failure:
        raise TargetError(
            f"the device could not be laid out: {done.failure.message}",
            where=done.failure.context,
            hint=done.failure.hint,
        )
    setups.ended(run, complete=True)
    return run.model_copy(update={"spec": {**run.spec, "workload": {**workload, "layout": "never"}}})


@contextmanager
def handed_over(spec: JsonObject, ready: ReadyTarget, consent: Consent) -> Iterator[tuple[JsonObject, ReadyTarget]]:
    """The spec and target of an engine that drives the device; `HandoverError` if that is refused."""
    if not is_driven(spec):
        yield spec, ready
        return
    check(ready, consent)
    target = ready.target
    assert isinstance(target, DeviceTarget)
    number = _number(target)
    controller = handover.controller_of(number)
    place = {
        "address": controller.address,
        "serial": controller.serial,
        "namespace": _namespace_number(number),
    }
    handover.hand_over(controller, target.claims, own=target.own)
    try:
        yield _with_place(spec, place), replace(ready, claims=(), identities={})
    finally:
        handover.give_back(controller)
        target.returned(number)


def _with_place(spec: JsonObject, place: dict[str, Any]) -> JsonObject:
    """The spec with the controller; the namespace has no counters of the kernel during the run."""
    workload = spec["workload"]
    backend = {**workload["backend"], "device": place}
    return {**spec, "workload": {**workload, "backend": backend}, "observe": {**spec["observe"], "block_devices": []}}


def _short(stream: JsonObject) -> JsonObject:
    """A stream that reads a little after the layout."""
    only_reads = {"read_fraction": 1.0, "trim_fraction": 0.0}
    return {**stream, "mix": only_reads, "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "active": None}


def _namespace_number(number: str) -> int:
    return int(Path("/sys/dev/block", number, "nsid").read_text(encoding="utf-8"))


def _controller(target: Target) -> Controller:
    return handover.controller_of(_number(target))


def _number(target: Target) -> str:
    if not isinstance(target, DeviceTarget) or target.device_count() != 1:
        raise HandoverError(
            f"the backend `{BACKEND}` needs one NVMe namespace as the target, and `{target.name}` is none",
            hint="name one as `/dev/nvme0n1`",
        )
    return target.numbers[0]
