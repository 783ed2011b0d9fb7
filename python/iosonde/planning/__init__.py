"""From a study and a target to a plan: every case, run, default and cost."""

from iosonde.planning.expand import Outline, expand, outline
from iosonde.planning.load import load, parse

__all__ = ["Outline", "expand", "load", "outline", "parse"]
