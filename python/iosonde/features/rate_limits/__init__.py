"""Rate limits of volumes: IOPS and bandwidth limits, burst buckets and first-touch cost (docs/limits.md).

`identify.py` decides on stages and what they show, from series of rates (`series.py`) alone. `procedures.py` makes runs
of the stages, and series of their records.
"""

PROCEDURES = ("identify_limits", "compare_volumes")
