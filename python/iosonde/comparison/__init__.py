"""Two systems compared: how much one is faster, how sure that is, and which to choose for which workload.

`ratio.py` estimates a ratio from the repeats of sessions and `variance.py` how much sessions differ. `cases.py` judges
every case with control of false discoveries, `recommendation.py` every workload.
"""
