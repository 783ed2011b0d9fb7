"""Servers of key-value stores that iosonde starts for each run."""

from __future__ import annotations

from iosonde.execution.servers import ServerStarter
from iosonde.features.key_value_stores.cassandra import node
from iosonde.features.key_value_stores.memcached import run

STARTERS = (ServerStarter("memcached", run.start), ServerStarter("cassandra", node.start))
