"""What Python and the engine must agree on: `crates/protocol` and `crates/load` say the same."""

VERSION = 1
"""The protocol that specs are written in, and that an engine must say it speaks."""

HIGHEST_RATE = 10**7
"""Operations per second of a stream that the engine can time (`RATE_MAX` in crates/load)."""
