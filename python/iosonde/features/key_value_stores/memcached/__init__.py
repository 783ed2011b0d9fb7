"""memcached: the server, its settings in studies, and its start for a run."""
