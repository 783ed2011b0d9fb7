"""Names of earlier formats and the current ones: the one place where result sets of earlier versions are translated.

Plans and records are translated as JSON, before their types are checked. What already has its current name passes
unchanged, so a set may contain records of several formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RAMP = "warmup"
"""Former name of the phase `ramp` in the tables of a record."""

_VERDICTS = {
    "disk": "device-limited",
    "tool": "harness-limited",
    "cache": "cache-served",
    "unclear": "undetermined",
}
_WARNINGS = {"places_free": "queue_underutilized"}
_END_REASONS = {"it was steady": "steady", "the time given was over": "time_limit"}
_STATISTICS = {"statistics_at_begin": "statistics_at_start", "cached_bytes_at_begin": "cached_bytes_at_start"}
_SETUP = {"asked": "requested", "on": "target", "made_for": "created_for", "made_at": "created_at"}
_PREPARED = {"asked_hit_ratio": "requested_hit_ratio", "asked_dirty_bytes": "requested_dirty_bytes"}
_PLAN = {"own": "created_name"}
_PROCEDURE = {"most_runs": "max_runs"}
_PROCEDURES = {"found": "derived"}
_SEARCH = {"beside": "also_check", "beside_rule": "also_check_rule"}
_SETTINGS = {**_SEARCH, "found": "derived", "most": "max_rounds"}
_AGREE = {"most": "majority"}


def plan(content: Any) -> Any:
    """Return a plan of any format with the current names."""
    if not isinstance(content, dict):
        return content
    current = _renamed(content, _PLAN)
    if isinstance(current.get("study"), dict):
        current["study"] = _study(current["study"])
    for case in _objects(current.get("cases")):
        if isinstance(case.get("procedure"), dict):
            case["procedure"] = _procedure(case["procedure"])
    return current


def record(content: Any) -> Any:
    """Return a record of any format with the current names."""
    if not isinstance(content, dict):
        return content
    current = _renamed(content, {"ended": "end_reason"})
    _translate(current, "end_reason", _END_REASONS)
    if isinstance(current.get("verdict"), dict):
        _translate(current["verdict"], "kind", _VERDICTS)
    for warning in _objects(current.get("warnings")):
        _translate(warning, "code", _WARNINGS)
    if isinstance(current.get("server"), dict):
        current["server"] = _renamed(current["server"], _STATISTICS)
    if isinstance(current.get("setup"), dict):
        current["setup"] = _setup(current["setup"])
    if isinstance(current.get("result"), dict) and isinstance(current["result"].get("store"), dict):
        current["result"]["store"] = _renamed(current["result"]["store"], _STATISTICS)
    for phase in _objects(current.get("phases")):
        _translate(phase, "phase", {RAMP: "ramp"})
    if isinstance(current.get("drives"), list):
        current["drives"] = [_drive(drive) if isinstance(drive, dict) else drive for drive in current["drives"]]
    return current


def _setup(content: Mapping[str, Any]) -> dict[str, Any]:
    current = _renamed(content, _SETUP)
    cache = current.get("cache")
    if isinstance(cache, dict) and isinstance(cache.get("prepared"), dict):
        current["cache"] = {**cache, "prepared": _renamed(cache["prepared"], _PREPARED)}
    return current


def _drive(content: Mapping[str, Any]) -> dict[str, Any]:
    current = _renamed(content, {"begin": "start"})
    for moment in ("start", "end"):
        if isinstance(current.get(moment), dict):
            current[moment] = _renamed(current[moment], {"untold": "not_reported"})
    return current


def _study(content: Mapping[str, Any]) -> dict[str, Any]:
    current = dict(content)
    _translate(current, "on_member_failure", {"go_on": "continue"})
    current["parts"] = [_part(part) for part in _objects(current.get("parts"))]
    for analysis in _objects(current.get("analysis")):
        _translate(analysis, "kind", {"promise": "array_efficiency"})
    if isinstance(profiles := current.get("profiles"), dict):
        current["profiles"] = {
            name: _renamed(profile, {"most_rounds": "max_rounds"}) if isinstance(profile, dict) else profile
            for name, profile in profiles.items()
        }
    return current


def _part(content: Mapping[str, Any]) -> dict[str, Any]:
    current = _renamed(content, {"found": "derived"})
    if isinstance(current.get("rounds"), dict):
        current["rounds"] = _renamed(current["rounds"], {"most": "max_rounds"})
    if isinstance(current.get("search"), dict):
        current["search"] = _renamed(current["search"], _SEARCH)
        _translate(current["search"], "agree", _AGREE)
    return current


def _procedure(content: Mapping[str, Any]) -> dict[str, Any]:
    current = _renamed(content, _PROCEDURE)
    _translate(current, "kind", _PROCEDURES)
    if isinstance(current.get("settings"), dict):
        current["settings"] = _renamed(current["settings"], _SETTINGS)
        _translate(current["settings"], "agree", _AGREE)
    return current


def _renamed(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in content.items()}


def _translate(content: dict[str, Any], name: str, values: Mapping[str, str]) -> None:
    value = content.get(name)
    if isinstance(value, str):
        content[name] = values.get(value, value)


def _objects(content: Any) -> Iterator[dict[str, Any]]:
    return (each for each in content if isinstance(each, dict)) if isinstance(content, list) else iter(())
