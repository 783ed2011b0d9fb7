"""Key-value stores, in the engine or in a server.

One file each: what a study may set (`parameters`, with the loads by name in `phases`), how values are written
(`notation`), what must fit together (`rules`), what phases and the target decide (`fitting`), the engine's spec
(`spec`), what a run needs (`requirements`) and takes (`cost`). `cassandra` and `memcached` are servers that iosonde
starts; `mongodb.py` is one of the user.
"""
