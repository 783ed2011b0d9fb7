"""The time of an I/O in each stage of the kernel's I/O path, from tracepoints (docs/kernel-tax.md).

`instruments.py` traces a run in a tracefs instance of its own (`instance.py`, `ring_buffer.py`).
`stages.py` divides each traced I/O into stages.
"""
