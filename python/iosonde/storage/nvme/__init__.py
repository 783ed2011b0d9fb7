"""NVMe drives, spoken to by admin commands through the kernel's passthrough, so that no tool is needed.

`admin.py` sends a command and takes its answer; `logs.py` reads the answers that are log pages, `counters.py` takes
from them the media counters of a drive; `format.py` and `sanitize.py` erase a namespace or a drive.
"""
