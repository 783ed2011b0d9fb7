"""Arrays of several devices: Linux md, and the profiles of btrfs (docs/arrays.md).

`md.py` and `btrfs.py` create them, bring them to the state that a case requires, and remove them. `run.py` reads their
health before, during and after a run. `performance.py` compares throughput with the model of the level and with the
work that requests bring to the members.
"""
