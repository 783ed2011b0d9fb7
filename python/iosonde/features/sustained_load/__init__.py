"""Sustained load: how throughput falls in a run, changes between stages, and recovers in pauses."""
