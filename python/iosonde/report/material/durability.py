"""Durability of acknowledged writes by store: next to the values of its cases, and where stores cannot be ranked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iosonde.metrics import wording
from iosonde.workload import terms

if TYPE_CHECKING:
    from iosonde.report.material.result_sets import Material, Source

HEAD = "Writes survive"
"""Head of the column."""
SURVIVES = {"nothing": "nothing", "process_crash": "process crash", "power_loss": "power loss"}


def durability(source: Source, case_id: str) -> str:
    """Return what acknowledged writes of a case survive; empty if it does not write, or that was not recorded."""
    found = (_recorded(record.result) for record in source.records if record.case_id == case_id)
    return next((SURVIVES.get(each, each) for each in found if each), "")


def _recorded(result: Mapping[str, object] | None) -> str:
    store = (result or {}).get("store")
    found = store.get("durability") if isinstance(store, Mapping) else None
    return str(found) if found else ""


def differing(material: Material, part: str) -> Mapping[str, str]:
    """Return what writes survive in each store of a part, where stores differ; else nothing."""
    found: dict[str, set[str]] = {}
    for source, case in material.cases():
        survives = durability(source, case.case_id)
        if case.part == part and survives:
            found.setdefault(str(case.parameters.get("store", "")), set()).add(survives)
    if len(found) < 2 or len(set(map(frozenset, found.values()))) < 2:
        return {}
    return {store: " or ".join(sorted(survives)) for store, survives in found.items()}


def note(material: Material, part: str) -> str:
    """Return the note under a figure of such a part; empty if its stores do not differ."""
    found = differing(material, part)
    if not found:
        return ""
    listed = wording.listing([f"{terms.store_name(store)} {survives}" for store, survives in found.items()])
    return f"Writes survive different failures, so stores are not ranked: {listed}."
