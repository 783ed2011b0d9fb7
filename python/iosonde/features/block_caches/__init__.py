"""Block caches over a device or array: bcache, dm-cache and dm-writecache (docs/block-cache.md).

`block_cache.py` creates, empties and removes them, `preparations.py` brings one into the state that a case requires,
and `instruments.py` reads it during a run. Its reading in the record is `record.py`; facts, metrics and tables derive
from it.
"""
