"""Consent to start the external commands of a plan, by repeating the hash of its study."""

from __future__ import annotations

import itertools

from iosonde.errors import TargetError
from iosonde.plan import Plan, commands

SHOWN = 6
"""Lines of commands that a refusal shows."""


def require_commands_allowed(plan: Plan, given: str) -> None:
    """Raise `TargetError` unless the user has named the hash of a plan with external commands."""
    if not commands.has_commands(plan) or commands.is_allowed(plan, given):
        return
    shown = list(itertools.islice(commands.lines(plan), SHOWN + 1))
    listed = [*shown[:SHOWN], *(["..."] if len(shown) > SHOWN else [])]
    what = "is not that of this study with these settings, or a program has changed" if given else "is missing"
    raise TargetError(
        f"the study `{plan.study_name}` starts external commands, which can do anything that you can: the hash that "
        f"allows them {what}",
        where="\n  ".join(["it would start", *listed]),
        hint=f"if you trust these commands, add `--allow-commands {commands.commands_hash(plan)}`; `iosonde plan` "
        "prints all of them",
    )
