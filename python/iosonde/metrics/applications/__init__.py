"""Metrics of what runs on top of the storage: stores, caches, servers, swap, graphs, commands."""
