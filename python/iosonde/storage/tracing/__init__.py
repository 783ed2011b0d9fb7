"""Tracepoints of the kernel through tracefs: an instance of our own, its ring buffer, and the fields of its events."""
