"""Finds out what storage really delivers, and proves it.

    import iosonde

    results = iosonde.run("quick", target="/mnt/disk", profile="quick")
    results = iosonde.load("iosonde-results/quick-20260102-030405")
    results.runs, results.intervals, results.sql("SELECT ...")

Both names load what they need when they are used, so that `iosonde --help` is instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iosonde.execution.run import run
    from iosonde.results.result_set import load

__all__ = ["load", "run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from iosonde.execution.run import run

        return run
    if name == "load":
        from iosonde.results.result_set import load

        return load
    raise AttributeError(f"module `iosonde` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
