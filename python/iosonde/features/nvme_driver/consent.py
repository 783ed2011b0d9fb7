"""Consent to taking an NVMe controller from the kernel: its PCI address and its serial number."""

from __future__ import annotations

from iosonde.errors import UnsupportedError
from iosonde.features.nvme_driver import handover
from iosonde.features.nvme_driver.backends import NAME
from iosonde.features.nvme_driver.handover import Controller
from iosonde.plan import JsonObject, Plan
from iosonde.storage import Target
from iosonde.storage.safety.consent import NO_CONSENT, Consent
from iosonde.storage.targets.device_target import DeviceTarget


def is_driven(spec: JsonObject) -> bool:
    """Return True if the engine of a spec drives the device itself."""
    return bool((spec["workload"].get("backend") or {}).get("kind") == NAME)


def number_of(target: Target) -> str:
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
        require(handover.controller_of(number_of(target)), consent)


REQUIRED = (_require_for_plan,)
