"""Everything that iosonde raises on purpose.

A mistake by the user is an `IosondeError`: what failed and on what, where, the likely cause, what to do next. A mistake
by us is an assertion. The tree:

    IosondeError
    ├── StudyError      a study file, a profile, a factor or a setting is wrong
    ├── TargetError     a target cannot be used, or must not be
    │   ├── ServerError a server on it cannot be found, started, reached or used
    │   └── UnsupportedError  target or machine lack what a run requires
    ├── EngineError     the engine could not be started, or violated the protocol
    ├── ResultsError    a result set is missing, in use, damaged or of another format
    └── LabError        a device or virtual machine of the lab cannot be created, or failed
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager


class IosondeError(Exception):
    """An error with four parts: what, where, hint (likely cause and next step).

    `what` is one clause without a final period, literals in backticks. `where` names the place in the study, file or
    result set. `hint` states what to do next. `str()` gives them as the command line prints them.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f"\n  {self.where}"
        if self.hint:
            text += f"\n\nhint: {self.hint}"
        return text


class StudyError(IosondeError):
    """A study file, a profile, a factor or a setting is wrong."""


class TargetError(IosondeError):
    """A target cannot be used, or must not be."""


@contextmanager
def os_errors(what: str, *, where: str = "", hint: str = "") -> Iterator[None]:
    """An `OSError` within becomes a `TargetError`: `what`, and the reason of the kernel."""
    try:
        yield
    except OSError as error:
        raise TargetError(f"{what}: {error.strerror or error}", where=where, hint=hint) from error


class ServerError(TargetError):
    """A server on the target cannot be found, started, reached or used."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", code: str = "server") -> None:
        super().__init__(what, where=where, hint=hint)
        self.code = code
        """Code of the failure in the record of a run that it prevents."""


class UnsupportedError(TargetError):
    """Target or machine lack what a run requires: its record states so, and repeating it cannot help."""


class EngineError(IosondeError):
    """The engine could not be started, or violated the protocol."""


class ResultsError(IosondeError):
    """A result set is missing, in use, damaged or of another format."""


class LabError(IosondeError):
    """A device or virtual machine of the lab cannot be created, or failed."""


def did_you_mean(name: str, known: Collection[str], *, cutoff: float = 0.6) -> str:
    """A question for a hint, with the known name that is most similar; empty if none is."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"did you mean `{near[0]}`?" if near else ""
