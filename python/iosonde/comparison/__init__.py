"""Two systems compared: how much faster one is, with which confidence, and which to choose for which workload.

`ratio.py` estimates a ratio from the repeats of sessions and `variance.py` how much sessions differ. `cases.py` judges
every case with control of false discoveries, `recommendation.py` every workload.
"""
