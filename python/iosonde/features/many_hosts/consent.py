"""Refusal of a study about hosts that is started without any."""

from __future__ import annotations

from iosonde.errors import TargetError
from iosonde.features.many_hosts.host_plan import most_hosts
from iosonde.plan import Plan
from iosonde.storage import Target
from iosonde.storage.safety.consent import Consent


def _require_hosts(plan: Plan, target: Target, consent: Consent) -> None:
    """`TargetError` if cases require hosts, and the plan has none."""
    count = most_hosts(plan)
    if count and not plan.hosts:
        raise TargetError(
            f"the parameter `hosts` requires `--hosts`; the study `{plan.study_name}` uses up to {count}",
            hint=f"add `--hosts local:{count}` for processes on this machine, or the address of a Dask scheduler",
        )


REQUIRED = (_require_hosts,)
