"""Transactions on a database server: TPC-C, and single-row durable commits.

The engine's specs are in `spec.py`; `iosonde.servers` starts the servers.
"""
