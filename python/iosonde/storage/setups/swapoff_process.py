"""Turns off the swap area behind an open descriptor: `python -I swapoff_process.py DESCRIPTOR`; exits with the errno.

A process of its own, because the kernel selects the process that turns swap off as the first victim when the pages have
no room in memory (`try_to_unuse` in mm/swapfile.c runs as the origin of an out-of-memory kill). iosonde itself must
survive that.
"""

import ctypes
import os
import sys


def main() -> int:
    """Call swapoff(2) on the descriptor of the command line."""
    library = ctypes.CDLL(None, use_errno=True)
    done = library.swapoff(os.fsencode(f"/proc/self/fd/{int(sys.argv[1])}"))
    return 0 if done == 0 else ctypes.get_errno()


if __name__ == "__main__":
    sys.exit(main())
