"""Fleets: one study on many targets independently, and a report that compares their drives.

`model.py` reads the list of targets and finds what they share, `directory.py` creates a result set with its
plan for each, and `session.py` carries them out: each in a process of its own (`worker.py`), those that share something
one after the other. `drives.py` reduces result sets to drives and their values and compares them, `report.py` decides
on the content of the report and writes it.
"""
