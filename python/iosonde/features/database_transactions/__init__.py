"""Transactions on a database server: TPC-C, and single-row durable commits. `study.servers` starts the servers."""
