"""Durability: stores whose acknowledged writes survive different failures are not ranked against each other."""

from __future__ import annotations

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, cases_of
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.workload import terms

SURVIVES = {
    "nothing": "do not survive a crash of the process",
    "process_crash": "survive a crash of the process",
    "power_loss": "survive a power failure",
}


class DifferentDurability(Finding, kind="different durability", topic="stores"):
    """Stores that a study compares although their writes survive different failures."""

    stores: tuple[tuple[str, str], ...]
    """Store, and what its acknowledged writes survive."""

    def _sentence(self) -> str:
        listed = [f"writes of {terms.store_name(store)} {SURVIVES[survives]}" for store, survives in self.stores]
        return f"Stores are not ranked: {wording.listing(listed)}"

    def _evidence(self) -> str:
        return "durability of acknowledged writes under the options in effect; set `sync = true` to compare them"


def difference(question: Question) -> DifferentDurability | None:
    """Return the difference between stores that a question compares; None where they may be ranked."""
    outcomes, compared = question.outcomes, question.cells()
    if outcomes is None or "store_durability" not in outcomes.columns or compared.is_empty():
        return None
    facts = outcomes.select("case_id", "store_kind", "store_durability").drop_nulls().unique(maintain_order=True)
    for _, group in groups(compared, question.by):
        found = facts.join(group.select("case_id"), on="case_id", how="semi", maintain_order="left")
        if found["store_kind"].n_unique() > 1 and found["store_durability"].n_unique() > 1:
            pairs = found.select("store_kind", "store_durability").unique(maintain_order=True)
            return DifferentDurability(
                stores=tuple(pairs.iter_rows()),
                strength="strong",
                case_ids=cases_of(found),
                part=question.part.name,
            )
    return None
