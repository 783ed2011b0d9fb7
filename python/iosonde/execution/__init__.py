"""Carry out a plan: order, progress, resume, one record per run, failures included."""

from iosonde.execution.execute import Interrupted, Observer, execute, resume
from iosonde.execution.study import default_directory

__all__ = ["Interrupted", "Observer", "default_directory", "execute", "resume"]
