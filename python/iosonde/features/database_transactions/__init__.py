"""Transactions on a database server: TPC-C, and single-row durable commits. `iosonde.servers` starts the servers."""
