"""Carry out a plan: order, progress, resume, and one record per run, including failed ones.

`session.py` is one `run` or `resume`; `attempt.py` one run of it; `engine.py` the engine's process; `instruments/` what
surrounds a run; `record.py` composes the record.
"""

from typing import TYPE_CHECKING

from iosonde.core.lazy import lazy

if TYPE_CHECKING:
    from iosonde.execution.observer import Observer
    from iosonde.execution.run import default_directory
    from iosonde.execution.session import Interrupted, execute, resume

__all__ = ["Interrupted", "Observer", "default_directory", "execute", "resume"]

__getattr__ = lazy(
    __name__,
    {
        "Interrupted": "iosonde.execution.session",
        "Observer": "iosonde.execution.observer",
        "default_directory": "iosonde.execution.run",
        "execute": "iosonde.execution.session",
        "resume": "iosonde.execution.session",
    },
)
