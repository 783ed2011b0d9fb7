"""Cassandra: the server, its settings in studies, its start for a run, and clusters that the user runs."""
