"""NVMe drives, spoken to by admin commands through the kernel's passthrough, so that no tool is needed.

`admin.py` sends a command and takes its answer; `logs.py` reads the answers that are log pages, `counters.py` takes
from them what a drive says of its media; `format.py` and `sanitize.py` give up what a namespace or a drive holds.
"""
