"""Carry out a plan: order, progress, resume, one record a run, whatever happens.

`iosonde.run` is also the function that a notebook calls. Python binds a subpackage to its package under its own name,
so the package is made callable; otherwise `iosonde.run(...)` would work or not, depending on what was imported before.
"""

import sys
from types import ModuleType

from iosonde.run import study
from iosonde.run.execute import Interrupted, Observer, execute, resume
from iosonde.run.study import default_directory

__all__ = ["Interrupted", "Observer", "default_directory", "execute", "resume"]


class _CallablePackage(ModuleType):
    __call__ = staticmethod(study.run)


sys.modules[__name__].__class__ = _CallablePackage
