"""The live page: a running study in a browser, on loopback only.

The session passes what its observer receives to a server process of low priority, through a pipe that never blocks
(`page.py`). The server (`server.py`) keeps the state and answers a browser that requests it
once a second. This file imports nothing, so that the server starts quickly and stays small.
"""
