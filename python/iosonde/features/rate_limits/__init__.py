"""Rate limits of volumes: IOPS and bandwidth limits, burst buckets and first-touch cost (docs/limits.md)."""
