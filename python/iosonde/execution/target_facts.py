"""The description of a target for records, and the check that a resumed study still runs on the same one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Plan, Run
from iosonde.results.result_set import ResultSet
from iosonde.storage import Target, open_target


def describe(target: Target) -> dict[str, Any]:
    """The target as it is now; for a target that has vanished, the error."""
    try:
        return target.describe()
    except (OSError, TargetError) as error:
        return {"name": target.name, "kind": target.kind, "problem": str(error)}


def describe_log(run: Run) -> dict[str, Any]:
    """The second targets with the log and the read cache of a store, if there are any."""
    target = run.spec["workload"].get("target", {})
    found = {"log": target.get("log_path"), "read_cache": (target.get("read_cache") or {}).get("path")}
    return {name: describe(open_target(str(Path(path).parents[1]))) for name, path in found.items() if path}


def check_same_target(plan: Plan, result_set: ResultSet, now: dict[str, Any]) -> None:
    """Raise `TargetError` if earlier records were made on another target: their results cannot be combined."""
    for record in (each for each in result_set.records() if plan.case_of(each.run_id)):
        before = _identity(record.setup.get("target", record.target))
        changed = [name for name, value in _identity(now).items() if name in before and before[name] != value]
        if changed:
            name = changed[0]
            raise TargetError(
                f"`{plan.target}` has changed: its {name} is {_identity(now)[name]}, and was "
                f"{before[name]} in run `{record.run_id}`",
                where=f"in the result set `{result_set.directory}`",
                hint="restore the former target, or start a new study with `iosonde run`",
            )


def _identity(target: dict[str, Any]) -> dict[str, str]:
    """Facts that identify a target, by name as shown in errors."""
    system, devices = target.get("file_system", {}), target.get("devices", [])
    facts = {
        "file system": system.get("kind"),
        # Device names change from boot to boot; the source identifies a target only without a device, as with NFS.
        "source": None if devices else system.get("source"),
        "device": _joined(devices, "model", "name"),
        "device's serial number (hashed)": _joined(devices, "serial_hash"),
        "device's size in bytes": _joined(devices, "size_bytes"),
    }
    return {name: f"`{value}`" for name, value in facts.items() if value}


def _joined(devices: list[dict[str, Any]], *names: str) -> str:
    """The first of these facts that each device has."""
    found = (next((str(device[name]) for name in names if device.get(name)), "") for device in devices)
    return ", ".join(filter(None, found))
