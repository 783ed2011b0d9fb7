"""Accesses to mapped memory (PMbench's method).

The engine's spec is in `spec.py`. `fault_overhead.py` and `mapped_reads.py` answer a question each.
"""

ANALYSES = ("fault_overhead", "mapped_reads")
WITH_DEVICE_PART = ANALYSES
TOPICS = (("memory", "Memory and swap"),)
