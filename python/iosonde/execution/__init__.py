"""Carry out a plan: order, progress, resume, and one record per run, including failed ones.

`session.py` is one `run` or `resume`; `attempt.py` one run of it; `engine.py` the engine's process; `instruments/` what
surrounds a run.
"""
