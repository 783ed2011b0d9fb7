"""The protocol between iosonde and its engine (docs/protocol.md).

`spec.py` and `event.py` are generated from the engine's JSON schema by `scripts/generate-protocol`. Specs and events
are plain dictionaries at run time; mypy checks the names and types of their fields.
"""

VERSION = 1
"""Version of the protocol that specs are written in, and that an engine must speak."""

HIGHEST_RATE = 10**7
"""Operations per second of a stream that the engine can time (`RATE_MAX` in crates/load)."""
