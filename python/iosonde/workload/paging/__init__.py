"""Accesses to mapped memory (PMbench's method)."""
