"""Metrics over time: each case of a study on one target, with the points where its level changed.

`series.py` groups the summaries of `iosonde.library` into series, `changes.py` finds change points, `events.py` lists
what else changed between sessions, `tracks.py` puts them together, `sentences.py`, `figure.py` and `page.py` write it.
"""

from iosonde.history.tracks import History, history

__all__ = ["History", "history"]
