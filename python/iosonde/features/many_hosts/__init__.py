"""One run on many hosts at the same time (docs/hosts.md).

An agent (`agent.py`) is an ordinary session on a result set of its own, on one host; it carries out the runs that the
coordinator names. The coordinator (`together.py`) starts each run on all hosts at one instant and merges their records
(`merge.py`) into one. Dask.distributed carries the messages (`hosts.py`, `workers.py`), never on a measured path.
"""
