"""Accesses to mapped memory (PMbench's method)."""

TOPICS = (("memory", "Memory and swap"),)
