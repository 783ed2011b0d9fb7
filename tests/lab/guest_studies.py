"""Studies that are carried out inside the lab's machine: `guest_studies.py OUT`; their results go to `OUT`, as JSON.

What can be computed from a result set is computed outside, where nothing is emulated.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from guest_arrays import CONSENT, try_arrays
from guest_block_caches import CONSENT as CACHES
from guest_block_caches import try_caches
from guest_md_builder import try_builder
from guest_memory import try_limits
from guest_nvme import try_backends, try_drive
from guest_sessions import waiting_session
from guest_unplug import try_unplug

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # Not the host's journal.
sessions = waiting_session(CONSENT), waiting_session(CONSENT)
cache_session = waiting_session(CACHES)
try:
    try_caches(cache_session, Path("caches.json"))
except Exception:  # The tests of block caches fail; the others need not.
    traceback.print_exc()
# What limits are tried on stays mounted.
said = {
    "builder": try_builder(),
    "arrays": try_arrays(*sessions),
    "drive": try_drive(),
    "backends": try_backends(),
    "limits": try_limits(),
    # Drives have other names after it.
    "unplug": try_unplug(),
}
Path(sys.argv[1]).write_text(json.dumps(said))
