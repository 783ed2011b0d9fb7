"""Runs with the backend `nvme_user`: laid out through the kernel's driver, then carried out by the user-level driver.

The controller is handed over only while the engine's process runs, so everything else around a run finds the device as
usual. It is returned to the kernel however the run ends. Where the handover is refused, the run is unsupported, and the
record states the reason.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from iosonde.errors import TargetError, UnsupportedError
from iosonde.execution.context import RunContext
from iosonde.execution.engine_programs import ProbedBackend
from iosonde.features.nvme_driver import handover
from iosonde.features.nvme_driver.backends import NAME
from iosonde.features.nvme_driver.handover import Controller
from iosonde.plan import JsonObject, Plan
from iosonde.storage import Target
from iosonde.storage.block_layer.block_nodes import number_of, sys_path
from iosonde.storage.safety.guard import NO_CONSENT, Consent
from iosonde.storage.targets.device_target import DeviceTarget


def is_driven(spec: JsonObject) -> bool:
    """Return True if the engine of a spec drives the device itself."""
    return bool((spec["workload"].get("backend") or {}).get("kind") == NAME)


def namespace_number(target: Target) -> str:
    """Return the device number of the namespace that is the target."""
    if not isinstance(target, DeviceTarget) or target.device_count() != 1:
        raise UnsupportedError(
            f"the backend `{NAME}` needs one NVMe namespace as the target, and `{target.name}` is none",
            hint="name one as `/dev/nvme0n1`",
        )
    return target.numbers[0]


def require(controller: Controller, consent: Consent) -> None:
    """`UnsupportedError` unless the user allowed taking this controller."""
    needed = missing_options(controller, consent)
    if needed:
        names = ", ".join(f"`{name}`" for name in controller.namespaces)
        raise UnsupportedError(
            f"the backend `{NAME}` takes the NVMe controller at {controller.address} from the kernel, with {names}",
            where=f"serial {controller.serial}",
            hint=f"to allow it, add {needed}",
        )


def missing_options(controller: Controller, consent: Consent = NO_CONSENT) -> str:
    """Return the options that are still missing before a controller may be handed over; empty if none."""
    words = [] if controller.address in consent.destroy else [f"--destroy {controller.address}"]
    if controller.serial not in consent.confirm:
        words.append(f"--confirm {controller.serial}")
    return " ".join(words)


def _require_for_plan(plan: Plan, target: Target, consent: Consent) -> None:
    """Refuse a plan that needs the user-level driver in all runs; in other plans these runs are unsupported."""
    if all(is_driven(spec) for spec in plan.specs()):
        require(handover.controller_of(namespace_number(target)), consent)


CONSENT = (_require_for_plan,)


def _probe(path: Path) -> ProbedBackend:
    """Return whether the controller of a namespace could be handed over."""
    try:
        if not stat.S_ISBLK(path.stat().st_mode):
            reason, hint = "the target is not a namespace of an NVMe drive", "name one as `/dev/nvme0n1`"
            return ProbedBackend(name=NAME, is_available=False, reason=reason, hint=hint)
        controller = handover.controller_of(number_of(path))
        handover.check(controller)
    except TargetError as error:
        return ProbedBackend(name=NAME, is_available=False, reason=error.what, hint=error.hint)
    except OSError as error:
        return ProbedBackend(name=NAME, is_available=False, reason=error.strerror or str(error))
    return ProbedBackend(
        name=NAME,
        is_available=True,
        note=f"takes the NVMe controller at {controller.address} from the kernel, with "
        f"{', '.join(controller.namespaces)}; its runs need {missing_options(controller)}",
    )


PROBES = (_probe,)


_LAYOUT_NS = 100_000_000
_LAYOUT_BACKEND = {
    "kind": "uring",
    "registered_files": True,
    "registered_buffers": True,
    "submission_polling": False,
    "completion_polling": False,
}


def check(target: Target, consent: Consent) -> Controller:
    """Return the controller of a target; `UnsupportedError` if it must not be handed over, or without consent."""
    number = namespace_number(target)
    controller = handover.controller_of(number)
    handover.check(controller, claimed=number)
    require(controller, consent)
    return controller


def _lay_out(context: RunContext) -> RunContext:
    """Lay out now, through the kernel, what the run would lay out."""
    workload = context.workload
    if not is_driven(context.run.spec):
        return context
    check(context.target, context.session.consent)
    if workload.get("layout") not in ("missing", "always"):
        return context
    changes = {
        "backend": _LAYOUT_BACKEND,
        "streams": [_short(stream) for stream in workload["streams"]],
        "duration_ns": _LAYOUT_NS,
        "ramp": {**workload["ramp"], "duration_ns": 0},
    }
    done = context.carry_out({**context.run.spec, "workload": {**workload, **changes}})
    if done.failure:
        raise TargetError(
            f"the device could not be laid out: {done.failure.message}",
            where=done.failure.context,
            hint=done.failure.hint,
        )
    return context.laid_out()


@contextmanager
def _while_handed_over(context: RunContext) -> Iterator[RunContext]:
    if not is_driven(context.run.spec):
        yield context
        return
    with handed_over(context.run.spec, context.target, context.session.consent) as spec:
        yield replace(context.with_spec(spec), claims=(), identities={})


@contextmanager
def handed_over(spec: JsonObject, target: Target, consent: Consent) -> Iterator[JsonObject]:
    """The spec of an engine that drives the device; `UnsupportedError` if that is refused."""
    controller, number = check(target, consent), namespace_number(target)
    assert isinstance(target, DeviceTarget)
    place = {
        "address": controller.address,
        "serial": controller.serial,
        "namespace": int((sys_path(number) / "nsid").read_text(encoding="utf-8")),
    }
    handover.hand_over(controller, target.claims, own=target.own)
    try:
        workload = spec["workload"] | {"backend": spec["workload"]["backend"] | {"device": place}}
        # The namespace has no counters of the kernel during the run.
        yield {**spec, "workload": workload, "observe": {**spec["observe"], "block_devices": []}}
    finally:
        handover.give_back(controller)
        target.returned(number)


def _short(stream: JsonObject) -> JsonObject:
    """Return a stream that reads a little after the layout."""
    only_reads = {"read_fraction": 1.0, "trim_fraction": 0.0}
    return {**stream, "mix": only_reads, "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "active": None}


PREPARATIONS = (_lay_out,)
ENCLOSURES = (_while_handed_over,)
