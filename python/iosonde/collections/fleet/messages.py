"""Messages between a fleet and the processes that measure its targets: one JSON object a line, checked when it arrives.

A host is a stranger: what it sends is read like a file from somebody else. A line that is no message of ours raises
`TargetError`, which names what came and the likely cause, and concerns that host or target alone.
"""

from __future__ import annotations

import base64
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from iosonde.base.foreign_text import printable
from iosonde.collections.fleet.model import Measurable
from iosonde.errors import IosondeError, TargetError
from iosonde.results.reading import parsed
from iosonde.storage.safety.guard import ConsentError, InUseError

SHOWN = 100
"""Characters of a line that is no message, in its error."""
FLUSH_S = 30.0
"""For the last messages; a broken connection takes none."""

MOST_CHARACTERS = 16 << 10
"""Of a text, the rest of which is cut off."""

RECORDS, ENVIRONMENTS = "records", "environments"
Name = Annotated[str, Field(min_length=1, max_length=255)]
Text = Annotated[str, AfterValidator(lambda text: text[:MOST_CHARACTERS])]
Option = Annotated[str, Field(pattern=r"^--(destroy|confirm) [^\s;&|<>()$`\"\\!*?~][^\n;&|<>()$`\"\\!*?]*$")]
"""An option of the command line that a user may copy into a shell."""


class _Message(BaseModel):
    """Unknown keys are ignored: another version, which is reported as such, may have them."""

    model_config = ConfigDict(frozen=True)


class Note(_Message):
    """Text for the user."""

    type: Literal["note"] = "note"
    text: Text


class Files(_Message):
    """Files of a record, or one environment, of a result set that is on a host."""

    type: Literal["files"] = "files"
    kind: Literal["records", "environments"]
    name: Name
    files: Mapping[Name, Base64Bytes]

    @classmethod
    def of(cls, kind: str, name: str, files: Mapping[str, bytes]) -> Files:
        """The message with the content of these files."""
        encoded = {file: base64.b64encode(content) for file, content in files.items()}
        return cls.model_validate({"kind": kind, "name": name, "files": encoded})


class Ended(_Message):
    """The session of a target has ended; `failed` has the reason."""

    type: Literal["ended"] = "ended"
    stopped: bool = False
    failed: Text = ""


Progress = Note | Files | Ended
PROGRESS: TypeAdapter[Progress] = TypeAdapter(Annotated[Progress, Field(discriminator="type")])
"""Of a session."""


class Problem(_Message):
    """An `IosondeError` about a target on a host."""

    what: Text
    where: Text = ""
    hint: Text = ""
    options: Sequence[Option] = ()
    """Missing consent."""
    in_use: bool = False
    """True for a device that must not be written."""

    @classmethod
    def of(cls, error: IosondeError) -> Problem:
        """The answer for a target that has this error."""
        options = error.options if isinstance(error, ConsentError) else ()
        found = cls(what=error.what, where=error.where, hint=error.hint, in_use=isinstance(error, InUseError))
        return found.model_copy(update={"options": options})

    def error(self, host: str) -> TargetError:
        """The error as it is raised here, with options as they are written here."""
        what = f"on host `{host}`: {self.what}"
        if self.options:
            return ConsentError(what, where=self.where, options=[of_host(option, host) for option in self.options])
        return (InUseError if self.in_use else TargetError)(what, where=self.where, hint=self.hint)


class DescribedTarget(_Message):
    """A target of a host that can be measured."""

    hardware: Sequence[Text]
    devices: Sequence[Text]
    required: Sequence[Option] = ()
    plan: Mapping[str, Any] | None = None
    """Absent without a study."""

    @classmethod
    def of(cls, found: Measurable) -> DescribedTarget:
        """The answer for a target of this machine."""
        described = cls(hardware=sorted(found.hardware), devices=found.devices)
        if not found.plan:
            return described
        plan, required = found.plan.model_dump(mode="json"), found.plan.required_options
        return described.model_copy(update={"plan": plan, "required": required})


class Machine(_Message):
    """Name, CPUs and versions of a host; checked first, since the rest is readable only if they match."""

    machine: Name
    cpus: Annotated[int, Field(ge=1, le=1 << 16)]
    software: Mapping[str, Any]


class Described(Machine):
    """Answer of a host about its targets."""

    targets: Mapping[str, DescribedTarget | Problem]


class Checked(_Message):
    """Answer of a host about consent and guard; None for a target that may be measured."""

    targets: Mapping[str, Problem | None]
    notes: Sequence[Text]


T = TypeVar("T")


def of_host(option: str, host: str) -> str:
    """Write an option of a host as it is given here: `--destroy HOST:DEVICE`."""
    return option.replace("--destroy ", f"--destroy {host}:")


def read(kind: TypeAdapter[T], line: bytes, sender: str) -> T:
    """Read a message of this kind; `TargetError` for anything else."""
    try:
        content = parsed(line)
    except ValueError:
        text = line.decode(errors="replace").strip().partition("\n")[0]
        raise TargetError(
            f"{sender} sent text of another program: `{_shown(text)}`",
            hint="let the startup files of its shell print nothing in sessions without a terminal",
        ) from None
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "message"
        text = _shown(line.decode(errors="replace").strip())
        raise TargetError(
            f"{sender} sent `{text}`, where `{_shown(place)}` is wrong: {_shown(first['msg'])}",
            hint="install the same version of iosonde on all hosts",
        ) from None


def _shown(text: str) -> str:
    line = printable(text.replace("\n", " "))
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


class Outbox:
    """Sends messages on what was standard output, in a thread: a broken connection must not block a session.

    From then on whatever else prints, here or in a library, prints to standard error.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def send(self, message: BaseModel) -> None:
        """Send one message."""
        self._waiting.put(message.model_dump_json().encode() + b"\n")

    def close(self) -> None:
        """Wait until all are written."""
        self._waiting.put(None)
        self._writer.join(FLUSH_S)

    def _write(self) -> None:
        with suppress(OSError):
            while (line := self._waiting.get()) is not None:
                self._output.write(line)
                self._output.flush()
