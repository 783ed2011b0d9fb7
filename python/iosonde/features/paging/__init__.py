"""Accesses to mapped memory (PMbench's method).

The engine's spec is in `spec.py`.
"""

TOPICS = (("memory", "Memory and swap"),)
