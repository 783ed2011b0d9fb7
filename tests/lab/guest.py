"""What is tried on throttled drives inside the lab's machine: `guest.py ENGINE IOPS BANDWIDTH`.

Only the standard library, because everything is emulated; results are JSON Lines, judged outside.
"""

import sys

from guest_failures import fail_members
from guest_guard import try_guard
from guest_rates import measure_all

engine, iops, bandwidth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
measure_all(engine, iops, bandwidth)
fail_members(engine)
try_guard()
