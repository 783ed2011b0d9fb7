"""The interface of what carries out a study on several hosts: `--hosts`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from iosonde.execution.observer import Observer
from iosonde.plan import Plan
from iosonde.results.result_set import ResultSet
from iosonde.storage.safety.consent import Consent


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The hosts, as the user names them."""

    hosts: str
    """`local:N`, `ssh:FILE`, or the address of a scheduler."""
    continue_without_lost: bool = False
    """True if the study continues with the remaining hosts when one is lost."""


class Carrier(Protocol):
    """Listed in `CARRIERS` of a feature's `carriers.py`."""

    def planned(self, plan: Plan, options: HostOptions) -> Plan:
        """Return the plan with what all hosts would do, to be shown; nothing is started."""

    def execute(
        self,
        plan: Plan,
        directory: Path,
        options: HostOptions,
        *,
        observer: Observer,
        time_limit_s: float | None,
        consent: Consent,
    ) -> ResultSet:
        """Carry out a plan, like `session.execute`."""

    def resume(
        self,
        result_set: ResultSet,
        options: HostOptions,
        *,
        observer: Observer,
        time_limit_s: float | None,
        retry_failed: bool,
        consent: Consent,
    ) -> ResultSet:
        """Carry out missing runs, like `session.resume`."""

    def cleanup(self, options: HostOptions) -> list[dict[str, Any]]:
        """Remove leftovers on all hosts; returns what `iosonde cleanup --json` prints there, with the host."""
