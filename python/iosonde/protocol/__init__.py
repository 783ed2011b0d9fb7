"""The protocol between iosonde and its engine (docs/protocol.md).

`spec.py`, `event.py` and `version.py` are generated from the engine's JSON schema by `scripts/generate-protocol`. Specs
and events are plain dictionaries at run time; mypy checks the names and types of their fields.
"""

from iosonde.protocol.version import VERSION as VERSION

HIGHEST_RATE = 10**7
"""Operations per second of a stream that the engine can time (`RATE_MAX` in crates/load)."""
