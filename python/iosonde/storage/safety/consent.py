"""The user's consent to overwrite devices, and whether it is sufficient.

A device that the target names is written only if the command has `--destroy DEVICE` as well, and one with contents only
if it also repeats the device's serial number, or its size in bytes if it has none (`--confirm`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from iosonde.base.text_files import expanded
from iosonde.errors import TargetError
from iosonde.storage import pcie
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.guard import Findings
from iosonde.units import format_bytes, parse_size


@dataclass(frozen=True, kw_only=True)
class Consent:
    """Options of the command line."""

    destroy: tuple[str, ...] = ()
    """Devices, by any of their names."""
    confirm: tuple[str, ...] = ()
    """Serial numbers, or sizes."""
    commands: str = ""
    """Hash of the study whose external commands may be started."""
    libraries: tuple[str, ...] = ()
    """Libraries of stores outside of the system's directories that a plan which exists already may load."""
    servers: tuple[str, ...] = ()
    """Addresses of servers of the user that a plan which exists already may connect to, with the user's passwords."""


NO_CONSENT = Consent()


class ConsentError(TargetError):
    """A device that must not be overwritten yet."""

    def __init__(self, what: str, *, where: str, options: Sequence[str]) -> None:
        super().__init__(what, where=where, hint=f"to overwrite it, add {' '.join(options)}")
        self.options = tuple(options)
        """Options of the command line that are missing."""


def together(errors: Sequence[ConsentError]) -> TargetError:
    """Return one error for all devices that are refused, with the missing options of all of them."""
    if len(errors) == 1:
        return errors[0]
    found = ConsentError(
        f"{len(errors)} devices would be overwritten",
        where="\n  ".join(f"{each.what}: {each.where}" for each in errors),
        options=[option for each in errors for option in each.options],
    )
    found.hint = found.hint.replace("overwrite it", "overwrite them")
    return found


def refuse_surplus(consent: Consent, targets: Sequence[str]) -> None:
    """`TargetError` for a device that may be overwritten and is not part of any target: one of both is a mistake."""
    names = [name for target in targets for name in (target, *target.split(","))]
    numbers = {number_of(expanded(name.strip()).absolute()) for name in names} - {""}
    for text in consent.destroy:
        if not re.fullmatch(pcie.ADDRESS, text) and number_of(expanded(text).absolute()) not in numbers:
            raise TargetError(
                f"`--destroy {text}` must name a device of the target",
                where=f"the target is {' and '.join(f'`{each}`' for each in targets)}",
                hint="remove the option, or name that device as a target",
            )


def missing(name: str, findings: Findings, consent: Consent) -> list[str]:
    """Options that are still missing before a device may be written."""
    number = findings.number
    named = [number_of(expanded(text).absolute()) for text in consent.destroy]
    words = [] if number in named else [f"--destroy {name}"]
    if findings.signatures and not _is_confirmed(number, consent):
        words.append(f"--confirm {block_stack.serial(number) or block_stack.size_bytes(number)}")
    return words


def refusal(name: str, findings: Findings, consent: Consent) -> ConsentError | None:
    """Return why a device must not be overwritten yet; None with sufficient consent."""
    options = missing(name, findings, consent)
    if not options:
        return None
    held = findings.contents
    size = format_bytes(block_stack.size_bytes(findings.number))
    loses = f"contains {held}, which would be lost" if held else f"would be overwritten ({size})"
    return ConsentError(f"`{name}` {loses}", where=_identity(findings.number), options=options)


def _is_confirmed(number: str, consent: Consent) -> bool:
    serial = block_stack.serial(number)
    if serial:
        return serial in consent.confirm
    for text in consent.confirm:
        with suppress(ValueError):
            if parse_size(text) == block_stack.size_bytes(number):
                return True
    return False


def _identity(number: str) -> str:
    model = block_stack.model(number) or "no model"
    serial = block_stack.serial(number)
    return f"{model}, {f'serial {serial}' if serial else 'no serial'}, {format_bytes(block_stack.size_bytes(number))}"
