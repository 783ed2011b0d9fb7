"""Two systems compared: how much faster one is, with which confidence, and which to choose for which workload.

`sessions.py` estimates ratios from the repeats of sessions and how much sessions differ. `cases.py` judges every case
with control of false discoveries, and every workload.
"""
