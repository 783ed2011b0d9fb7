"""What the user has said may be destroyed, and whether that is enough.

A device that the target names is written only if the command says `--destroy DEVICE` as well; and one that holds
something only if it also repeats the device's serial number, or its size in bytes if it has none (`--confirm`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.storage import block_stack
from iosonde.storage.block_nodes import number_of
from iosonde.storage.guard import Findings
from iosonde.units import format_bytes, parse_size


@dataclass(frozen=True, kw_only=True)
class Consent:
    """What stands on the command line."""

    destroy: tuple[str, ...] = ()
    """Devices, by any of their names."""
    confirm: tuple[str, ...] = ()
    """Serial numbers, or sizes."""


NO_CONSENT = Consent()


def missing(name: str, findings: Findings, consent: Consent) -> str:
    """What still has to be said so that a device may be written: options of the command, or nothing."""
    number = findings.number
    named = [number_of(Path(text).expanduser().absolute()) for text in consent.destroy]
    words = [] if number in named else [f"--destroy {name}"]
    if findings.signatures and not _is_confirmed(number, consent):
        words.append(f"--confirm {block_stack.serial(number) or block_stack.size_bytes(number)}")
    return " ".join(words)


def contents(findings: Findings) -> str:
    """What a device holds, for a reader; empty for nothing."""
    return ", ".join(dict.fromkeys(f"{each.text} on `{each.device}`" for each in findings.signatures))


def require(name: str, findings: Findings, consent: Consent) -> None:
    """`TargetError` says what has to be said."""
    needed = missing(name, findings, consent)
    if not needed:
        return
    held = contents(findings)
    size = format_bytes(block_stack.size_bytes(findings.number))
    loses = f"holds {held}, which would be lost" if held else f"would be overwritten ({size})"
    raise TargetError(
        f"`{name}` {loses}",
        where=_identity(findings.number),
        hint=f"if that is what you want, say so: {needed}",
    )


def _is_confirmed(number: str, consent: Consent) -> bool:
    serial = block_stack.serial(number)
    if serial:
        return serial in consent.confirm
    return any(_size(text) == block_stack.size_bytes(number) for text in consent.confirm)


def _size(text: str) -> int | None:
    try:
        return parse_size(text)
    except ValueError:
        return None


def _identity(number: str) -> str:
    model = block_stack.model(number) or "no model"
    serial = block_stack.serial(number)
    return f"{model}, {f'serial {serial}' if serial else 'no serial'}, {format_bytes(block_stack.size_bytes(number))}"
