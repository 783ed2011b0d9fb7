"""Carry out a plan: order, progress, resume, and one record per run, including failed ones.

`session.py` is one `run` or `resume`; `attempt.py` one run of it; `engine.py` the engine's process; `instruments/` what
surrounds a run; `record.py` composes the record.
"""

from typing import TYPE_CHECKING

from iosonde.base.lazy import lazy

if TYPE_CHECKING:
    from iosonde.execution.run_loop import Observer
    from iosonde.execution.session import Interrupted, default_directory, execute, resume

__all__ = ["Interrupted", "Observer", "default_directory", "execute", "resume"]

__getattr__ = lazy(
    __name__,
    {
        "Interrupted": "iosonde.execution.session",
        "Observer": "iosonde.execution.run_loop",
        "default_directory": "iosonde.execution.session",
        "execute": "iosonde.execution.session",
        "resume": "iosonde.execution.session",
    },
)
