"""What stands between the target and the workload of a run: made before the first run that asks for it, and taken apart
when another is asked for, or at the end of the session.

Simulated drives have nothing to be made: a setup is a new array of them, and their state outlives the session.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from iosonde.study.plan import Case, Plan, Run
from iosonde.target import Target, drive_state


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a run finds."""

    target: Target
    """As the workload sees it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record; empty where nothing was made."""


class Stage:
    """Makes what the cases of a plan ask for, one after the other, on one target."""

    def __init__(self, plan: Plan, target: Target, directory: Path) -> None:
        """`directory` is that of the result set, where simulated drives keep their state."""
        self._base = target
        self._directory = directory
        self._is_needed = any(case.setup for case in plan.cases)
        self._standing = Standing(target=target)
        self._key: tuple[str, ...] | None = None

    def ready(self, run: Run, case: Case) -> Standing:
        """What that run is to find; made now unless it stands."""
        if not self._is_needed:
            return self._standing
        is_fresh = case.setup is not None and case.setup.fresh == "run"
        if is_fresh or self._key != case.stands_on:
            self._standing = self._made(run, case, is_fresh=is_fresh)
            self._key = case.stands_on
        return self._standing

    def _made(self, run: Run, case: Case, *, is_fresh: bool) -> Standing:
        target = self._base.with_setup(case.setup) if case.setup else self._base
        began = time.monotonic()
        is_drive = run.spec["workload"].get("backend", {}).get("kind") == "ssd"
        facts = self._of_simulated(case, is_fresh=is_fresh) if is_drive else {}
        if case.setup is None:
            return Standing(target=target)
        return Standing(
            target=target,
            facts={
                "asked": case.setup.model_dump(),
                "text": case.setup.text,
                "on": self._base.describe(),
                "made_for": run.run_id,
                "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - began, 3),
                **facts,
            },
        )

    def _of_simulated(self, case: Case, *, is_fresh: bool) -> dict[str, Any]:
        """New drives, unless those of an earlier session are these very ones."""
        wanted = "\n".join(case.stands_on)
        if is_fresh or drive_state.stands_on(self._directory) != wanted:
            drive_state.begin(self._directory, wanted)
            return {"simulated": True}
        return {"simulated": True, "kept_from_before": True}
