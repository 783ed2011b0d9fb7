"""From a study and a target to a plan: every case, run, default and cost."""

from iosonde.planning.arms import Against, check_targets, is_simulated, share_file_system, shared_storage
from iosonde.planning.expand import StudySize, expand, require_feasible, study_size
from iosonde.planning.load import load, parse

__all__ = [
    "Against",
    "StudySize",
    "check_targets",
    "expand",
    "is_simulated",
    "load",
    "parse",
    "require_feasible",
    "share_file_system",
    "shared_storage",
    "study_size",
]
