"""Key-value stores, in the engine or in a server.

What a study may set, with the loads by name and what must fit together, is in `parameters.py`, how values are written
in `notation.py`; `requirements.py` has what phases and the target decide and what a run needs, `spec.py` the engine's
spec. `cassandra` and `memcached.py` are servers that iosonde starts; `mongodb.py` is one of the user.
"""
